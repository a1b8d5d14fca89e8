// SPDX-License-Identifier: BSD-2-Clause
// Peers on the same host, on cores without a device: how a ring is opened, which messages are taken
// from it and when, and what ends it.
#include "protocol/local/local_peers.h"

#include <cerrno>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/shm/host.h"
#include "tests/unit/protocol_fake_core.h"
#include "tests/unit/protocol_shm_support.h"

namespace heddle::protocol::test {
namespace {

// What the endpoint does with messages: it counts them, and notes what they were.
struct FakeEndpoint {
    void take_next(Peer& peer, bool is_tagged, const ShmReceiver::Found& found) {
        peer.incoming.count_received();
        next.emplace_back(is_tagged, found.bytes.size());
        if (fails_in_next != nullptr) fails_in_next->on_peer_failed(peer);
    }
    void take_other(Peer& peer, const Header& header, const ShmReceiver::Found&) {
        if (is_sequenced(header.kind)) peer.incoming.count_received();
        other.push_back(header.kind);
    }
    bool has_enough() const { return next.size() + other.size() >= enough; }
    std::vector<std::pair<bool, std::size_t>> next;
    std::vector<Kind> other;
    std::size_t enough = ~std::size_t{0};
    LocalPeers* fails_in_next = nullptr;
};

// An endpoint with peers on its host.
struct Side {
    explicit Side(bool is_wanted = true) : local(core, is_wanted) { core.name.endpoint = 1; }
    Peer& add_peer() {
        Peer& peer = core.add_peer();
        core.connect(peer);
        return peer;
    }
    unsigned read(unsigned most = ~0u) { return local.take_from_all(most, endpoint); }
    FakeCore core;
    FakeEndpoint endpoint;
    LocalPeers local;
};

class LocalPeersTest : public ::testing::Test {
protected:
    // The sender offers a ring.
    ShmOpenBody offer() {
        sender_.local.on_connected(to_, host_number());
        EXPECT_EQ(sender_.core.sent.size(), 1u);
        if (sender_.core.sent.empty()) return {};
        EXPECT_EQ(sender_.core.sent.back().kind, Kind::kShmOpen);
        return sender_.core.sent.back().body<ShmOpenBody>();
    }
    void open() {
        const ShmOpenBody opening = offer();
        memory_.emplace(opening);
        receiver_.local.on_open(from_, opening, false);
        sender_.local.look_at_answers();
        ASSERT_EQ(sender_.core.sent.back().kind, Kind::kShmBegin);
        receiver_.local.on_begin(from_);
        ASSERT_NE(to_.shm, nullptr);
        sender_.core.sent.clear();
    }
    // The next message of an honest sender, `later` messages behind what has been read.
    Header header(unsigned later = 0, Kind kind = Kind::kEager, std::uint8_t flags = 0) const {
        return {kind,
                flags,
                from_.name.endpoint,
                receiver_.core.name.endpoint,
                static_cast<std::uint16_t>(from_.incoming.expected_sequence() + later),
                5};
    }
    std::uint64_t errors() const { return receiver_.core.counts.protocol_errors; }

