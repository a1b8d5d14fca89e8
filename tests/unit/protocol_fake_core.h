// SPDX-License-Identifier: BSD-2-Clause
// The core of an endpoint without a device: what a part does to it is recorded.
#pragma once

#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "protocol/core/core_services.h"

namespace heddle::protocol::test {

struct SentControl {
    const Peer* peer = nullptr;
    Kind kind{};
    std::vector<std::byte> contents;

    template <class Body>
    Body body() const {
        Body body;
        if (contents.size() == sizeof body) std::memcpy(&body, contents.data(), sizeof body);
        return body;
    }
};

// Base of FakeCore, so that these are there before CoreServices keeps them.
struct FakeParts {
    Options options;
    AddressVector addresses;
    Completions transmitted, received;
};

class FakeCore final : public FakeParts, public CoreServices {
public:
    explicit FakeCore(const Options& with = {})
        : FakeParts{with, {}, {}, {}},
          CoreServices(FakeParts::options, FakeParts::addresses,
                       {.transmit = &transmitted, .receive = &received}) {}

    // The next peer.
    Peer& add_peer() {
        EndpointAddress name;
        name.endpoint = static_cast<std::uint16_t>(peers.size() + 1);
        name.process.nonce = 1000 + peers.size();
        return *peers.at(addresses.insert(name));
    }

    using CoreServices::control;
    void control(Peer& peer, Kind kind, std::span<const std::byte> contents,
                 std::span<const std::byte>, std::uint64_t) override {
        sent.push_back({&peer, kind, {contents.begin(), contents.end()}});
    }
    void look_if_open(Peer& peer) const noexcept override { looked_at.push_back(&peer); }
    void refuse(Peer& peer, int error) override {
        peer.failed = error;
        refused.emplace_back(&peer, error);
    }
    void complain_of(const Peer&, const std::string& text) const override {
        complaints.push_back(text);
    }

    std::vector<SentControl> sent;
    std::vector<std::pair<const Peer*, int>> refused;
    mutable std::vector<std::string> complaints;
    mutable std::vector<const Peer*> looked_at;
};

}  // namespace heddle::protocol::test
