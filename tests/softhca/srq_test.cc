// SPDX-License-Identifier: BSD-2-Clause
// Shared receive queues (IBTA 10.2.9): the limit event, resizing refusals, receives completed in
// another order than posted, several QPs and processes that feed from one, waiting senders that are
// served when it is replenished, and what modify and query say.

#include <dlfcn.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "softhca/engine/counters.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

using std::chrono::milliseconds;

int set_limit(ibv_srq* srq, std::uint32_t limit) {
    ibv_srq_attr attributes = {};
    attributes.srq_limit = limit;
    return ibv_modify_srq(srq, &attributes, IBV_SRQ_LIMIT);
}

std::uint32_t limit_of(ibv_srq* srq) {
    ibv_srq_attr attributes = {};
    EXPECT_EQ(ibv_query_srq(srq, &attributes), 0);
    return attributes.srq_limit;
}

class SharedReceiveQueue : public testing::TestWithParam<Transport> {
protected:
    static Endpoint::Options options() {
        Endpoint::Options options;
        options.transport = GetParam();
        options.srq = true;
        options.receive_depth = 32;
        options.receive_sges = 2;
        return options;
    }
    static Work send_of(const Endpoint& e, std::size_t length = 16) {
        Work work;
        work.sges = {e.memory->sge(0, length)};
        return work;
    }
    static void post(Endpoint& e, std::uint64_t first, std::uint64_t count) {
        for (std::uint64_t id = first; id < first + count; ++id)
            ASSERT_EQ(e.post_receive(id, {e.memory->sge(id * 512, 512)}), 0);
    }
};

// The event comes when fewer than `limit` receives are left, once; then the limit is 0 (IBTA
// 11.6.3.4) until it is armed again.
TEST_P(SharedReceiveQueue, LimitEventComesOnceAtTheRightCount) {
    Pair pair(options());
    ibv_context* context = pair.b.context.get();
    post(pair.b, 0, 10);
    ASSERT_EQ(set_limit(pair.b.srq.get(), 6), 0);
    EXPECT_EQ(limit_of(pair.b.srq.get()), 6u);
    for (int i = 0; i < 4; ++i) {
        ASSERT_TRUE(pair.a.run(send_of(pair.a)));
        ASSERT_TRUE(succeeded(pair.b.wait_receive()));
    }
    EXPECT_FALSE(async_event(context, milliseconds(50))) << "six receives are still there";
    ASSERT_TRUE(pair.a.run(send_of(pair.a)));
    ASSERT_TRUE(succeeded(pair.b.wait_receive()));
    const auto event = async_event(context, kDeadline);
    ASSERT_TRUE(event) << "five receives are left of a limit of six";
    EXPECT_EQ(event->event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(event->element.srq, pair.b.srq.get());
    EXPECT_EQ(limit_of(pair.b.srq.get()), 0u);
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(pair.a.run(send_of(pair.a)));
        ASSERT_TRUE(succeeded(pair.b.wait_receive()));
    }
    EXPECT_FALSE(async_event(context, milliseconds(50))) << "a second event without arming";
    post(pair.b, 10, 10);
    ASSERT_EQ(set_limit(pair.b.srq.get(), 12), 0);
    ASSERT_TRUE(pair.a.run(send_of(pair.a)));
    EXPECT_TRUE(async_event(context, kDeadline)) << "armed again";
}

// Arming a limit that is already undercut gives the event at once.
TEST_P(SharedReceiveQueue, LimitAboveWhatIsThereFiresAtOnce) {
    Pair pair(options());
    post(pair.b, 0, 3);
    ASSERT_EQ(set_limit(pair.b.srq.get(), 20), 0);
    const auto event = async_event(pair.b.context.get(), kDeadline);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
}

TEST_P(SharedReceiveQueue, RefusesBadLimitsAndResizing) {
    const Endpoint e(options());
    ibv_srq_attr attributes = {};
    ASSERT_EQ(ibv_query_srq(e.srq.get(), &attributes), 0);
    EXPECT_GE(attributes.max_wr, 32u);
    EXPECT_GE(attributes.max_sge, 2u);
    EXPECT_EQ(attributes.srq_limit, 0u);
    EXPECT_EQ(set_limit(e.srq.get(), attributes.max_wr + 1), EINVAL);
    // mlx5_ib does not resize an SRQ.
    attributes.max_wr = 64;
    EXPECT_EQ(ibv_modify_srq(e.srq.get(), &attributes, IBV_SRQ_MAX_WR), EINVAL);
}

