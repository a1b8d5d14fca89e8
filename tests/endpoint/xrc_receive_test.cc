// SPDX-License-Identifier: BSD-2-Clause
// Receives on an XRC shared queue, by the direct path and by the verbs path. All data is compared
// byte for byte.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tests/endpoint/direct_loop.h"

namespace heddle::post::test {
namespace {

using XrcDomain = std::unique_ptr<ibv_xrcd, verbs::Destroy<ibv_close_xrcd>>;

// An XRC shared queue with initiators whose targets are created later: the CQ knows the initiators
// but not the targets.
struct XrcLoop {
    XrcLoop() {
        ibv_xrcd_init_attr d{};
        d.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        d.fd = -1;
        d.oflags = O_CREAT;
        domain.reset(ibv_open_xrcd(memory.context.get(), &d));
        if (!domain) throw VerbsError("an XRC domain", errno);
        ibv_srq_init_attr_ex s{};
        s.attr = {kDepth, 3, 0};
        s.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                      IBV_SRQ_INIT_ATTR_CQ;
        s.srq_type = IBV_SRQT_XRC;
        s.pd = memory.pd.get();
        s.xrcd = domain.get();
        s.cq = cq.get();
        srq.reset(ibv_create_srq_ex(memory.context.get(), &s));
        if (!srq) throw VerbsError("an XRC shared receive queue", errno);
    }
    verbs::QueuePair initiator() const {
        ibv_qp_init_attr_ex a{};
        a.send_cq = a.recv_cq = cq.get();
        a.comp_mask = IBV_QP_INIT_ATTR_PD;
        a.pd = memory.pd.get();
        a.cap = {kDepth, 0, 3, 0, 200};
        a.qp_type = IBV_QPT_XRC_SEND;
        return made(a);
    }
    verbs::QueuePair target_of(ibv_qp* initiator) const {
        ibv_qp_init_attr_ex a{};
        a.qp_type = IBV_QPT_XRC_RECV;
        a.comp_mask = IBV_QP_INIT_ATTR_XRCD;
        a.xrcd = domain.get();
        verbs::QueuePair target = made(a);
        verbs::connect_locally(target.get(), initiator);
        verbs::connect_locally(initiator, target.get());
        return target;
    }
    verbs::QueuePair made(ibv_qp_init_attr_ex& a) const {
        verbs::QueuePair qp(ibv_create_qp_ex(memory.context.get(), &a));
        if (!qp) throw VerbsError("a queue pair", errno);
        return qp;
    }

