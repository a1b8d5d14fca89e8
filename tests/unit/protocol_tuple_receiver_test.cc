// SPDX-License-Identifier: BSD-2-Clause
// Which tuples get a queue, what is posted and credited there, and whose messages are believed.
#include <rdma/fi_endpoint.h>

#include <cerrno>
#include <cstring>

#include "tests/unit/protocol_tuple_receiver_support.h"

namespace heddle::protocol::test {
namespace {

TEST_F(TupleReceiverTest, OffersAQueue) {
    ask(peer_);
    const TupleAnswerBody offer = answer();
    EXPECT_EQ(offer.tuple, kSender);
    EXPECT_EQ(offer.declined, 0u);
    EXPECT_NE(offer.srqn, 0u);
    EXPECT_EQ(tuples_.count(), 1u);
    EXPECT_EQ(device_.queues, 1u);
    // Until messages begin to go there receives are matched as before.
    post();
    EXPECT_TRUE(device_.posted.empty());
    arrive_otherwise(peer_);
    EXPECT_EQ(next(), 1);
}

TEST_F(TupleReceiverTest, ThePostedReceivesMoveToTheQueueInOrder) {
    post();
    post(1);
    post();
    open(peer_);
    post();
    ASSERT_EQ(device_.posted.size(), 3u);
    EXPECT_EQ(device_.posted[0].bytes, 1u);
    EXPECT_EQ(device_.posted[1].bytes, 3u);
    EXPECT_EQ(device_.posted[2].bytes, 4u);
    // Each with credit, in the sender's memory.
    ASSERT_EQ(core_.posted.size(), 3u);
    for (std::uint32_t i = 0; i < 3; ++i) {
        const FakeCore::PostedWr& write = core_.posted[i];
        EXPECT_EQ(write.work.opcode, post::Opcode::kWrite);
        EXPECT_EQ(write.work.remote_address, kCredits + i * sizeof(TupleCredit));
        EXPECT_EQ(write.work.remote_key, kKey);
        TupleCredit credit;
        ASSERT_EQ(write.bytes.size(), sizeof credit);
        std::memcpy(&credit, write.bytes.data(), sizeof credit);
        EXPECT_EQ(credit.number, i + 1);
        EXPECT_EQ(credit.bytes, device_.posted[i].bytes);
    }
}

TEST_F(TupleReceiverTest, AMessageEndsItsReceive) {
    post();
    post();
    open(peer_);
    arrive(0);
    arrive(1, 2);
    ASSERT_EQ(core_.received.size(), 2u);
    EXPECT_EQ(core_.received.front().tag, kTag);
    EXPECT_EQ(core_.received.front().bytes, 1u);
    EXPECT_EQ(next(), 1);
    EXPECT_EQ(core_.received.front().bytes, 2u);
    EXPECT_EQ(next(), 2);
    EXPECT_EQ(counts_.received, 2u);
    EXPECT_EQ(errors(), 0u);
}

TEST_F(TupleReceiverTest, AReceiveWithoutRoomIsPostedToo) {
    iovec nothing{nullptr, 0};
    ReceiveArguments arguments;
    arguments.iov = &nothing;
    arguments.iov_count = 1;
    arguments.from = 0;
    arguments.tag = kTag;
    arguments.flags = FI_TAGGED | FI_COMPLETION;
    open(peer_);
    ASSERT_EQ(receiver_.post(arguments), 0);
    ASSERT_EQ(device_.posted.size(), 1u);
    EXPECT_EQ(device_.posted[0].bytes, 0u);
}

TEST_F(TupleReceiverTest, WhatIsBeyondTheQueueFollowsAsItEmpties) {
    open(peer_);
    for (std::uint32_t i = 0; i < kTupleDepth + 2; ++i)
        post();
    EXPECT_EQ(device_.posted.size(), kTupleDepth);
    EXPECT_EQ(core_.posted.size(), kTupleDepth);
    arrive(0);
    EXPECT_EQ(next(), 1);
    EXPECT_EQ(device_.posted.size(), kTupleDepth);
    EXPECT_EQ(device_.posted.back().bytes, kTupleDepth + 1);
    EXPECT_EQ(core_.posted.back().work.remote_address, kCredits) << "the first place again";
}

TEST_F(TupleReceiverTest, CreditWaitsForRoom) {
    open(peer_);
    core_.post_answer = post::Posted::kFull;
    post();
    post();
    EXPECT_EQ(device_.posted.size(), 2u);
    EXPECT_TRUE(core_.posted.empty());
    tuples_.progress();
    EXPECT_TRUE(core_.posted.empty());
    core_.post_answer = post::Posted::kOk;
    tuples_.progress();
    EXPECT_EQ(core_.posted.size(), 2u);
}

TEST_F(TupleReceiverTest, NoCreditForAMessageThatCameWithout) {
    open(peer_);
    core_.post_answer = post::Posted::kFull;
    post();
    post();
    arrive(0);
    core_.post_answer = post::Posted::kOk;
    tuples_.progress();
    ASSERT_EQ(core_.posted.size(), 1u);
    EXPECT_EQ(core_.posted[0].work.remote_address, kCredits + sizeof(TupleCredit));
}

TEST_F(TupleReceiverTest, DeclinesBeforeTheSenderKnowsWhichBitsAreIgnored) {
    post(0, kTag, 0xff);
    ask(peer_);
    expect_declined(TupleReason::kMask);
    EXPECT_EQ(answer().mask, 0xffu);
    ask(peer_, kTag, 0xff);
    expect_declined(TupleReason::kNone);
    EXPECT_EQ(device_.queues, 1u);
}

TEST_F(TupleReceiverTest, DeclinesManyIgnoredBits) {
    post(0, kTag, 0x1ff);
    ask(peer_, kTag, 0x1ff);
    expect_declined(TupleReason::kManyBits);
}

TEST_F(TupleReceiverTest, DeclinesASecondQueueOfOneTuple) {
    ask(peer_);
    ask(peer_);
    expect_declined(TupleReason::kOther);
}

TEST_F(TupleReceiverAutoTest, DeclinesWhereReceivesComeLate) {
    arrive_otherwise(peer_);
    ask(peer_);
    expect_declined(TupleReason::kLate);
}

TEST_F(TupleReceiverTest, MessagesBeforeTheQueueGoFirst) {
    arrive_otherwise(peer_);
    open(peer_);
    post();
    EXPECT_TRUE(device_.posted.empty());
    EXPECT_EQ(next(), 1);
    post();
    EXPECT_EQ(device_.posted.size(), 1u);
}

TEST_F(TupleReceiverTest, DeclinesWhatTheDeviceHasNot) {
    device_.device_error = ENOMEM;
    ask(peer_);
    expect_declined(TupleReason::kDevice);
    EXPECT_EQ(tuples_.count(), 0u);
}

TEST_F(TupleReceiverTest, DeclinesWhenTheProcessHasAsManyAsItMay) {
    device_.process_has_place = false;
    ask(peer_);
    expect_declined(TupleReason::kLimit);
}

TEST_F(TupleReceiverTest, TheLeastRecentlyUsedOfManyGoes) {
    open(peer_);
    tuples_.got_open(other_, kTag, {kSender + 1, 0, kCredits, 0, kKey, 0});
    tuples_.got_begin(other_, {answer().receiver});
    ask(third_);
    expect_declined(TupleReason::kLimit);
    EXPECT_EQ(sent(Kind::kTupleRevoke), 0u) << "both have been used lately";
    for (std::uint32_t i = 0; i < 4 * kQueues; ++i)
        post(1);
    ask(third_);
    expect_declined(TupleReason::kLimit);
    ASSERT_EQ(sent(Kind::kTupleRevoke), 1u);
    EXPECT_EQ(core_.sent[core_.sent.size() - 2].peer, &peer_);
}

TEST_F(TupleReceiverTest, AQueueThatWasOfferedToAPeerThatLeftIsFree) {
    ask(peer_);
    ask(other_);
    targets_.left.insert(peer_.name.endpoint);
    ask(third_);
    expect_declined(TupleReason::kNone);
    EXPECT_EQ(device_.queues, kQueues);
}

TEST_F(TupleReceiverTest, MessagesByAStrangersQueuePairAreNotBelieved) {
    post();
    open(peer_);
    arrive(0, 1, kQpn + 1);
    EXPECT_EQ(next(), -EPROTO);
    EXPECT_EQ(targets_.refused, std::vector<std::uint16_t>{other_.name.endpoint});
    EXPECT_EQ(errors(), 1u) << "the sender has credit for a receive that is spent";
}

TEST_F(TupleReceiverTest, AQueuePairThatHasANewOwnerIsAskedAgain) {
    post();
    post();
    open(peer_);
    arrive(0);
    targets_.askers[kQpn] = other_.name;
    ++targets_.removals_now;
    arrive(1);
    EXPECT_EQ(next(), 1);
    EXPECT_EQ(next(), -EPROTO);
}

TEST_F(TupleReceiverTest, MessagesCarryTheirNumbers) {
    post();
    open(peer_);
    arrive(1);
    EXPECT_EQ(errors(), 1u);
}

}  // namespace
}  // namespace heddle::protocol::test
