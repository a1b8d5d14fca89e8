// SPDX-License-Identifier: BSD-2-Clause
// A QP in ERR flushes (IBTA 10.3.1.7): every request on both queues completes, in order, with the
// flush status, signalled or not; what is posted later does too; RESET forgets all and the QP can
// be used again. A QP with an SRQ leaves the SRQ's requests where they are and raises
// LAST_WQE_REACHED.

#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

using std::chrono::milliseconds;

class Flush : public testing::TestWithParam<Transport> {
protected:
    static Endpoint::Options options() {
        Endpoint::Options options;
        options.transport = GetParam();
        return options;
    }
    static void expect_flushed(Endpoint& e, ibv_cq* cq, std::uint64_t first, std::uint64_t count) {
        for (std::uint64_t id = first; id < first + count; ++id) {
            const ibv_wc wc = e.wait(cq);
            EXPECT_TRUE(has_status(wc, IBV_WC_WR_FLUSH_ERR, kVendorFlush));
            EXPECT_EQ(wc.wr_id, id) << "in order";
            EXPECT_EQ(wc.qp_num, e.qp->qp_num);
        }
        EXPECT_FALSE(poll_for(cq, milliseconds(10))) << "a completion too many";
    }
    static void to_reset(ibv_qp* qp) {
        ibv_qp_attr attributes = {};
        attributes.qp_state = IBV_QPS_RESET;
        ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
    }
};

TEST_P(Flush, ReceivesInOrder) {
    if (GetParam() == Transport::kXrc) GTEST_SKIP() << "an XRC QP has no receive queue";
    Pair pair(options());
    for (std::uint64_t id = 0; id < 50; ++id)
        ASSERT_EQ(pair.b.post_receive(id, {pair.b.memory->sge(0, 100)}), 0);
    for (int i = 0; i < 3; ++i) {
        Work work;
        work.sges = {pair.a.memory->sge(0, 10)};
        ASSERT_TRUE(pair.a.run(work));
        EXPECT_TRUE(succeeded(pair.b.wait_receive()));
    }
    pair.b.to_error();
    expect_flushed(pair.b, pair.b.receive_cq.get(), 3, 47);
    for (std::uint64_t id = 60; id < 65; ++id)
        ASSERT_EQ(pair.b.post_receive(id, {pair.b.memory->sge(0, 100)}), 0);
    expect_flushed(pair.b, pair.b.receive_cq.get(), 60, 5);
}

// Sends that wait in RNR, every second one unsignalled.
TEST_P(Flush, SendsInOrderSignalledOrNot) {
    if (GetParam() == Transport::kUc || GetParam() == Transport::kUd)
        GTEST_SKIP() << "nothing waits on an unreliable QP";
    Endpoint::Options slow = options();
    slow.min_rnr_timer = 30;  // 327 ms: the sends are still there when the QP is moved
    Pair pair(options(), slow);
    for (std::uint64_t id = 0; id < 20; ++id) {
        Work work;
        work.id = id;
        work.flags = id % 2 != 0 ? IBV_SEND_SIGNALED : 0;
        work.sges = {pair.a.memory->sge(0, 10)};
        ASSERT_EQ(pair.a.post(work), 0);
    }
    EXPECT_FALSE(poll_for(pair.a.send_cq.get(), milliseconds(20)));
    pair.a.to_error();
    expect_flushed(pair.a, pair.a.send_cq.get(), 0, 20);
}

TEST_P(Flush, SendsPostedInError) {
    Pair pair(options());
    pair.a.to_error();
    for (std::uint64_t id = 0; id < 30; ++id) {
        Work work;
        work.id = id;
        work.flags = id % 3 == 0 ? IBV_SEND_SIGNALED : 0;
        work.sges = {pair.a.memory->sge(0, 10)};
        ASSERT_EQ(pair.a.post(work), 0) << "posting in ERR is allowed";
    }
    expect_flushed(pair.a, pair.a.send_cq.get(), 0, 30);
}

