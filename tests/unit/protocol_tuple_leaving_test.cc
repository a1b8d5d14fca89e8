// SPDX-License-Identifier: BSD-2-Clause
// The sender leaves a tuple's queue: no message is lost, doubled, or sent out of order.
#include <rdma/fi_endpoint.h>

#include <cerrno>

#include "tests/unit/protocol_tuple_sender_support.h"

namespace heddle::protocol::test {
namespace {

TEST_F(TupleSenderTest, LongerThanItsReceiveGoesOtherwise) {
    open();
    give_credit(0);
    send(big_);
    give_credit(1, 10);
    send(third_);
    EXPECT_EQ(core_.posted.size(), 1u);
    EXPECT_EQ(sent(Kind::kTupleDrained), 0u) << "one is under way";
    core_.end_wr(send_buffers_);
    EXPECT_EQ(ended(), Contexts{&big_});
    EXPECT_EQ(drained().delivered, 1u);
    EXPECT_EQ(drained().qpn, 0u);
    EXPECT_TRUE(otherwise_.empty());
    closed(1);
    EXPECT_EQ(otherwise_, Contexts{&third_});
    EXPECT_EQ(core_.sent.back().kind, Kind::kTupleEnd);
    EXPECT_EQ(sender_.count(), 0u);
    EXPECT_EQ(peer_.other_ways, 0u);
    EXPECT_EQ(counts_.ended[static_cast<std::size_t>(TupleReason::kTruncation)], 1u);
}

TEST_F(TupleSenderTest, WhatIsFlushedIsSentAgainInOrder) {
    open();
    for (std::string* const text : {&big_, &third_, &small_})
        send(*text);
    EXPECT_EQ(ended(), Contexts{&small_}) << "copied";
    sender_.got_revoke(peer_,
                       {open_.sender, static_cast<std::uint32_t>(TupleReason::kWildcard), 0});
    EXPECT_EQ(device_.blocking.now, BlockingQueue::State::kBroken);
    for (int i = 0; i < 3; ++i)
        device_.blocking.end_first(IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(drained().delivered, 0u);
    EXPECT_EQ(drained().qpn, FakeBlockingQueue::kQpn);
    EXPECT_NE(device_.blocking.owner, nullptr) << "the receiver has not let go of it yet";
    closed(1);  // the first had come all the same
    EXPECT_EQ(ended(), Contexts{&big_});
    EXPECT_EQ(otherwise_, (Contexts{&third_, &small_}));
    EXPECT_EQ(counts_.again, 2u);
    EXPECT_EQ(device_.blocking.owner, nullptr);
    // The copy is the request's own now.
    std::byte* taken[4];
    for (std::byte*& each : taken)
        ASSERT_NE(each = send_buffers_.take(), nullptr);
}

TEST_F(TupleSenderTest, WhatHasAReceiveIsNotFlushed) {
    open();
    send(big_);
    give_credit(0);  // its receive was posted meanwhile
    sender_.got_revoke(peer_, {open_.sender, static_cast<std::uint32_t>(TupleReason::kCancel), 0});
    EXPECT_EQ(device_.blocking.now, BlockingQueue::State::kReady);
    device_.blocking.end_first();
    EXPECT_EQ(drained().delivered, 1u);
    EXPECT_EQ(drained().qpn, 0u);
    EXPECT_EQ(device_.blocking.owner, nullptr);
}

TEST_F(TupleSenderTest, WhatTheDeviceCannotSendInOneGoesOtherwise) {
    open();
    give_credit(0);
    device_.limits_now.max_message = big_.size() - 1;
    send(big_);
    EXPECT_EQ(drained().delivered, 0u);
    closed(0);
    EXPECT_EQ(otherwise_, Contexts{&big_});
}

TEST_F(TupleSenderTest, OfManyBuffersGoesOtherwise) {
    open();
    give_credit(0);
    send({{big_.data(), 25}, {big_.data(), 25}, {big_.data(), 25}, {big_.data(), 25}});
    EXPECT_TRUE(core_.posted.empty());
    EXPECT_EQ(counts_.ended[static_cast<std::size_t>(TupleReason::kOtherMessage)], 1u);
}

TEST_F(TupleSenderTest, WhatIsDeliveredInAMiddleOfFlushedOnesIsNotSentAgain) {
    open();
    send(big_);
    send(third_);
    sender_.got_revoke(peer_, {open_.sender, static_cast<std::uint32_t>(TupleReason::kCancel), 0});
    device_.blocking.end_first();
    device_.blocking.end_first(IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(ended(), Contexts{&big_});
    EXPECT_EQ(drained().delivered, 1u);
    closed(1);
    EXPECT_EQ(otherwise_, Contexts{&third_});
}

TEST_F(TupleSenderTest, OtherRemoteDataDoesNotFit) {
    open(FI_TAGGED | FI_REMOTE_CQ_DATA);
    EXPECT_EQ(open_.flags, TupleOpenBody::kHasData);
    EXPECT_EQ(open_.data, 9u);
    give_credit(0);
    send(big_, FI_REMOTE_CQ_DATA, 9);
    EXPECT_EQ(core_.posted.size(), 1u);
    core_.end_wr(send_buffers_);
    give_credit(1);
    send(third_, FI_REMOTE_CQ_DATA, 10);
    EXPECT_TRUE(core_.posted.empty());
    EXPECT_EQ(drained().delivered, 1u);
    EXPECT_EQ(counts_.ended[static_cast<std::size_t>(TupleReason::kOtherMessage)], 1u);
}

TEST_F(TupleAutoTest, LateReceivesEndAQueueThatDoesNotPay) {
    note(5);
    open_ = asked();
    answer(open_.sender);
    for (int i = 0; i < 4; ++i)
        send(big_);
    EXPECT_EQ(counts_.ended[static_cast<std::size_t>(TupleReason::kLate)], 0u);
    send(big_);
    EXPECT_EQ(counts_.ended[static_cast<std::size_t>(TupleReason::kLate)], 1u);
}

TEST_F(TupleAutoTest, ShortMessagesEndAQueueThatDoesNotPay) {
    note(5);
    open_ = asked();
    answer(open_.sender);
    for (std::uint32_t i = 0; i < kTupleDepth; ++i) {
        give_credit(i);
        send(small_);
        core_.end_wr(send_buffers_);
        EXPECT_EQ(sent(Kind::kTupleDrained), i + 1 == kTupleDepth ? 1u : 0u);
    }
    EXPECT_EQ(counts_.ended[static_cast<std::size_t>(TupleReason::kSmall)], 1u);
}

TEST_F(TupleSenderTest, ADeadPeersMessagesFail) {
    open();
    send(big_);
    send(third_);
    core_.fail_peer(peer_, ECONNRESET);
    sender_.fail(peer_, ECONNRESET);
    EXPECT_TRUE(ended().empty()) << "the device has them";
    EXPECT_EQ(device_.blocking.now, BlockingQueue::State::kBroken);
    device_.blocking.end_first();
    device_.blocking.end_first(IBV_WC_WR_FLUSH_ERR);
    ASSERT_EQ(core_.transmitted.size(), 2u);
    EXPECT_EQ(core_.transmitted.front().error, 0);
    core_.transmitted.pop();
    EXPECT_EQ(core_.transmitted.front().error, ECONNRESET);
    EXPECT_EQ(core_.transmitted.front().context, &third_);
    EXPECT_EQ(sender_.count(), 0u);
    EXPECT_EQ(peer_.outstanding_replies, 0u);
    EXPECT_EQ(sent(Kind::kTupleDrained), 0u);
}

TEST_F(TupleSenderTest, OneThatWasAskedForIsForgottenWithItsPeer) {
    note(2);
    core_.fail_peer(peer_, ECONNRESET);
    sender_.fail(peer_, ECONNRESET);
    EXPECT_EQ(sender_.count(), 0u);
    EXPECT_EQ(peer_.outstanding_replies, 0u);
}

TEST_F(TupleSenderTest, WhatNoReceiverSays) {
    open();
    send(big_);
    const auto refused = [&](const char* what) {
        EXPECT_EQ(errors(), 1u) << what;
        core_.counts.protocol_errors = 0;
        peer_.failed = other_.failed = 0;
    };
    sender_.got_answer(peer_, {open_.sender, kReceiver, 0, kSrqn, 0});
    refused("a second answer");
    sender_.got_answer(peer_, {open_.sender + 1000, kReceiver, 0, kSrqn, 0});
    refused("an answer about no tuple");
    sender_.got_closed(peer_, {open_.sender, 0, 0});
    refused("closed, but nobody asked");
    sender_.got_revoke(other_, {open_.sender, 0, 0});
    EXPECT_EQ(counts_.ended[0] + counts_.ended[1], 0u) << "another's tuple was revoked";
    sender_.got_revoke(peer_, {open_.sender, 1000, 0});
    EXPECT_EQ(counts_.ended[static_cast<std::size_t>(TupleReason::kOther)], 1u);
    sender_.got_revoke(peer_, {open_.sender, 1000, 0});
    EXPECT_EQ(counts_.ended[static_cast<std::size_t>(TupleReason::kOther)], 1u) << "twice";
    device_.blocking.end_first(IBV_WC_WR_FLUSH_ERR);
    sender_.got_closed(other_, {open_.sender, 0, 0});
    refused("closed by another");
    sender_.got_closed(peer_, {open_.sender, 2, 0});
    refused("more than was sent");
    sender_.got_closed(peer_, {open_.sender, ~0u, 0});
    refused("less than nothing");
    closed(0);
    EXPECT_EQ(errors(), 0u);
    EXPECT_EQ(otherwise_, Contexts{&big_});
}

TEST_F(TupleSenderTest, AllIsSentOtherwiseBeforeTheEndpointCloses) {
    open();
    EXPECT_TRUE(sender_.close_all()) << "nothing is under way";
    device_.has_blocking = false;
    send(big_);
    EXPECT_FALSE(sender_.close_all());
    EXPECT_EQ(drained().delivered, 0u);
    closed(0);
    EXPECT_EQ(otherwise_, Contexts{&big_});
    EXPECT_TRUE(sender_.close_all());
}

}  // namespace
}  // namespace heddle::protocol::test
