// SPDX-License-Identifier: BSD-2-Clause
// Endpoints below libfabric's interface, by which a test can send what no program would.
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "protocol/endpoint_impl.h"

namespace heddle::protocol::test {

inline constexpr std::uint64_t kTag = 5;

// Peers that are gone are noticed within half a second.
inline Options impatient(Options options) {
    options.timeouts.ack = 14;
    return options;
}

// An endpoint, with what libfabric's side of the provider has of it.
struct End {
    explicit End(const Options& options) : End(std::make_shared<Domain>(impatient(options))) {}
    explicit End(std::shared_ptr<Domain> of) : domain(std::move(of)) {
        Bindings bindings;
        bindings.transmit = &transmit;
        bindings.receive = &receive;
        endpoint = std::make_unique<RdmEndpoint>(domain, addresses, bindings);
    }
    EndpointImpl& impl() { return endpoint->impl(); }
    void send(std::uint64_t to, std::vector<char>& bytes, std::uint64_t tag = kTag) {
        iovec piece{bytes.data(), bytes.size()};
        send(to, piece, FI_COMPLETION, tag, this);
    }
    // flags: besides FI_TAGGED. Returns what the endpoint does.
    ssize_t send(std::uint64_t to, const iovec& piece, std::uint64_t flags,
                 std::uint64_t tag = kTag, void* context = nullptr) {
        SendArguments a;
        a.iov = &piece;
        a.iov_count = 1;
        a.to = to;
        a.tag = tag;
        a.flags = FI_TAGGED | flags;
        a.context = context;
        return endpoint->send(a);
    }
    void post(std::uint64_t from, std::vector<char>& room, void* context, std::uint64_t ignore = 0,
              std::uint64_t tag = kTag) {
        iovec piece{room.data(), room.size()};
        ReceiveArguments a;
        a.iov = &piece;
        a.iov_count = 1;
        a.from = from;
        a.tag = tag;
        a.ignore = ignore;
        a.flags = FI_TAGGED | FI_COMPLETION;
        a.context = context;
        endpoint->receive(a);
    }
    // Adds to a number of 8 bytes there; what it was comes to `result`.
    ssize_t fetch_add(std::uint64_t to, std::uint64_t operand, void* result, std::uint64_t address,
                      std::uint64_t key, void* context) {
        iovec into{result, sizeof operand};
        AtomicArguments a;
        a.operand = &operand;
        a.results = &into;
        a.result_count = 1;
        a.count = 1;
        a.datatype = FI_UINT64;
        a.op = FI_SUM;
        a.to = to;
        a.address = address;
        a.key = key;
        a.flags = FI_COMPLETION;
        a.context = context;
        return endpoint->atomic(a);
    }
    // How many WRs can be under way to that address.
    std::uint32_t depth_to(std::uint64_t to) {
        return impl().channel->connection(endpoint->name(), *addresses.find(to)).depth();
    }
    const std::shared_ptr<Domain> domain;
    AddressVector addresses;
    Completions transmit, receive;
    std::unique_ptr<RdmEndpoint> endpoint;
};

// Those endpoints make progress until it is true; false: it is not within the time.
inline constexpr std::chrono::seconds kPatience{30};
inline bool until(const std::function<bool()>& true_at_last, const std::vector<End*>& ends) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!true_at_last()) {
        if (std::chrono::steady_clock::now() > end) return false;
        for (End* const each : ends)
            each->endpoint->progress();
    }
    return true;
}

// The send queue to that address grows, by a burst of so many messages of 8 bytes: more than it has
// entries. They have a tag of their own. The receiver reads them if it is among `others`. False: it
// does not grow.
inline constexpr unsigned kBurst = 48;
inline constexpr std::uint64_t kBurstTag = 999;
inline bool grow(End& sender, std::uint64_t to, std::vector<End*> others = {}) {
    others.push_back(&sender);
    const std::uint32_t first = sender.depth_to(to);
    std::uint64_t value = 0;
    const iovec piece{&value, sizeof value};
    const auto send_and_wait = [&] {
        sender.send(to, piece, FI_COMPLETION | FI_TRANSMIT_COMPLETE, kBurstTag);
        if (!until([&] { return !sender.transmit.empty(); }, others)) return false;
        sender.transmit.pop();
        return true;
    };
    if (!send_and_wait()) return false;  // connecting
    for (unsigned i = 2; i < kBurst; ++i)
        if (sender.send(to, piece, FI_INJECT, kBurstTag) != 0) return false;
    return until([&] { return sender.depth_to(to) > first; }, others) && send_and_wait();
}

}  // namespace heddle::protocol::test
