// SPDX-License-Identifier: BSD-2-Clause
// Rings of an endpoint on a core without a device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/ring/rings.h"
#include "tests/unit/protocol_fake_core.h"
#include "tests/unit/protocol_fake_verbs.h"

namespace heddle::protocol::test {

inline constexpr unsigned kTalks = 32;        // messages within a second that bring a ring
inline constexpr std::uint32_t kSlots = 128;  // of a ring
inline constexpr std::size_t kMessageBytes = 40;

// What the endpoint does with messages of rings: it counts them, and notes who wrote them.
class FakeRingUser final : public RingReader {
public:
    void read_ring(Peer& peer) override { rings->take_from(peer, ~0u, *this); }
    void take_next(Peer& peer, const ReceiveRing::Found& found) {
        peer.incoming.count_received();
        next.emplace_back(&peer, found.bytes.size());
    }
    void take_other(Peer& peer, const Header& header, const ReceiveRing::Found&) {
        peer.incoming.count_received();
        other.emplace_back(&peer, header.flags);
    }
    Rings* rings = nullptr;
    std::vector<std::pair<const Peer*, std::size_t>> next;
    std::vector<std::pair<const Peer*, std::uint8_t>> other;
};

class RingsTest : public ::testing::Test {
protected:
    explicit RingsTest(std::uint32_t rings = 2) : core_(options(rings)) { reader_.rings = &rings_; }
    ~RingsTest() override { fake_verbs::fail_registrations(0); }

    static Options options(std::uint32_t rings) {
        Options options;
        options.rings.peers = rings;
        options.rings.message_bytes = kMessageBytes;
        return options;
    }
    // So many messages of the peer have come, by whatever way.
    static void talk(Peer& peer, unsigned messages = kTalks) {
        for (unsigned i = 0; i < messages; ++i)
            peer.incoming.count_received();
    }
    // A second passes. In it nobody but these talks.
    void pass_second(const std::vector<Peer*>& talkers = {}) {
        for (Peer* const peer : talkers)
            talk(*peer, 1);
        rings_.look_who_talks(true);
    }
    void give_ring(Peer& peer) {
        talk(peer);
        rings_.look_who_talks(false);
        ASSERT_TRUE(rings_.has_ring_here(peer));
        ASSERT_FALSE(core_.sent.empty());
        ASSERT_EQ(core_.sent.back().kind, Kind::kRing);
        ASSERT_EQ(core_.sent.back().peer, &peer);
    }
    // Messages of the kind to the peer, or to all of them.
    std::size_t sent(Kind kind, const Peer* to = nullptr) const {
        return static_cast<std::size_t>(
            std::count_if(core_.sent.begin(), core_.sent.end(), [&](const auto& each) {
                return each.kind == kind && (to == nullptr || each.peer == to);
            }));
    }
    void arrive(Peer& peer, Kind kind, std::uint32_t taken = 0) {
        Message message;
        message.header.kind = kind;
        if (kind == Kind::kRing) message.ring = {4096, 7, 4, 128, 0};
        if (kind == Kind::kRingTaken) message.ring_taken = {taken, 0};
        rings_.on_message(peer, message);
    }
    std::uint64_t errors() const { return core_.counts.protocol_errors; }

    FakeCore core_;
    FakeRingUser reader_;
    Rings rings_{core_, reader_, nullptr, true};
    Peer &peer_ = core_.add_peer(), &other_ = core_.add_peer(), &third_ = core_.add_peer();
};

}  // namespace heddle::protocol::test
