// SPDX-License-Identifier: BSD-2-Clause
// Results of reads and atomics in the completion, and a CQ that is armed and wakes a sleeping
// thread, by the direct path.
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <memory>
#include <random>

#include "tests/endpoint/direct_loop.h"

namespace heddle::post::test {
namespace {

using EventChannel = std::unique_ptr<ibv_comp_channel, verbs::Destroy<ibv_destroy_comp_channel>>;

// If a QP signals all requests, small results arrive in the completion. That is mlx5's scatter to
// CQE; the IBTA specification does not have it.
TEST(DirectAnswers, ComeWhereTheyWereAskedFor) {
    Memory memory;
    Loop<> loop(memory, {.signal_all = true});
    std::mt19937 random(9);
    for (std::uint32_t round = 0; round < 300; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        const std::uint32_t length = below(random, 80);
        fill(memory.bytes.data() + kOut, 512, round);
        std::memset(memory.bytes.data() + kIn, 0, kSlot);
        const auto into = cut(memory, kIn, length, random);
        WorkRequest work;
        work.opcode = Opcode::kRead;
        work.sges = into;
        work.remote_address = address_of(memory.bytes.data());
        work.remote_key = memory.mr->rkey;
        ASSERT_EQ(loop.send.post_now(work), Posted::kOk);
        ASSERT_EQ(loop.wait().status, IBV_WC_SUCCESS);
        ASSERT_EQ(std::memcmp(memory.bytes.data() + kIn, memory.bytes.data() + kOut, length), 0);
        std::uint64_t before, got;
        std::memcpy(&before, memory.bytes.data() + kOut, 8);
        const ibv_sge answer = memory.piece(kIn + 128, 8);
        work.opcode = Opcode::kFetchAdd;
        work.sges = {&answer, 1};
        work.compare_or_add = 5;
        ASSERT_EQ(loop.send.post_now(work), Posted::kOk);
        ASSERT_EQ(loop.wait().status, IBV_WC_SUCCESS);
        std::memcpy(&got, memory.bytes.data() + kIn + 128, 8);
        ASSERT_EQ(got, before);
    }
}

// A request that sends nothing says that those before it are done, also to a peer that is gone
// since.
TEST(DirectNop, NeedsNoPeer) {
    Memory memory;
    Loop<> loop(memory, {});
    verbs::QueuePair peer = loop.make(memory, {});
    for (ibv_qp* const qp : {loop.qp.get(), peer.get()}) {  // both are connected to themselves
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_RESET;
        ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
    }
    verbs::connect_locally(loop.qp.get(), peer.get());
    verbs::connect_locally(peer.get(), loop.qp.get());
    const ibv_sge piece = memory.piece(kOut, 8);
    WorkRequest write;
    write.opcode = Opcode::kWrite;
    write.flags = kSignaled;
    write.sges = {&piece, 1};
    write.remote_address = address_of(memory.bytes.data()) + kIn;
    write.remote_key = memory.mr->rkey;
    ASSERT_EQ(loop.send.post_now(write), Posted::kOk);
    ASSERT_EQ(loop.wait().status, IBV_WC_SUCCESS);
    peer.reset();
    WorkRequest nop;
    nop.opcode = Opcode::kNop;
    nop.flags = kSignaled;
    nop.id = 9;
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(loop.send.post_now(nop), Posted::kOk);
        const Completion done = loop.wait();
        ASSERT_EQ(done.status, IBV_WC_SUCCESS);
        EXPECT_EQ(done.id, 9u);
    }
    // As a packet it is not acknowledged any more.
    write.sges = {};
    ASSERT_EQ(loop.send.post_now(write), Posted::kOk);
    EXPECT_EQ(loop.wait().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(DirectArm, WakesTheSleeper) {
    Memory memory;
    const EventChannel channel(ibv_create_comp_channel(memory.context.get()));
    OwnReceives loop(memory, channel.get());
    const auto event = [&](int milliseconds) {
        pollfd fd{channel->fd, POLLIN, 0};
        return ::poll(&fd, 1, milliseconds) == 1;
    };
    const ibv_sge into = memory.piece(kIn, 64), from = memory.piece(kOut, 8);
    const auto message = [&](std::uint8_t flags) {
        ASSERT_EQ(loop.receive.post_now({&into, 1}, 1), Posted::kOk);
        WorkRequest work;
        work.sges = {&from, 1};
        work.flags = flags;
        ASSERT_EQ(loop.send.post_now(work), Posted::kOk);
    };
    unsigned events = 0;
    for (int round = 0; round < 20; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        message(0);
        loop.wait();
        EXPECT_FALSE(event(0)) << "it was not armed";
        loop.completions.arm(round % 2 != 0);
        if (round % 2 != 0) {
            message(0);
            loop.wait();
            EXPECT_FALSE(event(20)) << "an entry that is not solicited";
        }
        message(kSolicited);
        ASSERT_TRUE(event(5000));
        ibv_cq* which;
        void* context;
        ASSERT_EQ(ibv_get_cq_event(channel.get(), &which, &context), 0);
        EXPECT_EQ(which, loop.cq.get());
        loop.completions.event_read();
        ++events;
        loop.wait();
    }
    ibv_ack_cq_events(loop.cq.get(), events);
}

// A thread that sleeps with a timeout arms the queue often, and usually no completion arrives.
TEST(DirectArm, WakesTheSleeperAfterArmsWithoutEvents) {
    Memory memory;
    const EventChannel channel(ibv_create_comp_channel(memory.context.get()));
    OwnReceives loop(memory, channel.get());
    const ibv_sge into = memory.piece(kIn, 64), from = memory.piece(kOut, 8);
    unsigned events = 0;
    for (unsigned arms = 1; arms <= 9; ++arms) {
        SCOPED_TRACE(testing::Message() << arms << " arms");
        for (unsigned arm = 0; arm < arms; ++arm)
            loop.completions.arm(false);
        ASSERT_EQ(loop.receive.post_now({&into, 1}, 1), Posted::kOk);
        WorkRequest work;
        work.sges = {&from, 1};
        ASSERT_EQ(loop.send.post_now(work), Posted::kOk);
        pollfd fd{channel->fd, POLLIN, 0};
        ASSERT_EQ(::poll(&fd, 1, 5000), 1);
        ibv_cq* which;
        void* context;
        ASSERT_EQ(ibv_get_cq_event(channel.get(), &which, &context), 0);
        loop.completions.event_read();
        ++events;
        loop.wait();
    }
    ibv_ack_cq_events(loop.cq.get(), events);
}

}  // namespace
}  // namespace heddle::post::test