// libmlx5 keeps free entries in a list; completing them in another order than they were posted
// scrambles it. Each message must land in the buffer that its completion names.
TEST_P(SharedReceiveQueue, ReplenishedOutOfOrder) {
    constexpr std::uint64_t kHold = 8;
    Pair pair(options());
    post(pair.b, 0, 32);
    std::vector<std::uint64_t> held;
    for (std::uint32_t number = 0; number < 2000; ++number) {
        pair.a.memory->fill(0, 100, number);
        ASSERT_TRUE(pair.a.run(send_of(pair.a, 100)));
        const ibv_wc wc = pair.b.wait_receive();
        ASSERT_TRUE(succeeded(wc));
        ASSERT_LT(wc.wr_id, 32u);
        ASSERT_TRUE(pair.b.memory->holds(wc.wr_id * 512 + pair.b.grh(), 100, number))
            << "message " << number << " in buffer " << wc.wr_id;
        std::memset(pair.b.memory->data() + wc.wr_id * 512, 0xee, 512);
        held.push_back(wc.wr_id);
        if (held.size() < kHold) continue;
        const std::size_t pick = (number * 5) % held.size();
        post(pair.b, held[pick], 1);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(pick));
    }
}

TEST_P(SharedReceiveQueue, OverflowIsRefusedAtThePost) {
    Endpoint e(options());
    std::uint32_t posted = 0;
    while (posted <= 4096 && e.post_receive(posted, {e.memory->sge(0, 64)}) == 0)
        ++posted;
    EXPECT_GE(posted, e.options.receive_depth);
    EXPECT_LT(posted, 4096u);
    EXPECT_EQ(e.post_receive(0, {e.memory->sge(0, 64)}), ENOMEM);
}

