// SPDX-License-Identifier: BSD-2-Clause
// What an endpoint reads of its rings, on a core without a device: the test writes as peers do.
#include <cerrno>
#include <cstring>
#include <optional>

#include "tests/unit/protocol_rings_support.h"

namespace heddle::protocol::test {
namespace {

constexpr std::size_t kBytes = sizeof(Header) + 8;

class RingReading : public RingsTest {
protected:
    RingReading() {
        give_ring(peer_);
        writer_.emplace(core_.sent.back().body<RingBody>());
        give_ring(other_);
        others_writer_.emplace(core_.sent.back().body<RingBody>());
        core_.sent.clear();
    }
    // The next message of an honest peer, `later` messages behind what has been read.
    Header header_of(const Peer& peer, unsigned later = 0) const {
        return {Kind::kEager,
                0,
                peer.name.endpoint,
                core_.name.endpoint,
                static_cast<std::uint16_t>(peer.incoming.expected_sequence() + later),
                5};
    }
    static void write(SendRing& ring, const Header& header) {
        ASSERT_TRUE(ring.takes(kBytes));
        auto* const to = reinterpret_cast<std::byte*>(ring.address(kBytes));
        const RingTail tail = ring.tail(kBytes);
        std::memcpy(to, &header, sizeof header);
        std::memcpy(to + kBytes, &tail, sizeof tail);
        ring.count_sent();
    }
    unsigned read(unsigned most = ~0u) { return rings_.take_from(peer_, most, reader_); }

    std::optional<SendRing> writer_, others_writer_;  // of peer_ and of other_
};

TEST_F(RingReading, MessagesComeInTheirOrder) {
    Header header = header_of(peer_, 0);
    write(*writer_, header);
    header = header_of(peer_, 1);
    header.flags = Header::kTagged;
    write(*writer_, header);
    header = header_of(peer_, 2);
    header.flags = Header::kWideData;
    write(*writer_, header);
    EXPECT_EQ(read(), 3u);
    EXPECT_EQ(reader_.next, (decltype(reader_.next){{&peer_, kBytes}, {&peer_, kBytes}}));
    EXPECT_EQ(reader_.other, (decltype(reader_.other){{&peer_, Header::kWideData}}));
    EXPECT_EQ(core_.counts.from_rings, 3u);
    EXPECT_EQ(read(), 0u);
    EXPECT_EQ(errors(), 0u);
}

// A message that was sent before, by a SEND, has still to come.
TEST_F(RingReading, AMessageWaitsForThoseBeforeIt) {
    write(*writer_, header_of(peer_, 1));
    EXPECT_EQ(read(), 0u);
    EXPECT_EQ(errors(), 0u);
    talk(peer_, 1);
    EXPECT_EQ(read(), 1u);
}

TEST_F(RingReading, NoMoreThanWasAskedForIsRead) {
    for (unsigned i = 0; i < 3; ++i) {
        write(*writer_, header_of(peer_, i));
        write(*others_writer_, header_of(other_, i));
    }
    EXPECT_EQ(read(2), 2u);
    EXPECT_EQ(rings_.take_from_all(3, reader_), 3u);
    EXPECT_EQ(reader_.next.size(), 5u);
    EXPECT_EQ(reader_.next[2].first, &peer_);
    EXPECT_EQ(reader_.next[3].first, &other_);
    EXPECT_EQ(rings_.take_from_all(~0u, reader_), 1u);
}

// The writer hears of room once half of the ring has been read.
TEST_F(RingReading, TheWriterHearsOfRoom) {
    for (unsigned i = 0; i < kSlots; ++i)
        write(*writer_, header_of(peer_, i));
    EXPECT_FALSE(writer_->takes(kBytes));
    EXPECT_EQ(read(kSlots / 2 - 1), kSlots / 2 - 1);
    EXPECT_TRUE(core_.sent.empty());
    EXPECT_EQ(read(1), 1u);
    ASSERT_EQ(core_.sent.size(), 1u);
    EXPECT_EQ(core_.sent[0].kind, Kind::kRingTaken);
    EXPECT_EQ(core_.sent[0].peer, &peer_);
    EXPECT_EQ(core_.sent[0].body<RingTakenBody>().taken, kSlots / 2);
    EXPECT_EQ(read(), kSlots / 2);
    ASSERT_EQ(core_.sent.size(), 2u);
    EXPECT_EQ(core_.sent[1].body<RingTakenBody>().taken, kSlots);
}

// What has no place in a ring ends the reading of it, as nothing else there can be believed.
class ForeignMessages : public RingReading {
protected:
    void expect_broken() {
        EXPECT_EQ(read(), 0u);
        EXPECT_EQ(errors(), 1u);
        EXPECT_EQ(peer_.failed, EPROTO);
        EXPECT_EQ(read(), 0u);
        EXPECT_EQ(errors(), 1u) << "it is reported once";
        EXPECT_TRUE(reader_.next.empty());
        EXPECT_TRUE(reader_.other.empty());
        EXPECT_EQ(core_.counts.from_rings, 0u);
        EXPECT_TRUE(rings_.has_ring_here(peer_)) << "the peer may still write there";
        write(*others_writer_, header_of(other_));
        EXPECT_EQ(rings_.take_from_all(~0u, reader_), 1u) << "the ring of another peer is read";
    }
    // header_of() with one thing that is wrong, and behind it a message as it should be.
    template <class Change>
    void write_with(const Change& change) {
        Header header = header_of(peer_);
        change(header);
        write(*writer_, header);
        write(*writer_, header_of(peer_));
    }
};

TEST_F(ForeignMessages, OfAnotherKind) {
    write_with([](Header& header) { header.kind = Kind::kRts; });
    expect_broken();
}
TEST_F(ForeignMessages, OfAnotherSource) {
    write_with([](Header& header) { header.source = 99; });
    expect_broken();
}
TEST_F(ForeignMessages, ForAnotherEndpoint) {
    write_with([](Header& header) { header.destination = 99; });
    expect_broken();
}
TEST_F(ForeignMessages, ThatWereReadBefore) {
    write_with([](Header& header) { --header.sequence; });
    expect_broken();
}
TEST_F(ForeignMessages, ThatAreTooShort) {
    const RingTail tail{0, 0, sizeof(Header) - 1, 1};
    std::memcpy(reinterpret_cast<std::byte*>(writer_->address(0)), &tail, sizeof tail);
    expect_broken();
}

// What the peer wrote before it stopped is read before its ring goes.
TEST_F(RingReading, AnEndComesBehindTheMessages) {
    write(*writer_, header_of(peer_, 0));
    write(*writer_, header_of(peer_, 1));
    EXPECT_FALSE(rings_.stop_all());
    arrive(peer_, Kind::kRingEnd);
    EXPECT_EQ(reader_.next.size(), 2u);
    EXPECT_FALSE(rings_.has_ring_here(peer_));
    EXPECT_EQ(errors(), 0u);
}

}  // namespace
}  // namespace heddle::protocol::test
