// SPDX-License-Identifier: BSD-2-Clause
// When a tuple gets a queue, and which way each of its messages goes.
#include <rdma/fi_endpoint.h>

#include <cerrno>
#include <cstring>

#include "tests/unit/protocol_tuple_sender_support.h"

namespace heddle::protocol::test {
namespace {

TEST_F(TupleSenderTest, AsksWhenATagRepeats) {
    note(1);
    note(1, kTag + 1);
    EXPECT_TRUE(core_.sent.empty());
    note(1);
    ASSERT_EQ(core_.sent.size(), 1u);
    const TupleOpenBody open = asked();
    EXPECT_EQ(core_.sent[0].header.tag, kTag);
    EXPECT_NE(open.credits, 0u);
    EXPECT_EQ(open.flags, 0u);
    EXPECT_EQ(peer_.other_ways, 1u);
    EXPECT_EQ(peer_.outstanding_replies, 1u);
    note(10);
    EXPECT_EQ(core_.sent.size(), 1u) << "it was asked for already";
    EXPECT_EQ(sender_.find(peer_, kTag), nullptr) << "messages go as before until it begins";
}

TEST_F(TupleAutoTest, AsksWhenAQueueWouldHavePaid) {
    note(4);
    EXPECT_TRUE(core_.sent.empty());
    note(1);
    EXPECT_EQ(sent(Kind::kTupleOpen), 1u);
}

TEST_F(TupleSenderTest, AsksNobodyWhoHasFailed) {
    peer_.failed = ECONNRESET;
    note(10);
    EXPECT_TRUE(core_.sent.empty());
}

TEST_F(TupleSenderTest, ThereIsMemoryForSoManyCredits) {
    // The pool of credits has 256 places, or as many as there may be queues.
    for (std::uint64_t tag = 0; tag < 300; ++tag)
        note(2, tag << 8);
    EXPECT_EQ(sent(Kind::kTupleOpen), 256u);
    EXPECT_EQ(sender_.count(), 256u);
}

TEST_F(TupleSenderTest, NoMemoryCanBeRegistered) {
    fake_verbs::fail_registrations(ENOMEM);
    note(2);
    fake_verbs::fail_registrations(0);
    EXPECT_TRUE(core_.sent.empty());
    note(3);
    EXPECT_TRUE(core_.sent.empty()) << "it is asked for half as often then";
    note(1);
    EXPECT_EQ(sent(Kind::kTupleOpen), 1u);
}

TEST_F(TupleSenderTest, OneThatWasDeclinedIsAskedForLater) {
    note(2);
    answer(asked().sender, TupleReason::kLimit);
    EXPECT_EQ(counts_.declined[static_cast<std::size_t>(TupleReason::kLimit)], 1u);
    EXPECT_EQ(sender_.count(), 0u);
    EXPECT_EQ(peer_.other_ways, 0u);
    EXPECT_EQ(peer_.outstanding_replies, 0u);
    note(3);
    EXPECT_EQ(sent(Kind::kTupleOpen), 1u);
    note(1);
    EXPECT_EQ(sent(Kind::kTupleOpen), 2u);
}

TEST_F(TupleSenderTest, TellsTuplesApartByTheBitsThatTheReceiverHeeds) {
    note(2);
    answer(asked().sender, TupleReason::kMask, 0xff);
    EXPECT_EQ(sender_.mask_of(peer_), 0xffu);
    EXPECT_EQ(sender_.mask_of(other_), 0u);
    note(1, 0x2001);
    note(1, 0x2002);  // the same tuple now
    ASSERT_EQ(sent(Kind::kTupleOpen), 2u);
    EXPECT_EQ(asked().mask, 0xffu);
}

TEST_F(TupleSenderTest, AnImmediateHasNoRoomForManyIgnoredBits) {
    note(2);
    answer(asked().sender, TupleReason::kMask, 0x1ff);
    EXPECT_EQ(sender_.mask_of(peer_), 0u);
    EXPECT_EQ(counts_.declined[static_cast<std::size_t>(TupleReason::kManyBits)], 1u);
}

TEST_F(TupleSenderTest, ItBeginsBehindWhatWasSentBefore) {
    note(2);
    open_ = asked();
    peer_.open = nullptr;  // no room
    answer(open_.sender);
    EXPECT_EQ(sent(Kind::kTupleBegin), 0u);
    ASSERT_EQ(peer_.waiting.size(), 1u);
    EXPECT_TRUE(peer_.waiting.front()->is_sequenced());
    // Messages of the tuple wait for it.
    give_credit(0);
    send(big_);
    EXPECT_TRUE(core_.posted.empty());
    core_.flush(peer_);
    EXPECT_EQ(core_.sent.back().body<TupleBeginBody>().tuple, kReceiver);
    EXPECT_EQ(peer_.outgoing.sent, 1u);
    sender_.progress();
    EXPECT_EQ(core_.posted.size(), 1u);
}

TEST_F(TupleSenderTest, ItBeginsOnceThereIsRoom) {
    note(2);
    open_ = asked();
    core_.has_room = false;
    answer(open_.sender);
    ASSERT_EQ(peer_.waiting.size(), 1u);
    EXPECT_EQ(peer_.outgoing.sent, 0u);
    give_credit(0);
    send(big_);
    EXPECT_TRUE(core_.posted.empty());
    core_.has_room = true;
    core_.flush(peer_);
    EXPECT_EQ(sent(Kind::kTupleBegin), 1u);
    EXPECT_EQ(peer_.outgoing.sent, 1u);
}

TEST_F(TupleSenderTest, WithCreditItGoesOnTheConnectionOfAllMessages) {
    open();
    give_credit(0);
    send(big_);
    ASSERT_EQ(core_.posted.size(), 1u);
    const FakeCore::PostedWr& wr = core_.posted[0];
    EXPECT_EQ(wr.work.opcode, post::Opcode::kSendImm);
    EXPECT_EQ(wr.work.remote_srq, kSrqn);
    EXPECT_EQ(wr.work.immediate, TupleImmediate::put(kTag, 0, 0));
    EXPECT_EQ(wr.work.flags & post::kInline, 0u);
    EXPECT_EQ(wr.bytes.size(), big_.size());
    EXPECT_TRUE(ended().empty());
    core_.end_wr(send_buffers_);
    EXPECT_EQ(ended(), Contexts{&big_});
    give_credit(1);
    send(small_);
    EXPECT_NE(core_.posted.back().work.flags & post::kInline, 0u);
    EXPECT_EQ(core_.posted.back().work.immediate, TupleImmediate::put(kTag, 0, 1));
    EXPECT_TRUE(device_.blocking.posted.empty());
    EXPECT_EQ(counts_.sent, 2u);
}

TEST_F(TupleSenderTest, CreditOfAnEarlierRoundIsNone) {
    open();
    for (std::uint32_t i = 0; i < kTupleDepth; ++i) {
        give_credit(i);
        send(big_);
        core_.end_wr(send_buffers_);
    }
    ended();
    send(big_);  // its place holds the credit of the first message
    EXPECT_TRUE(core_.posted.empty());
    EXPECT_EQ(device_.blocking.posted.size(), 1u);
}

TEST_F(TupleSenderTest, WithoutCreditItGoesOnAQueueThatMayBlock) {
    open();
    send(big_);
    ASSERT_EQ(device_.blocking.posted.size(), 1u);
    EXPECT_EQ(device_.blocking.posted[0].srqn, kSrqn);
    EXPECT_EQ(device_.blocking.posted[0].bytes, big_.size());
    EXPECT_EQ(counts_.blocking, 1u);
    // The next stays behind it, although it has credit: two queues have no order between them.
    give_credit(1);
    send(third_);
    EXPECT_TRUE(core_.posted.empty());
    EXPECT_EQ(device_.blocking.posted.size(), 2u);
    device_.blocking.end_first();
    device_.blocking.end_first();
    EXPECT_EQ(ended(), (Contexts{&big_, &third_}));
    EXPECT_EQ(device_.blocking.owner, nullptr) << "others may have it";
    give_credit(2);
    send(big_);
    EXPECT_EQ(core_.posted.size(), 1u);
}

TEST_F(TupleSenderTest, TheNextGoesWhenABlockingQueueHasRoom) {
    open();
    for (std::uint32_t i = 0; i <= BlockingQueue::kDepth; ++i)
        send(big_);
    EXPECT_EQ(device_.blocking.posted.size(), BlockingQueue::kDepth);
    device_.blocking.end_first();
    EXPECT_EQ(device_.blocking.posted.size(), BlockingQueue::kDepth);
    EXPECT_EQ(sender_.held(), 0u);
}

TEST_F(TupleSenderTest, BuffersAreGathered) {
    open();
    give_credit(0);
    send({{big_.data(), 60}, {nullptr, 0}, {third_.data(), 40}});
    ASSERT_EQ(core_.posted.size(), 1u);
    EXPECT_EQ(core_.posted[0].sges.size(), 2u);
    const std::string whole = big_.substr(0, 60) + third_.substr(0, 40);
    ASSERT_EQ(core_.posted[0].bytes.size(), whole.size());
    EXPECT_EQ(std::memcmp(core_.posted[0].bytes.data(), whole.data(), whole.size()), 0);
    // The same of one that is copied until there is credit.
    device_.has_blocking = false;
    send({{big_.data(), 20}, {third_.data(), 30}});
    give_credit(1);
    sender_.progress();
    ASSERT_EQ(core_.posted.size(), 2u);
    ASSERT_EQ(core_.posted[1].bytes.size(), 50u);
    EXPECT_EQ(static_cast<char>(core_.posted[1].bytes[19]), 'b');
    EXPECT_EQ(static_cast<char>(core_.posted[1].bytes[20]), 't');
}

TEST_F(TupleSenderTest, WaitsHereWhereNoQueueMayBlock) {
    open();
    device_.has_blocking = false;
    send(big_);
    EXPECT_EQ(sender_.held(), 1u);
    EXPECT_TRUE(sender_.waits());
    EXPECT_TRUE(ended().empty()) << "it is too big for a copy";
    EXPECT_NE(peer_.outstanding_replies, 0u) << "its death would have to be noticed";
    sender_.progress();
    EXPECT_TRUE(core_.posted.empty());
    give_credit(0);
    sender_.progress();
    EXPECT_EQ(core_.posted.size(), 1u);
    EXPECT_EQ(sender_.held(), 0u);
    EXPECT_FALSE(sender_.waits());
    EXPECT_EQ(peer_.outstanding_replies, 0u);
}

TEST_F(TupleSenderTest, WhatIsSmallIsCopiedAndItsSenderGoesOn) {
    open();
    device_.has_blocking = false;
    send(small_);
    EXPECT_EQ(ended(), Contexts{&small_});
    EXPECT_EQ(counts_.copied, 1u);
    small_ = "other";
    give_credit(0);
    sender_.progress();
    ASSERT_EQ(core_.posted.size(), 1u);
    ASSERT_EQ(core_.posted[0].bytes.size(), 5u);
    EXPECT_EQ(std::memcmp(core_.posted[0].bytes.data(), "small", 5), 0);
    core_.end_wr(send_buffers_);
    EXPECT_TRUE(ended().empty()) << "its end was told before";
    EXPECT_EQ(requests_.open(), 0u);
}

TEST_F(TupleSenderTest, HalfOfTheBuffersAreForOthers) {
    open();
    device_.has_blocking = false;
    for (int i = 0; i < 4; ++i)
        send(small_);
    EXPECT_EQ(ended().size(), send_buffers_.count() / 2);
    EXPECT_EQ(sender_.held(), 4u);
}

TEST_F(TupleSenderTest, NoCopyForThoseThatAskForAMatch) {
    open();
    device_.has_blocking = false;
    send(small_, FI_MATCH_COMPLETE);
    EXPECT_TRUE(ended().empty());
}

TEST_F(TupleSenderTest, AFullSendQueueIsWaitedFor) {
    open();
    give_credit(0);
    core_.post_answer = post::Posted::kFull;
    send(big_);
    EXPECT_TRUE(sender_.waits());
    core_.post_answer = post::Posted::kOk;
    sender_.progress();
    EXPECT_EQ(core_.posted.size(), 1u);
}

}  // namespace
}  // namespace heddle::protocol::test
