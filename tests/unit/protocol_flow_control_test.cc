// SPDX-License-Identifier: BSD-2-Clause
// Credit for eager payload, on a core without a device.
#include "protocol/eager/flow_control.h"

#include <gtest/gtest.h>

#include "tests/unit/protocol_fake_core.h"

namespace heddle::protocol {
namespace {

Options small_limits() {
    Options options;
    options.eager_bytes = 1000;
    options.unexpected_bytes = 4000;
    return options;
}

TEST(FlowControl, ShortMessagesNeedNoCredit) {
    test::FakeCore core(small_limits());
    FlowControl flow(core);
    Peer& peer = core.add_peer();
    for (int i = 0; i < 1000; ++i)
        flow.count_sent(peer, kFreeBytes);
    EXPECT_TRUE(flow.may_send(peer, 1000));
    for (int i = 0; i < 1000; ++i)
        flow.count_taken(peer, kFreeBytes);
    EXPECT_TRUE(core.sent.empty());
}

TEST(FlowControl, EndsWithTheLimitOfOnePeer) {
    test::FakeCore core(small_limits());
    FlowControl flow(core);
    Peer &peer = core.add_peer(), &other = core.add_peer();
    EXPECT_FALSE(flow.may_send(peer, 1001)) << "not eager";
    for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(flow.may_send(peer, 1000)) << i;
        flow.count_sent(peer, 1000);
    }
    EXPECT_FALSE(flow.may_send(peer, kFreeBytes + 1));
    EXPECT_TRUE(flow.may_send(peer, kFreeBytes));
    EXPECT_TRUE(flow.may_send(other, 1000));
    flow.on_message(peer, CreditBody{1500, 0});
    EXPECT_TRUE(flow.may_send(peer, 1000));
    flow.count_sent(peer, 1000);
    EXPECT_TRUE(flow.may_send(peer, 500));
    EXPECT_FALSE(flow.may_send(peer, 501));
}

TEST(FlowControl, SoManyMessagesMayBeUnderWay) {
    test::FakeCore core(small_limits());
    FlowControl flow(core);
    Peer &peer = core.add_peer(), &other = core.add_peer();
    for (std::uint32_t i = 0; i < kWindow; ++i) {
        EXPECT_TRUE(flow.has_window_for(peer, kFreeBytes + 1)) << i;
        flow.count_posted(peer, kFreeBytes + 1);
        flow.count_posted(peer, kFreeBytes);
    }
    EXPECT_EQ(peer.outstanding_replies, 0u);
    EXPECT_FALSE(flow.has_window_for(peer, kFreeBytes + 1));
    EXPECT_FALSE(flow.has_window(peer));
    EXPECT_TRUE(flow.has_window_for(peer, kFreeBytes)) << "short ones need none";
    EXPECT_TRUE(flow.has_window(other));
    EXPECT_EQ(peer.outstanding_replies, 1u) << "a peer that says nothing is looked after";
    flow.on_message(peer, CreditBody{0, 2});
    EXPECT_EQ(peer.outstanding_replies, 0u);
    flow.count_fragment_posted(peer, 0);
    EXPECT_TRUE(flow.has_window(peer));
    flow.count_fragment_posted(peer, 0);
    EXPECT_FALSE(flow.has_window(peer));
    flow.on_peer_failed(peer);
    EXPECT_EQ(peer.outstanding_replies, 0u) << "nothing more is owed";
}

TEST(FlowControl, TellsOfMessagesThatHaveArrived) {
    test::FakeCore core(small_limits());
    FlowControl flow(core);
    Peer &peer = core.add_peer(), &other = core.add_peer();
    flow.count_arrived(other, kFreeBytes + 1);
    for (std::uint32_t i = 1; i < kArrivedAtOnce; ++i) {
        flow.count_arrived(peer, kFreeBytes + 1);
        flow.count_arrived(peer, kFreeBytes);
    }
    EXPECT_TRUE(core.sent.empty());
    flow.count_taken(peer, 300);
    flow.count_fragment_arrived(peer, 0);
    ASSERT_EQ(core.sent.size(), 1u);
    EXPECT_EQ(core.sent[0].peer, &peer);
    EXPECT_EQ(core.sent[0].kind, Kind::kCredit);
    EXPECT_EQ(core.sent[0].body<CreditBody>().weight, kArrivedAtOnce);
    EXPECT_EQ(core.sent[0].body<CreditBody>().bytes, 300u) << "what is due goes with it";
    flow.count_fragment_arrived(peer, 0);
    flow.count_taken(peer, 1000);
    ASSERT_EQ(core.sent.size(), 2u);
    EXPECT_EQ(core.sent[1].body<CreditBody>().weight, 1u);
}

TEST(FlowControl, LongMessagesWeighMore) {
    Options options;
    options.eager_bytes = 8192;
    test::FakeCore core(options);
    FlowControl flow(core);
    Peer& peer = core.add_peer();
    for (std::uint32_t weight = 0; weight < kWindow; weight += 5) {
        EXPECT_TRUE(flow.is_open_for(peer, 8192) || weight == 0) << "the first makes room";
        EXPECT_TRUE(flow.has_window(peer)) << weight;
        flow.count_posted(peer, 8192);
    }
    EXPECT_FALSE(flow.has_window(peer));
    EXPECT_FALSE(flow.is_open_for(peer, 8192));
    for (std::uint32_t weight = 0; weight < kArrivedAtOnce; weight += 5) {
        EXPECT_TRUE(core.sent.empty());
        flow.count_arrived(peer, 8192);
    }
    ASSERT_EQ(core.sent.size(), 1u);
    EXPECT_GE(core.sent[0].body<CreditBody>().weight, kArrivedAtOnce);
}

// A peer may say what it likes.
TEST(FlowControl, MoreCreditThanWasTakenIsNotSaved) {
    test::FakeCore core(small_limits());
    FlowControl flow(core);
    Peer& peer = core.add_peer();
    flow.count_sent(peer, 1000);
    flow.on_message(peer, CreditBody{~std::uint64_t{0}, ~std::uint64_t{0}});
    for (std::uint32_t i = 0; i < kWindow; ++i)
        flow.count_fragment_posted(peer, 0);
    EXPECT_FALSE(flow.has_window(peer));
    for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(flow.may_send(peer, 1000)) << i;
        flow.count_sent(peer, 1000);
    }
    EXPECT_FALSE(flow.may_send(peer, 1000));
}

TEST(FlowControl, GivesCreditByTheQuarter) {
    test::FakeCore core(small_limits());
    FlowControl flow(core);
    Peer &peer = core.add_peer(), &other = core.add_peer();
    flow.count_taken(peer, 600);
    flow.count_taken(other, 600);
    EXPECT_TRUE(core.sent.empty());
    flow.count_taken(peer, 400);
    ASSERT_EQ(core.sent.size(), 1u);
    EXPECT_EQ(core.sent[0].peer, &peer);
    EXPECT_EQ(core.sent[0].kind, Kind::kCredit);
    EXPECT_EQ(core.sent[0].body<CreditBody>().bytes, 1000u);
    flow.count_taken(peer, 999);
    EXPECT_EQ(core.sent.size(), 1u) << "what it was told of is due no more";
    flow.count_taken(other, 5000);
    ASSERT_EQ(core.sent.size(), 2u);
    EXPECT_EQ(core.sent[1].body<CreditBody>().bytes, 5600u);
}

}  // namespace
}  // namespace heddle::protocol
