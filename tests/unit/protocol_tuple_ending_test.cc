// SPDX-License-Identifier: BSD-2-Clause
// What ends a tuple's queue at its receiver, and how receives find their places again.
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cerrno>

#include "tests/unit/protocol_tuple_receiver_support.h"

namespace heddle::protocol::test {
namespace {

TEST_F(TupleReceiverTest, DeclinesWhileAWildcardReceiveWaits) {
    post(FI_ADDR_UNSPEC);
    ask(peer_);
    expect_declined(TupleReason::kWildcard);
}

TEST_F(TupleReceiverTest, AWildcardReceiveWaitsUntilTheQueueHasEnded) {
    post();
    post();
    const std::uint64_t id = open(peer_);
    post(FI_ADDR_UNSPEC);
    EXPECT_EQ(revoked(), TupleReason::kWildcard);
    post();  // behind it
    EXPECT_EQ(device_.posted.size(), 2u);
    EXPECT_EQ(peer_.outstanding_replies, 1u);
    arrive(0);
    EXPECT_EQ(next(), 1);
    drain(id, 1);
    ASSERT_EQ(core_.sent.back().kind, Kind::kTupleClosed);
    EXPECT_EQ(core_.sent.back().body<TupleClosedBody>().delivered, 1u);
    EXPECT_EQ(device_.queues, 0u);
    // Those that were sent again find the receives in the order of posting.
    for (int i = 0; i < 2; ++i)
        arrive_otherwise(peer_);
    EXPECT_EQ(next(), 2);
    EXPECT_EQ(next(), 0) << "it could be of the queue's messages yet";
    tuples_.got_end(peer_, {id});
    EXPECT_EQ(next(), 3);
    arrive_otherwise(peer_);
    EXPECT_EQ(next(), 4);
    EXPECT_EQ(tuples_.count(), 0u);
    EXPECT_EQ(peer_.outstanding_replies, 0u);
}

TEST_F(TupleReceiverTest, AWildcardReceiveThatWaitsStopsTheBeginning) {
    ask(peer_);
    const std::uint64_t id = answer().receiver;
    post();
    post(FI_ADDR_UNSPEC);
    tuples_.got_begin(peer_, {id});
    EXPECT_EQ(revoked(), TupleReason::kWildcard);
    EXPECT_TRUE(device_.posted.empty());
    arrive_otherwise(peer_);
    EXPECT_EQ(next(), 1) << "it was posted before the wildcard";
    arrive_otherwise(peer_);
    EXPECT_EQ(next(), 0);
}

class TupleWithoutWildcards : public TupleReceiverTest {
protected:
    TupleWithoutWildcards() : TupleReceiverTest(Rendezvous::kTuple, true) {}
};

TEST_F(TupleWithoutWildcards, LookForNone) {
    open(peer_);
    EXPECT_FALSE(tuples_.hides(0, kTag, 0));
    EXPECT_EQ(sent(Kind::kTupleRevoke), 0u);
}

TEST_F(TupleReceiverTest, AProbeEndsTheQueue) {
    const std::uint64_t id = open(peer_);
    EXPECT_FALSE(tuples_.hides(0, kTag + 1, 0));
    EXPECT_TRUE(tuples_.hides(0, kTag, 0));
    EXPECT_EQ(revoked(), TupleReason::kWildcard);
    EXPECT_TRUE(tuples_.hides(kAnySource, kTag, 0));
    EXPECT_EQ(sent(Kind::kTupleRevoke), 1u);
    drain(id, 0);
    tuples_.got_end(peer_, {id});
    EXPECT_FALSE(tuples_.hides(0, kTag, 0));
}

TEST_F(TupleReceiverTest, ACancelledReceiveEndsWhenTheDeviceLetsGoOfIt) {
    post();
    post();
    const std::uint64_t id = open(peer_);
    EXPECT_FALSE(tuples_.cancel(context(9)));
    EXPECT_TRUE(tuples_.cancel(context(1)));
    EXPECT_FALSE(tuples_.cancel(context(1))) << "it was cancelled before";
    EXPECT_EQ(revoked(), TupleReason::kCancel);
    EXPECT_EQ(next(), 0);
    drain(id, 0);
    EXPECT_EQ(next(), -FI_ECANCELED);
    arrive_otherwise(peer_);
    EXPECT_EQ(next(), 2);
}

TEST_F(TupleReceiverTest, ACancelledReceiveThatTookAMessageHasIt) {
    post();
    const std::uint64_t id = open(peer_);
    EXPECT_TRUE(tuples_.cancel(context(1)));
    arrive(0);
    EXPECT_EQ(next(), 1);
    drain(id, 1);
    EXPECT_EQ(next(), 0);
}

TEST_F(TupleReceiverTest, AReceiveBeyondTheQueueIsCancelledAtOnce) {
    open(peer_);
    for (std::uint32_t i = 0; i <= kTupleDepth; ++i)
        post();
    EXPECT_TRUE(tuples_.cancel(context(kTupleDepth + 1)));
    EXPECT_EQ(next(), -FI_ECANCELED);
    EXPECT_EQ(sent(Kind::kTupleRevoke), 0u);
}

TEST_F(TupleReceiverTest, AReceiveThatTheDeviceDoesNotTakeEndsTheQueue) {
    const std::uint64_t id = open(peer_);
    device_.takes_receives = false;
    post();
    EXPECT_EQ(revoked(), TupleReason::kReceive);
    drain(id, 0);
    arrive_otherwise(peer_);
    EXPECT_EQ(next(), 1);
}

TEST_F(TupleReceiverTest, AReceiveThatFailedKeepsItsPlace) {
    post();
    post();
    const std::uint64_t id = open(peer_);
    device_.arrive(0, 0, kQpn, IBV_WC_LOC_LEN_ERR);
    device_.poll();
    EXPECT_EQ(next(), 0);
    drain(id, 0);
    arrive_otherwise(peer_);
    EXPECT_EQ(next(), 1);
}

TEST_F(TupleReceiverTest, AFlushedQueuePairIsDroppedAndWaitedFor) {
    post();
    const std::uint64_t id = open(peer_);
    targets_.loud.insert(7);
    drain(id, 0, 7);
    EXPECT_EQ(targets_.dropped, std::vector<std::uint32_t>{7});
    EXPECT_EQ(sent(Kind::kTupleClosed), 0u);
    device_.arrive(TupleImmediate::put(kTag, 0, 0), 1, kQpn);  // it had come all the same
    targets_.loud.clear();
    tuples_.progress();
    EXPECT_EQ(next(), 1);
    ASSERT_EQ(core_.sent.back().kind, Kind::kTupleClosed);
    EXPECT_EQ(core_.sent.back().body<TupleClosedBody>().delivered, 1u);
}

TEST_F(TupleReceiverTest, WhatTheSenderKnowsToHaveComeIsWaitedFor) {
    post();
    const std::uint64_t id = open(peer_);
    drain(id, 1);
    EXPECT_EQ(sent(Kind::kTupleClosed), 0u);
    arrive(0);
    tuples_.progress();
    EXPECT_EQ(next(), 1);
    EXPECT_EQ(sent(Kind::kTupleClosed), 1u);
}

TEST_F(TupleReceiverTest, WhatNoSenderSays) {
    post();
    const auto refused = [&](const char* what) {
        EXPECT_EQ(errors(), 1u) << what;
        core_.counts.protocol_errors = 0;
        peer_.failed = other_.failed = 0;
    };
    ask(peer_);
    const std::uint64_t id = answer().receiver;
    tuples_.got_begin(peer_, {id + 1000});
    refused("no tuple begins");
    tuples_.got_begin(other_, {id});
    refused("another's begins");
    tuples_.got_drained(peer_, {id, 0, 0});
    refused("drained before it began");
    tuples_.got_begin(peer_, {id});
    tuples_.got_begin(peer_, {id});
    refused("it begins twice");
    tuples_.got_end(peer_, {id});
    refused("it ends in between");
    tuples_.got_drained(peer_, {id, 2, 0});
    refused("more has come than was posted");
    tuples_.got_drained(other_, {id, 0, 0});
    refused("another's drained");
    drain(id, 0);
    tuples_.got_drained(peer_, {id, 0, 0});
    refused("drained twice");
    tuples_.got_end(peer_, {id});
    EXPECT_EQ(errors(), 0u);
    tuples_.got_end(peer_, {id});
    refused("it ends twice");
}

TEST_F(TupleReceiverTest, CompletionsOfAQueueThatIsGoneAreNobodys) {
    post();
    const std::uint64_t id = open(peer_);
    const std::uint64_t receive = device_.posted.front().receive;
    drain(id, 0);
    ibv_wc wc{};
    tuples_.received(receive, wc);
    EXPECT_EQ(next(), 0);
    EXPECT_EQ(errors(), 0u);
}

TEST_F(TupleReceiverTest, TheReceivesOfAPeerThatHasFailedAreMatchedAgain) {
    post();
    open(peer_);
    post(FI_ADDR_UNSPEC);
    tuples_.fail(peer_);
    EXPECT_EQ(tuples_.count(), 0u);
    EXPECT_EQ(device_.queues, 0u);
    EXPECT_EQ(peer_.outstanding_replies, 0u);
    EXPECT_EQ(receives_.queued(), 2u);
    arrive_otherwise(other_);
    EXPECT_EQ(next(), 2) << "the wildcard waits for nobody any more";
}

TEST_F(TupleReceiverTest, NobodyAnswersAPeerThatHasFailed) {
    peer_.failed = ECONNRESET;
    ask(peer_);
    EXPECT_TRUE(core_.sent.empty());
    EXPECT_EQ(device_.queues, 0u);
}

TEST_F(TupleReceiverTest, QueuesWithReceivesEndBeforeTheEndpointCloses) {
    const std::uint64_t id = open(peer_);
    EXPECT_TRUE(tuples_.close_all()) << "nothing is posted";
    post();
    EXPECT_FALSE(tuples_.close_all());
    EXPECT_EQ(revoked(), TupleReason::kClosing);
    drain(id, 0);
    EXPECT_TRUE(tuples_.close_all());
    core_.closing = true;
    ask(other_);
    expect_declined(TupleReason::kClosing);
}

}  // namespace
}  // namespace heddle::protocol::test
