// SPDX-License-Identifier: BSD-2-Clause
// Which peers have a ring, which are asked to stop, and what a peer may say of a ring and when. The
// endpoint has no device. fi_rings_test.cc has the same on a device.
#include "protocol/ring/rings.h"

#include <cerrno>
#include <utility>
#include <vector>

#include "tests/unit/protocol_rings_support.h"

namespace heddle::protocol::test {
namespace {

TEST_F(RingsTest, APeerThatTalksGetsOne) {
    talk(peer_, kTalks - 1);
    EXPECT_EQ(rings_.look_who_talks(false), 2 * kTalks);
    EXPECT_TRUE(core_.sent.empty());
    EXPECT_TRUE(rings_.empty());
    talk(peer_, 1);
    rings_.look_who_talks(false);
    ASSERT_EQ(core_.sent.size(), 1u);
    EXPECT_EQ(core_.sent[0].kind, Kind::kRing);
    EXPECT_EQ(core_.sent[0].peer, &peer_);
    const auto ring = core_.sent[0].body<RingBody>();
    EXPECT_NE(ring.address, 0u);
    EXPECT_EQ(ring.slots, kSlots);
    EXPECT_EQ(ring.slot_bytes, 128u) << "header, data, payload and tail, in whole cache lines";
    EXPECT_TRUE(rings_.has_ring_here(peer_));
    EXPECT_FALSE(rings_.has_ring_here(other_));
    EXPECT_FALSE(rings_.empty());
    EXPECT_EQ(core_.counts.rings, 1u);
    talk(peer_);
    rings_.look_who_talks(false);
    EXPECT_EQ(core_.sent.size(), 1u) << "it has one";
}

// Messages of an earlier second do not count.
TEST_F(RingsTest, MessagesCountWithinASecond) {
    talk(peer_, kTalks - 1);
    rings_.look_who_talks(true);
    talk(peer_, kTalks - 1);
    rings_.look_who_talks(true);
    EXPECT_TRUE(core_.sent.empty());
    talk(peer_, kTalks / 2);
    rings_.look_who_talks(false);
    talk(peer_, kTalks / 2);
    rings_.look_who_talks(false);
    EXPECT_EQ(sent(Kind::kRing, &peer_), 1u) << "a look between does not end the second";
}

TEST_F(RingsTest, WithManyPeersALookIsRare) {
    while (core_.peers.size() < 100)
        core_.add_peer();
    EXPECT_EQ(rings_.look_who_talks(false), 100u);
}

TEST_F(RingsTest, AFailedPeerGetsNone) {
    peer_.failed = ECONNRESET;
    talk(peer_);
    rings_.look_who_talks(false);
    EXPECT_TRUE(core_.sent.empty());
    talk(other_);
    rings_.look_who_talks(false);
    EXPECT_EQ(sent(Kind::kRing, &other_), 1u) << "others go on";
}

TEST_F(RingsTest, AnEndpointThatClosesGivesNone) {
    talk(peer_);
    core_.closing = true;
    EXPECT_EQ(rings_.look_who_talks(true), Rings::kNever);
    EXPECT_TRUE(core_.sent.empty());
}

class NoRings : public RingsTest {
protected:
    NoRings() : RingsTest(0) {}
};

TEST_F(NoRings, AreGiven) {
    talk(peer_);
    EXPECT_EQ(rings_.look_who_talks(true), Rings::kNever);
    EXPECT_TRUE(core_.sent.empty());
}

// Its processor sees what a device writes in another order than that of the addresses.
TEST_F(RingsTest, WithoutOrderThereAreNone) {
    Rings rings(core_, reader_, nullptr, false);
    talk(peer_);
    EXPECT_EQ(rings.look_who_talks(true), Rings::kNever);
    EXPECT_TRUE(core_.sent.empty());
    EXPECT_FALSE(rings.has_ring_here(peer_));
}

TEST_F(RingsTest, WithoutMemoryThereAreNone) {
    fake_verbs::fail_registrations(ENOMEM);
    talk(peer_);
    rings_.look_who_talks(false);
    EXPECT_FALSE(rings_.has_ring_here(peer_));
    EXPECT_TRUE(rings_.empty());
    EXPECT_EQ(core_.counts.rings, 0u);
    EXPECT_TRUE(core_.sent.empty());
    fake_verbs::fail_registrations(0);
    EXPECT_EQ(rings_.look_who_talks(false), Rings::kNever) << "it is not tried again";
    EXPECT_TRUE(core_.sent.empty());
}

// A ring is taken only from a peer that was silent for a second, and only if another wants it.
TEST_F(RingsTest, OnlyTheSilentIsAskedToStop) {
    ASSERT_NO_FATAL_FAILURE(give_ring(peer_));
    ASSERT_NO_FATAL_FAILURE(give_ring(other_));
    pass_second();  // both have talked in this one
    talk(third_);
    rings_.look_who_talks(false);
    EXPECT_EQ(sent(Kind::kRingStop), 0u) << "the second is not over";
    pass_second({&peer_, &other_});
    EXPECT_EQ(sent(Kind::kRingStop), 0u) << "both talk";
    pass_second({&peer_, &other_});
    talk(third_, kTalks - 1);
    pass_second({&peer_});
    EXPECT_EQ(sent(Kind::kRingStop), 0u) << "nobody wants the ring of the silent one";
    talk(third_);
    pass_second({&peer_});
    EXPECT_EQ(sent(Kind::kRingStop, &other_), 1u);
    EXPECT_EQ(sent(Kind::kRingStop), 1u);
    talk(third_);
    pass_second({&peer_});
    EXPECT_EQ(sent(Kind::kRingStop), 1u) << "it is asked once";
    EXPECT_EQ(sent(Kind::kRing), 2u) << "its ring is still there";
    EXPECT_EQ(errors(), 0u);
}

TEST_F(RingsTest, WhileThereAreSomeNobodyIsAskedToStop) {
    ASSERT_NO_FATAL_FAILURE(give_ring(peer_));
    pass_second();
    talk(other_);
    pass_second();
    EXPECT_EQ(sent(Kind::kRingStop), 0u);
    EXPECT_EQ(sent(Kind::kRing, &other_), 1u);
}

TEST_F(RingsTest, AFailedPeerIsNotAskedToStop) {
    ASSERT_NO_FATAL_FAILURE(give_ring(peer_));
    ASSERT_NO_FATAL_FAILURE(give_ring(other_));
    pass_second();
    peer_.failed = ECONNRESET;
    talk(third_);
    pass_second({&other_});
    EXPECT_EQ(sent(Kind::kRingStop), 0u);
}

TEST_F(RingsTest, TheRingOfAFailedPeerGoesToAnother) {
    ASSERT_NO_FATAL_FAILURE(give_ring(peer_));
    ASSERT_NO_FATAL_FAILURE(give_ring(other_));
    const std::size_t regions = fake_verbs::regions();
    peer_.failed = ECONNRESET;
    talk(third_);
    rings_.look_who_talks(false);
    EXPECT_FALSE(rings_.has_ring_here(peer_));
    EXPECT_TRUE(rings_.has_ring_here(third_));
    EXPECT_EQ(sent(Kind::kRing, &third_), 1u);
    EXPECT_EQ(fake_verbs::regions(), regions) << "the memory of one was given back";
    EXPECT_EQ(rings_.take_from_all(~0u, reader_), 0u);
}

TEST_F(RingsTest, AnEndpointThatWantsNoneFreesThoseOfFailedPeers) {
    ASSERT_NO_FATAL_FAILURE(give_ring(peer_));
    EXPECT_FALSE(rings_.stop_all());
    peer_.failed = ECONNRESET;
    EXPECT_EQ(rings_.look_who_talks(true), Rings::kNever);
    EXPECT_TRUE(rings_.empty());
    EXPECT_TRUE(rings_.stop_all());
}

TEST_F(RingsTest, ARingThatEndedGoesToAnother) {
    ASSERT_NO_FATAL_FAILURE(give_ring(peer_));
    ASSERT_NO_FATAL_FAILURE(give_ring(other_));
    const std::size_t regions = fake_verbs::regions();
    pass_second();
    talk(third_);
    pass_second({&other_});
    ASSERT_EQ(sent(Kind::kRingStop, &peer_), 1u);
    arrive(peer_, Kind::kRingEnd);
    EXPECT_EQ(errors(), 0u);
    EXPECT_FALSE(rings_.has_ring_here(peer_));
    EXPECT_TRUE(rings_.has_ring_here(other_));
    EXPECT_EQ(fake_verbs::regions(), regions - 1) << "its memory is given back";
    ASSERT_NO_FATAL_FAILURE(give_ring(third_));
    EXPECT_EQ(rings_.take_from_all(~0u, reader_), 0u) << "nothing is read where it was";
    ASSERT_NO_FATAL_FAILURE(pass_second());
    talk(peer_);
    pass_second();
    EXPECT_EQ(sent(Kind::kRing, &peer_), 1u) << "all are given away";
}

// An endpoint that goes to sleep has every ring ended first.
TEST_F(RingsTest, AllAreEndedForASleeper) {
    ASSERT_NO_FATAL_FAILURE(give_ring(peer_));
    ASSERT_NO_FATAL_FAILURE(give_ring(other_));
    EXPECT_FALSE(rings_.stop_all());
    EXPECT_EQ(sent(Kind::kRingStop, &peer_), 1u);
    EXPECT_EQ(sent(Kind::kRingStop, &other_), 1u);
    EXPECT_FALSE(rings_.stop_all());
    EXPECT_EQ(sent(Kind::kRingStop), 2u) << "each is asked once";
    arrive(peer_, Kind::kRingEnd);
    EXPECT_FALSE(rings_.stop_all());
    arrive(other_, Kind::kRingEnd);
    EXPECT_TRUE(rings_.stop_all());
    EXPECT_TRUE(rings_.empty());
    talk(third_);
    EXPECT_EQ(rings_.look_who_talks(true), Rings::kNever);
    EXPECT_EQ(sent(Kind::kRing, &third_), 0u);
    EXPECT_EQ(errors(), 0u);
}

TEST_F(RingsTest, AFailedPeerKeepsNobodyAwake) {
    ASSERT_NO_FATAL_FAILURE(give_ring(peer_));
    ASSERT_NO_FATAL_FAILURE(give_ring(other_));
    peer_.failed = ECONNRESET;
    EXPECT_FALSE(rings_.stop_all());
    EXPECT_EQ(sent(Kind::kRingStop, &peer_), 0u);
    EXPECT_EQ(sent(Kind::kRingStop, &other_), 1u);
    arrive(other_, Kind::kRingEnd);
    EXPECT_TRUE(rings_.stop_all());
}

// What comes at a wrong time is an error of the peer, and changes nothing.
TEST_F(RingsTest, AnEndNobodyAskedForIsAnError) {
    arrive(peer_, Kind::kRingEnd);
    EXPECT_EQ(errors(), 1u) << "it has no ring";
    ASSERT_NO_FATAL_FAILURE(give_ring(other_));
    arrive(other_, Kind::kRingEnd);
    EXPECT_EQ(errors(), 2u) << "it was not asked";
    EXPECT_TRUE(rings_.has_ring_here(other_));
    ASSERT_EQ(core_.refused.size(), 2u);
    EXPECT_EQ(core_.refused[0], (std::pair<const Peer*, int>{&peer_, EPROTO}));
    EXPECT_EQ(core_.refused[1], (std::pair<const Peer*, int>{&other_, EPROTO}));
}

TEST_F(RingsTest, ASecondEndIsAnError) {
    ASSERT_NO_FATAL_FAILURE(give_ring(peer_));
    rings_.stop_all();
    arrive(peer_, Kind::kRingEnd);
    EXPECT_EQ(errors(), 0u);
    arrive(peer_, Kind::kRingEnd);
    EXPECT_EQ(errors(), 1u);
}

// The other side: this endpoint writes into a ring of the peer.
TEST_F(RingsTest, AnOfferIsTaken) {
    EXPECT_EQ(rings_.ring_at(peer_), nullptr);
    arrive(peer_, Kind::kRing);
    ASSERT_NE(rings_.ring_at(peer_), nullptr);
    EXPECT_EQ(rings_.ring_at(peer_)->key(), 7u);
    EXPECT_EQ(rings_.ring_at(other_), nullptr);
    EXPECT_EQ(peer_.other_ways, 1u) << "small messages do not go by the fast path any more";
    EXPECT_EQ(core_.looked_at, std::vector<const Peer*>{&peer_});
    EXPECT_EQ(errors(), 0u);
    arrive(peer_, Kind::kRing);
    EXPECT_EQ(errors(), 1u) << "one ring a peer";
    EXPECT_EQ(peer_.other_ways, 1u);
}

TEST_F(RingsTest, AWriterThatIsAskedStops) {
    arrive(peer_, Kind::kRing);
    arrive(other_, Kind::kRing);
    arrive(peer_, Kind::kRingStop);
    EXPECT_EQ(rings_.ring_at(peer_), nullptr);
    EXPECT_NE(rings_.ring_at(other_), nullptr);
    EXPECT_EQ(peer_.other_ways, 0u);
    EXPECT_EQ(core_.looked_at, (std::vector<const Peer*>{&peer_, &other_, &peer_}));
    EXPECT_EQ(sent(Kind::kRingEnd, &peer_), 1u);
    EXPECT_EQ(core_.sent.size(), 1u);
    arrive(peer_, Kind::kRing);
    EXPECT_NE(rings_.ring_at(peer_), nullptr) << "it may have another one later";
    EXPECT_EQ(errors(), 0u);
}

TEST_F(RingsTest, AStopWithoutARingIsAnError) {
    arrive(peer_, Kind::kRingStop);
    EXPECT_EQ(errors(), 1u);
    ASSERT_NO_FATAL_FAILURE(give_ring(other_));
    arrive(other_, Kind::kRingStop);
    EXPECT_EQ(errors(), 2u) << "its ring is here, not there";
    EXPECT_EQ(sent(Kind::kRingEnd), 0u);
    EXPECT_EQ(other_.other_ways, 0u);
}

TEST_F(RingsTest, TakenMessagesMakeRoom) {
    arrive(peer_, Kind::kRing);
    const SendRing& ring = *rings_.ring_at(peer_);
    for (int i = 0; i < 4; ++i)
        rings_.ring_at(peer_)->count_sent();
    EXPECT_FALSE(ring.takes(16));
    arrive(peer_, Kind::kRingTaken, 3);
    EXPECT_TRUE(ring.takes(16));
    EXPECT_EQ(errors(), 0u);
    arrive(peer_, Kind::kRingTaken, 5);
    EXPECT_EQ(errors(), 1u) << "more than were written";
}

// It was under way when the ring ended.
TEST_F(RingsTest, LateNewsAreIgnored) {
    arrive(peer_, Kind::kRing);
    arrive(peer_, Kind::kRingStop);
    arrive(peer_, Kind::kRingTaken, 3);
    EXPECT_EQ(errors(), 0u);
}

}  // namespace
}  // namespace heddle::protocol::test