// A sender that waits for a receive is notified of the next post. It does not use a processor to
// retry every ten microseconds, as the RNR timer says here.
TEST_P(SharedReceiveQueue, WaitingSendersAreNotified) {
    if (GetParam() == Transport::kUd) GTEST_SKIP() << "datagrams without a receive are dropped";
    using Query = int (*)(std::uint32_t, softhca_counters*);
    const auto query = reinterpret_cast<Query>(dlsym(RTLD_DEFAULT, "softhca_query_qp"));
    ASSERT_NE(query, nullptr);
    Child child([](Channel& channel) {
        Endpoint owner(options());
        connect_over(channel, owner);
        post(owner, 0, 1);  // now it is known that this process's posts are seen
        channel.meet();
        ASSERT_TRUE(succeeded(owner.wait_receive()));
        for (int round = 0; round < 20; ++round) {
            channel.meet();
            post(owner, 0, 1);
            ASSERT_TRUE(succeeded(owner.wait_receive()));
        }
        channel.meet();
    });
    Endpoint sender(options());
    connect_over(child.channel(), sender);
    child.channel().meet();
    ASSERT_TRUE(sender.run(send_of(sender)));
    softhca_counters before{}, after{};
    for (int round = 0; round < 20; ++round) {
        ASSERT_EQ(query(sender.qp->qp_num, &before), 0);
        const auto begin = std::chrono::steady_clock::now();
        ASSERT_EQ(sender.post(send_of(sender)), 0);
        // The engine's thread may not have run yet on a busy machine.
        do {
            std::this_thread::sleep_for(milliseconds(20));
            ASSERT_EQ(query(sender.qp->qp_num, &after), 0);
        } while (after.rnr_naks == before.rnr_naks &&
                 std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
        const std::chrono::duration<double, std::milli> waited =
            std::chrono::steady_clock::now() - begin;
        EXPECT_GE(after.rnr_naks - before.rnr_naks, 1u);
        EXPECT_LE(static_cast<double>(after.rnr_naks - before.rnr_naks), waited.count() + 5)
            << "NAKs in so many milliseconds";
        child.channel().meet();
        ASSERT_TRUE(succeeded(sender.wait_send()));
    }
    child.channel().meet();
    child.expect_success();
}

// Two processes send to one SRQ of a third; its receives are few, so that senders wait (RC, XRC) in
// turn. Every message arrives once, and in the order of its sender.
TEST_P(SharedReceiveQueue, FedByTwoProcesses) {
    if (GetParam() == Transport::kUd) GTEST_SKIP() << "datagrams without a receive are dropped";
    constexpr std::uint32_t kMessages = 4000;
    const auto sender = [&](std::uint32_t who) {
        return [&, who](Channel& channel) {
            Endpoint e(options());
            connect_over(channel, e);
            for (std::uint32_t number = 0; number < kMessages; ++number) {
                const std::uint32_t words[2] = {who, number};
                std::memcpy(e.memory->data(), words, sizeof words);
                ASSERT_TRUE(e.run(send_of(e, 200)));
            }
        };
    };
    Child first(sender(0));
    Child second(sender(1));
    Endpoint owner(options());
    Endpoint::Options same = options();
    Endpoint other(same, &owner);
    // Both QPs receive from the SRQ and CQ of `owner`.
    if (GetParam() == Transport::kXrc) {
        other.target.reset();
        ibv_qp_init_attr_ex receiving = {};
        receiving.qp_type = IBV_QPT_XRC_RECV;
        receiving.comp_mask = IBV_QP_INIT_ATTR_XRCD;
        receiving.xrcd = owner.xrcd.get();
        other.target.reset(check(ibv_create_qp_ex(owner.context.get(), &receiving), "XRC target"));
    } else {
        other.qp.reset();
        ibv_qp_init_attr attributes = {};
        attributes.send_cq = owner.send_cq.get();
        attributes.recv_cq = owner.receive_cq.get();
        attributes.srq = owner.srq.get();
        attributes.qp_type = IBV_QPT_RC;
        attributes.cap.max_send_wr = 4;
        attributes.cap.max_send_sge = 1;
        other.qp.reset(check(ibv_create_qp(owner.pd.get(), &attributes), "ibv_create_qp"));
    }
    connect_over(first.channel(), owner);
    Address of_other = other.address();
    if (GetParam() == Transport::kXrc) of_other.srqn = owner.address().srqn;
    second.channel().send(of_other);
    other.connect(second.channel().receive<Address>());
    second.channel().meet();

    std::uint32_t next[2] = {0, 0};
    post(owner, 0, 4);
    for (std::uint32_t count = 0; count < 2 * kMessages; ++count) {
        const ibv_wc wc = owner.wait_receive();
        ASSERT_TRUE(succeeded(wc));
        std::uint32_t words[2];
        std::memcpy(words, owner.memory->data() + wc.wr_id * 512, sizeof words);
        ASSERT_LT(words[0], 2u);
        ASSERT_EQ(words[1], next[words[0]]++) << "from sender " << words[0];
        EXPECT_EQ(wc.qp_num, (words[0] == 0 ? owner : other).receiver()->qp_num);
        std::memset(owner.memory->data() + wc.wr_id * 512, 0xee, 512);
        post(owner, wc.wr_id, 1);
    }
    first.expect_success();
    second.expect_success();
}

INSTANTIATE_TEST_SUITE_P(Each, SharedReceiveQueue,
                         testing::Values(Transport::kRc, Transport::kUd, Transport::kXrc),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(SharedReceiveQueueUse, CannotBeDestroyedWhileAQueuePairUsesIt) {
    Endpoint::Options options;
    options.srq = true;
    Endpoint e(options);
    ibv_srq* srq = e.srq.get();
    const int error = ibv_destroy_srq(srq);
    if (error == 0) static_cast<void>(e.srq.release());
    EXPECT_EQ(error, EBUSY);
}

TEST(SharedReceiveQueueUse, ReceivesCannotBePostedToTheQueuePair) {
    Endpoint::Options options;
    options.srq = true;
    Pair pair(options);
    ibv_sge sge = pair.b.memory->sge(0, 64);
    ibv_recv_wr wr = {};
    ibv_recv_wr* bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    EXPECT_NE(ibv_post_recv(pair.b.qp.get(), &wr, &bad), 0);
}

}  // namespace
}  // namespace softhca::test