// A thread that sleeps in ibv_get_cq_event is woken by a flush.
TEST_P(Flush, WakesASleeper) {
    if (GetParam() == Transport::kXrc) GTEST_SKIP() << "an XRC QP has no receive queue";
    Endpoint::Options events = options();
    events.events = true;
    Pair pair(events);
    ASSERT_EQ(pair.a.post_receive(7, {pair.a.memory->sge(0, 100)}), 0);
    ASSERT_EQ(ibv_req_notify_cq(pair.a.receive_cq.get(), 1), 0);
    std::thread mover([&] {
        std::this_thread::sleep_for(milliseconds(50));
        pair.a.to_error();
    });
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    EXPECT_EQ(ibv_get_cq_event(pair.a.channel.get(), &cq, &user), 0)
        << "errors are solicited (IBTA 11.4.2.2)";
    ibv_ack_cq_events(cq, 1);
    mover.join();
    EXPECT_TRUE(has_status(pair.a.wait_receive(), IBV_WC_WR_FLUSH_ERR, kVendorFlush));
}

TEST_P(Flush, ResetForgetsAndTheQueuePairWorksAgain) {
    Pair pair(options());
    for (int round = 0; round < 5; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        // Leave the rings at odd places, with work on them.
        for (std::uint64_t id = 0; id < 7; ++id) {
            ASSERT_EQ(pair.b.post_receive(100 + id, {pair.b.memory->sge(0, 300)}), 0);
        }
        for (int i = 0; i < 3; ++i) {
            Work work;
            work.sges = {pair.a.memory->sge(0, 10)};
            ASSERT_TRUE(pair.a.run(work));
            ASSERT_TRUE(succeeded(pair.b.wait_receive()));
        }
        if (round % 2 != 0) pair.b.to_error();
        for (Endpoint* e : {&pair.a, &pair.b}) {
            to_reset(e->qp.get());
            if (e->target) to_reset(e->target.get());
        }
        const Address of_a = pair.a.address();
        pair.a.connect(pair.b.address());
        pair.b.connect(of_a);
        // Reset removed the completions of the QPs too: libmlx5 cleans the CQs.
        while (pair.b.srq && poll_for(pair.b.receive_cq.get(), milliseconds(1))) {
        }
        EXPECT_FALSE(poll_for(pair.b.receive_cq.get(), milliseconds(5)));
        EXPECT_FALSE(poll_for(pair.a.send_cq.get(), milliseconds(5)));
        pair.a.memory->fill(0, 200, static_cast<std::uint32_t>(round));
        if (!pair.b.srq) {
            ASSERT_EQ(pair.b.post_receive(5, {pair.b.memory->sge(4096, 300)}), 0);
        }
        Work work;
        work.sges = {pair.a.memory->sge(0, 200)};
        ASSERT_TRUE(pair.a.run(work));
        const ibv_wc wc = pair.b.wait_receive();
        ASSERT_TRUE(succeeded(wc));
        if (!pair.b.srq) {
            EXPECT_EQ(wc.wr_id, 5u) << "receives of before the reset are forgotten";
            EXPECT_TRUE(
                pair.b.memory->holds(4096 + pair.b.grh(), 200, static_cast<std::uint32_t>(round)));
        }
    }
}

TEST_P(Flush, QueuePairWithSrqLeavesItAloneAndSaysLastWqeReached) {
    if (GetParam() == Transport::kUc) GTEST_SKIP() << "UC QPs take no SRQ on this device";
    Endpoint::Options with_srq = options();
    with_srq.srq = true;
    Endpoint owner(with_srq);
    for (std::uint64_t id = 0; id < 4; ++id)
        ASSERT_EQ(owner.post_receive(id, {owner.memory->sge(id * 1024, 1024)}), 0);
    Endpoint sender(with_srq, &owner);
    sender.connect(owner.address());
    owner.connect(sender.address());
    Work work;
    work.sges = {sender.memory->sge(0, 10)};
    ASSERT_TRUE(sender.run(work));
    EXPECT_TRUE(succeeded(owner.wait_receive()));
    owner.to_error();
    EXPECT_TRUE(got_qp_event(owner.context.get(), IBV_EVENT_QP_LAST_WQE_REACHED, owner.receiver()));
    EXPECT_FALSE(poll_for(owner.receive_cq.get(), milliseconds(20)))
        << "the requests of an SRQ belong to all its QPs";
}

INSTANTIATE_TEST_SUITE_P(Each, Flush,
                         testing::Values(Transport::kRc, Transport::kUc, Transport::kUd,
                                         Transport::kXrc),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace softhca::test