    Side sender_, receiver_;
    std::optional<ShmSegment> memory_;  // of the ring, once it is open
    Peer &to_ = sender_.add_peer(), &from_ = receiver_.add_peer();
};

TEST_F(LocalPeersTest, BothSidesOpenARing) {
    EXPECT_FALSE(sender_.local.is_active());
    const ShmOpenBody opening = offer();
    EXPECT_TRUE(sender_.local.is_opening());
    EXPECT_EQ(to_.shm, nullptr);
    sender_.local.look_at_answers();
    EXPECT_TRUE(sender_.local.is_opening()) << "there is no answer yet";
    receiver_.local.on_open(from_, opening, false);
    EXPECT_TRUE(from_.writes_to_us);
    EXPECT_NE(from_.memory, nullptr) << "a process may read its own memory";
    EXPECT_FALSE(receiver_.local.has_ring_here(from_));
    sender_.local.look_at_answers();
    EXPECT_FALSE(sender_.local.is_opening());
    ASSERT_EQ(sender_.core.sent.size(), 2u);
    EXPECT_EQ(sender_.core.sent[1].kind, Kind::kShmBegin);
    ASSERT_NE(to_.shm, nullptr);
    EXPECT_TRUE(to_.shm->is_memory_read());
    EXPECT_EQ(to_.other_ways, 1u);
    receiver_.local.on_begin(from_);
    EXPECT_TRUE(receiver_.local.has_ring_here(from_));
    EXPECT_EQ(receiver_.core.counts.shm.peers, 1u);
    sender_.local.on_connected(to_, host_number());
    EXPECT_EQ(sender_.core.sent.size(), 2u) << "one ring to a peer";
}

TEST_F(LocalPeersTest, TheBeginWaitsForRoom) {
    receiver_.local.on_open(from_, offer(), false);
    sender_.core.has_room = false;
    sender_.local.look_at_answers();
    EXPECT_EQ(to_.shm, nullptr) << "messages that wait go before it";
    EXPECT_EQ(to_.waiting.size(), 1u);
    sender_.core.has_room = true;
    sender_.core.flush(to_);
    EXPECT_NE(to_.shm, nullptr);
    EXPECT_EQ(sender_.core.sent.back().kind, Kind::kShmBegin);
}

TEST_F(LocalPeersTest, OtherHostsGetNoRing) {
    sender_.local.on_connected(to_, 0);
    sender_.local.on_connected(to_, host_number() + 1);
    EXPECT_TRUE(sender_.core.sent.empty());
    EXPECT_FALSE(sender_.local.is_active());
}

TEST_F(LocalPeersTest, WithoutTheOptionThereIsNone) {
    Side off(false);
    Peer& peer = off.add_peer();
    off.local.on_connected(peer, host_number());
    EXPECT_TRUE(off.core.sent.empty());
    off.local.on_open(peer, offer(), false);
    EXPECT_FALSE(peer.writes_to_us);
    sender_.local.look_at_answers();
    EXPECT_FALSE(sender_.local.is_opening());
    EXPECT_EQ(to_.shm, nullptr);
    EXPECT_EQ(sender_.core.sent.size(), 1u) << "no begin";
}

TEST_F(LocalPeersTest, APeerWithAnotherRingIsRefused) {
    receiver_.local.on_open(from_, offer(), true);
    EXPECT_FALSE(from_.writes_to_us);
    sender_.local.look_at_answers();
    EXPECT_EQ(to_.shm, nullptr);
}

TEST_F(LocalPeersTest, WhatCannotBeOpenedIsReported) {
    ShmOpenBody opening = offer();
    ++opening.nonce;
    receiver_.local.on_open(from_, opening, false);
    EXPECT_FALSE(from_.writes_to_us);
    EXPECT_EQ(errors(), 0u) << "messages go by the device";
}

TEST_F(LocalPeersTest, StepsOutOfTurnAreErrors) {
    receiver_.local.on_begin(from_);
    EXPECT_EQ(errors(), 1u);
    from_.failed = 0;
    const ShmOpenBody opening = offer();
    receiver_.local.on_open(from_, opening, false);
    receiver_.local.on_open(from_, opening, false);
    EXPECT_EQ(errors(), 2u);
    from_.failed = 0;
    receiver_.local.on_begin(from_);
    EXPECT_EQ(errors(), 2u);
    receiver_.local.on_begin(from_);
    EXPECT_EQ(errors(), 3u);
}

TEST_F(LocalPeersTest, MessagesComeInTheirOrder) {
    open();
    const std::vector<std::byte> payload(200);
    ASSERT_TRUE(write_message(*to_.shm, header(0)));
    ASSERT_TRUE(write_message(*to_.shm, header(1, Kind::kEager, Header::kTagged), payload));
    ASSERT_TRUE(write_message(*to_.shm, header(2, Kind::kRts)));
    ASSERT_TRUE(write_message(*to_.shm, header(0, Kind::kCredit)));
    ASSERT_TRUE(write_message(*to_.shm, header(3)));
    EXPECT_EQ(receiver_.read(), 5u);
    EXPECT_EQ(receiver_.endpoint.next,
              (decltype(receiver_.endpoint.next){
                  {false, sizeof(Header)}, {true, sizeof(Header) + 200}, {false, sizeof(Header)}}));
    EXPECT_EQ(receiver_.endpoint.other, (std::vector<Kind>{Kind::kRts, Kind::kCredit}));
    EXPECT_EQ(receiver_.core.counts.shm.received, 5u);
    EXPECT_EQ(receiver_.read(), 0u);
    EXPECT_EQ(errors(), 0u);
}

// One that was sent before, by a SEND, has still to come.
TEST_F(LocalPeersTest, AMessageWaitsForThoseBeforeIt) {
    open();
    ASSERT_TRUE(write_message(*to_.shm, header(1)));
    EXPECT_EQ(receiver_.read(), 0u);
    EXPECT_TRUE(receiver_.local.arm()) << "the SEND wakes the endpoint";
    from_.incoming.count_received();
    EXPECT_FALSE(receiver_.local.arm());
    EXPECT_EQ(receiver_.local.take_from(from_, receiver_.endpoint), 1u);
    EXPECT_EQ(errors(), 0u);
}

TEST_F(LocalPeersTest, NoMoreIsTakenThanAskedFor) {
    open();
    for (unsigned i = 0; i < 5; ++i)
        ASSERT_TRUE(write_message(*to_.shm, header(i)));
    EXPECT_EQ(receiver_.read(2), 2u);
    receiver_.endpoint.enough = 3;
    EXPECT_EQ(receiver_.read(), 1u);
    receiver_.endpoint.enough = ~std::size_t{0};
    EXPECT_EQ(receiver_.read(), 2u);
}

TEST_F(LocalPeersTest, OneIsTakenWithoutOtherProgress) {
    open();
    const auto take = [](Peer& peer, const ShmReceiver::Found&) {
        peer.incoming.count_received();
        return true;
    };
    EXPECT_EQ(receiver_.local.take_next(take), LocalPeers::Next::kNothing);
    ASSERT_TRUE(write_message(*to_.shm, header(0, Kind::kEager, Header::kTagged)));
    ASSERT_TRUE(write_message(*to_.shm, header(1, Kind::kEager, Header::kTagged)));
    EXPECT_EQ(receiver_.local.take_next(take), LocalPeers::Next::kTaken);
    EXPECT_EQ(receiver_.local.take_next([](Peer&, const ShmReceiver::Found&) { return false; }),
              LocalPeers::Next::kOther)
        << "it was left";
    EXPECT_EQ(receiver_.read(), 1u);
    ASSERT_TRUE(write_message(*to_.shm, header(0)));
    EXPECT_EQ(receiver_.local.take_next(take), LocalPeers::Next::kOther) << "it has no tag";
    EXPECT_EQ(receiver_.read(), 1u);
    EXPECT_EQ(receiver_.local.take_next(take), LocalPeers::Next::kNothing);
}

TEST_F(LocalPeersTest, ASleeperIsWoken) {
    open();
    EXPECT_TRUE(receiver_.local.arm());
    bool wakes = false;
    ASSERT_TRUE(write_message(*to_.shm, header(0), {}, {}, &wakes));
    EXPECT_TRUE(wakes);
    EXPECT_FALSE(receiver_.local.arm()) << "there is something to take";
}

// More peers than are looked at in each poll.
TEST_F(LocalPeersTest, NoneOfManyPeersIsForgotten) {
    constexpr unsigned kPeers = 20;
    Side receiver;
    std::vector<std::unique_ptr<Side>> senders;
    for (unsigned i = 0; i < kPeers; ++i) {
        Peer& from = receiver.add_peer();
        Side& sender = *senders.emplace_back(std::make_unique<Side>());
        sender.core.name.endpoint = from.name.endpoint;
        Peer& to = sender.add_peer();
        sender.local.on_connected(to, host_number());
        receiver.local.on_open(from, sender.core.sent.back().body<ShmOpenBody>(), false);
        sender.local.look_at_answers();
        receiver.local.on_begin(from);
    }
    for (unsigned round = 0; round < 3; ++round) {
        for (unsigned i = 0; i < kPeers; ++i) {
            const Peer& from = *receiver.core.peers[i];
            ASSERT_TRUE(write_message(*senders[i]->core.peers[0]->shm,
                                      Header{Kind::kEager, 0, from.name.endpoint, 1,
                                             from.incoming.expected_sequence(), 0}));
        }
        EXPECT_FALSE(receiver.local.arm());
        unsigned taken = 0;
        for (unsigned poll = 0; poll < 2 * kPeers; ++poll)
            taken += receiver.read();
        EXPECT_EQ(taken, kPeers);
        EXPECT_TRUE(receiver.local.arm());
    }
}

// What has no place in a ring ends the reading of it, as nothing else there can be believed.
class ForeignBytes : public LocalPeersTest {
protected:
    void SetUp() override { open(); }
    void expect_broken() {
        EXPECT_EQ(receiver_.read(), 0u);
        EXPECT_EQ(errors(), 1u);
        EXPECT_EQ(from_.failed, EPROTO);
        EXPECT_EQ(receiver_.core.complaints.size(), 1u);
        EXPECT_EQ(receiver_.read(), 0u);
        EXPECT_EQ(errors(), 1u) << "it is reported once";
        EXPECT_TRUE(receiver_.endpoint.next.empty());
        EXPECT_TRUE(receiver_.endpoint.other.empty());
        EXPECT_TRUE(receiver_.local.arm());
        receiver_.local.look();
        EXPECT_FALSE(receiver_.local.has_ring_here(from_)) << "it is unmapped";
        EXPECT_EQ(receiver_.read(), 0u);
    }
};

TEST_F(ForeignBytes, OfAnotherSenderAreRefused) {
    Header foreign = header();
    ++foreign.source;
    ASSERT_TRUE(write_message(*to_.shm, foreign));
    expect_broken();
}

TEST_F(ForeignBytes, ForAnotherReceiverAreRefused) {
    Header foreign = header();
    ++foreign.destination;
    ASSERT_TRUE(write_message(*to_.shm, foreign));
    expect_broken();
}

TEST_F(ForeignBytes, ThatCameBeforeAreRefused) {
    Header foreign = header();
    --foreign.sequence;
    ASSERT_TRUE(write_message(*to_.shm, foreign));
    expect_broken();
}

TEST_F(ForeignBytes, OfAWrongLengthAreRefused) {
    slots_of(memory_->memory())[0].mark = std::uint64_t{1} << 32 | 3;
    expect_broken();
}

TEST_F(LocalPeersTest, AReceiverThatTakesTooMuchFails) {
    open();
    std::uint32_t sent = 0;
    while (write_message(*to_.shm, header()))
        ++sent;
    sender_.local.look();
    EXPECT_EQ(to_.failed, 0);
    control_of(memory_->memory()).progress.taken = sent + 1;
    EXPECT_FALSE(write_message(*to_.shm, header()));
    sender_.local.look();
    EXPECT_EQ(to_.failed, EPROTO);
    EXPECT_EQ(sender_.core.complaints.size(), 1u);
}

TEST_F(LocalPeersTest, APeerThatFailsIsNotReadAnyMore) {
    open();
    for (unsigned i = 0; i < 3; ++i)
        ASSERT_TRUE(write_message(*to_.shm, header(i)));
    from_.failed = ECONNRESET;
    EXPECT_EQ(receiver_.local.take_from(from_, receiver_.endpoint), 3u)
        << "what it had sent before is taken";
    receiver_.local.on_peer_failed(from_);
    EXPECT_EQ(from_.memory, nullptr);
    ASSERT_TRUE(write_message(*to_.shm, header()));
    EXPECT_EQ(receiver_.read(), 0u);
    receiver_.local.look();
    EXPECT_EQ(receiver_.read(), 0u);
}

// The ring stays while it is read.
TEST_F(LocalPeersTest, APeerMayFailWhileItIsRead) {
    open();
    for (unsigned i = 0; i < 3; ++i)
        ASSERT_TRUE(write_message(*to_.shm, header(i)));
    receiver_.endpoint.fails_in_next = &receiver_.local;
    EXPECT_EQ(receiver_.read(), 1u);
    EXPECT_EQ(receiver_.read(), 0u);
}

TEST_F(LocalPeersTest, NothingIsSentToAPeerThatFailed) {
    open();
    to_.failed = ECONNRESET;
    sender_.local.on_peer_failed(to_);
    EXPECT_EQ(to_.shm, nullptr);
    EXPECT_EQ(to_.other_ways, 0u);
    ASSERT_NE(from_.memory, nullptr);
    EXPECT_EQ(from_.memory->probe(), ESRCH) << "what was announced must not be read any more";
    sender_.local.look();
}

TEST_F(LocalPeersTest, APeerMayFailBeforeItAnswers) {
    offer();
    to_.failed = ECONNRESET;
    sender_.local.on_peer_failed(to_);
    sender_.local.look();
    EXPECT_FALSE(sender_.local.is_opening());
}

TEST_F(LocalPeersTest, AnEndpointThatEndsGivesUpItsMemory) {
    auto ending = std::make_unique<Side>();
    Peer& to = ending->add_peer();
    ending->local.on_connected(to, host_number());
    receiver_.local.on_open(from_, ending->core.sent.back().body<ShmOpenBody>(), false);
    ending->local.look_at_answers();
    EXPECT_EQ(from_.memory->probe(), 0);
    ending.reset();
    EXPECT_EQ(from_.memory->probe(), ESRCH);
}

}  // namespace
}  // namespace heddle::protocol::test