    Memory memory;
    XrcDomain domain;
    verbs::CompletionQueue cq{ibv_create_cq(memory.context.get(), 128, nullptr, nullptr, 0)};
    Srq srq;
};

TEST(DirectReceives, OfXrcTargetsThatThePollerDoesNotKnow) {
    XrcLoop x;
    Memory& memory = x.memory;
    const verbs::QueuePair qps[] = {x.initiator(), x.initiator()};
    Mlx5SharedReceiveQueue<SpinLock> receive(x.srq.get());
    Mlx5SendQueue<SpinLock> sends[] = {{qps[0].get(), false, 200, false},
                                       {qps[1].get(), false, 200, false}};
    Mlx5CompletionQueue<SpinLock> completions(x.cq.get());
    completions.add(sends[0]);
    completions.add(sends[1]);
    completions.add_default(receive);
    const verbs::QueuePair targets[] = {x.target_of(qps[0].get()), x.target_of(qps[1].get())};
    std::mt19937 random(11);
    for (std::uint32_t round = 0; round < 1000; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        const std::uint32_t length = below(random, round % 2 != 0 ? 60 : 400);
        fill(memory.bytes.data() + kOut, length, round);
        std::memset(memory.bytes.data() + kIn, 0, kSlot);
        const auto into = cut(memory, kIn, length, random);
        ASSERT_EQ(receive.post(into, round), Posted::kOk);
        ASSERT_EQ(receive.ring_doorbell(), Posted::kOk);
        const ibv_sge from = memory.piece(kOut, length);
        WorkRequest work;
        work.sges = {&from, 1};
        work.id = ~round;
        work.flags = kSignaled;
        work.remote_srq = receive.number();
        ASSERT_EQ(sends[random() % 2].post_now(work), Posted::kOk);
        for (int i = 0; i < 2; ++i) {
            Completion completion;
            while (completions.poll(&completion, 1) == 0) {
            }
            ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
            EXPECT_EQ(completion.id, completion.opcode == IBV_WC_SEND ? ~round : round);
            if (completion.opcode == IBV_WC_RECV) {
                EXPECT_EQ(completion.bytes, length);
            }
        }
        ASSERT_EQ(std::memcmp(memory.bytes.data() + kIn, memory.bytes.data() + kOut, length), 0);
    }
}

// A shared queue by the verbs path: it posts a list at once and keeps requests that do not fit.
TEST(VerbsSharedReceives, GoAsAList) {
    XrcLoop x;
    Memory& memory = x.memory;
    const verbs::QueuePair qp = x.initiator();
    const verbs::QueuePair target = x.target_of(qp.get());
    VerbsSharedReceiveQueue<SingleThreaded> receive(x.srq.get(), 4);
    VerbsSendQueue<SingleThreaded> send(qp.get(), 1);
    VerbsCompletionQueue completions(x.cq.get());
    ASSERT_NE(receive.number(), 0u);
    const auto wait = [&] {  // for a receive
        Completion completion;
        do
            while (completions.poll(&completion, 1) == 0) {
            }
        while (completion.opcode == IBV_WC_SEND && completion.status == IBV_WC_SUCCESS);
        return completion;
    };
    const auto into = [&](std::uint64_t id) { return memory.piece(kIn + id % kDepth * kSlot, 64); };
    const auto message = [&](std::uint32_t seed) {
        fill(memory.bytes.data() + kOut, 64, seed);
        const ibv_sge from = memory.piece(kOut, 64);
        WorkRequest work;
        work.sges = {&from, 1};
        work.flags = kSignaled;
        work.remote_srq = receive.number();
        ASSERT_EQ(send.post_now(work), Posted::kOk);
    };
    // Three receives wait for the doorbell. After it the messages take them in order.
    for (std::uint64_t id = 0; id < 3; ++id) {
        const ibv_sge piece = into(id);
        ASSERT_EQ(receive.post({&piece, 1}, id), Posted::kOk);
    }
    ASSERT_EQ(receive.ring_doorbell(), Posted::kOk);
    for (std::uint32_t id = 0; id < 3; ++id) {
        message(id);
        const Completion completion = wait();
        EXPECT_EQ(completion.opcode, IBV_WC_RECV);
        EXPECT_EQ(completion.id, id);
        EXPECT_EQ(
            std::memcmp(memory.bytes.data() + kIn + id * kSlot, memory.bytes.data() + kOut, 64), 0);
    }
    const ibv_sge piece = into(3);
    std::uint64_t taken = 0;
    Posted posted;
    while ((posted = receive.post_now({&piece, 1}, taken)) == Posted::kOk)
        ++taken;
    EXPECT_EQ(posted, Posted::kFull);
    ASSERT_GE(taken, kDepth / 2);
    // One request too many in a list: the queue keeps it and posts it when there is room.
    ASSERT_EQ(receive.post({&piece, 1}, taken), Posted::kOk);
    EXPECT_EQ(receive.ring_doorbell(), Posted::kFull);
    message(0);
    EXPECT_EQ(wait().id, 0u);
    EXPECT_EQ(receive.ring_doorbell(), Posted::kOk);
    for (std::uint64_t id = 1; id <= taken; ++id) {
        message(0);
        EXPECT_EQ(wait().id, id);
    }
    const std::vector<ibv_sge> many(
        detail::VerbsList<SingleThreaded, ibv_srq, ibv_recv_wr>::kMaxSges + 1, piece);
    EXPECT_EQ(receive.post_now(many, 0), Posted::kInvalid);
}

}  // namespace
}  // namespace heddle::post::test
