// SPDX-License-Identifier: BSD-2-Clause
// Receives by the direct path, on a QP's own queue and on a shared one: many times around the ring,
// with several SGEs, and with small messages in the completion itself. All data is compared byte
// for byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/endpoint/direct_loop.h"

namespace heddle::post::test {
namespace {

TEST(DirectReceives, OfAnOwnQueueManyTimesAround) {
    Memory memory;
    std::mt19937 random(3);
    OwnReceives loop(memory);
    for (std::uint32_t round = 0; round < 3000; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        // Small messages arrive in the completion.
        const std::uint32_t length = below(random, round % 3 == 0 ? 400 : 70);
        fill(memory.bytes.data() + kOut, length, round);
        std::memset(memory.bytes.data() + kIn, 0, kSlot);
        const auto into = cut(memory, kIn, length, random);
        ASSERT_EQ(loop.receive.post_now(into, round), Posted::kOk);
        const auto from = cut(memory, kOut, length, random);
        WorkRequest work;
        work.opcode = round % 2 == 0 ? Opcode::kSend : Opcode::kSendImm;
        work.immediate = round;
        work.sges = from;
        work.id = ~round;
        work.flags = kSignaled;
        ASSERT_EQ(loop.send.post_now(work), Posted::kOk);
        for (int i = 0; i < 2; ++i) {
            const Completion completion = loop.wait();
            ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
            if (completion.opcode == IBV_WC_SEND) {
                EXPECT_EQ(completion.id, ~round);
                continue;
            }
            EXPECT_EQ(completion.opcode, IBV_WC_RECV);
            EXPECT_EQ(completion.id, round);
            EXPECT_EQ(completion.bytes, length);
            EXPECT_EQ(completion.has_immediate, round % 2 != 0);
            if (completion.has_immediate) {
                EXPECT_EQ(completion.immediate, round);
            }
        }
        ASSERT_EQ(std::memcmp(memory.bytes.data() + kIn, memory.bytes.data() + kOut, length), 0);
    }
}

TEST(DirectReceives, FullIsSaidAndEndsWithACompletion) {
    Memory memory;
    OwnReceives loop(memory);
    const ibv_sge into = memory.piece(kIn, kSlot);
    std::uint32_t posted = 0;
    while (loop.receive.post_now({&into, 1}, posted) == Posted::kOk)
        ++posted;
    EXPECT_EQ(posted, kDepth);
    const std::vector<ibv_sge> many(64, into);
    EXPECT_EQ(loop.receive.post_now(many, 0), Posted::kInvalid);
    WorkRequest work;
    ASSERT_EQ(loop.send.post_now(work), Posted::kOk);
    EXPECT_EQ(loop.wait().id, 0u);
    EXPECT_EQ(loop.receive.post_now({&into, 1}, 7), Posted::kOk);
    // The rest is flushed in order, each with its id.
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(loop.qp.get(), &error, IBV_QP_STATE), 0);
    for (std::uint64_t id = 1; id <= kDepth; ++id) {
        const Completion completion = loop.wait();
        EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
        EXPECT_EQ(completion.id, id == kDepth ? 7 : id);
    }
}

// Two QPs take receives from one queue in a random order, so WQEs complete in another order.
TEST(DirectReceives, OfASharedQueueManyTimesAround) {
    Memory memory;
    std::mt19937 random(5);
    const Srq srq = shared_queue(memory);
    Loop<SpinLock> loops[] = {{memory, {.srq = srq.get()}}, {memory, {.srq = srq.get()}}};
    Mlx5SharedReceiveQueue<SpinLock> receive(srq.get());
    EXPECT_NE(receive.number(), 0u);
    for (Loop<SpinLock>& loop : loops)
        loop.completions.add(receive, loop.qp->qp_num);
    // Fills the queue. The id says in which slot of memory the message will be.
    std::uint32_t slots = 0;
    const auto post = [&](std::uint32_t slot) {
        const ibv_sge into = memory.piece(kIn + slot * kSlot, kSlot);
        return receive.post_now({&into, 1}, slot);
    };
    while (slots < kDepth && post(slots) == Posted::kOk)
        ++slots;
    ASSERT_GE(slots, kDepth / 2);
    for (std::uint32_t round = 0; round < 2000; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        // Some messages, then their completions, those of the second QP first.
        const std::uint32_t count = below(random, 4);
        std::uint32_t lengths[2][4], sent[2] = {0, 0};
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::size_t q = random() % 2;
            const std::uint32_t length = below(random, round % 2 != 0 ? 60 : 300);
            fill(memory.bytes.data() + kOut + q * 2048 + sent[q] * 512, length, round + i);
            const ibv_sge from = memory.piece(kOut + q * 2048 + sent[q] * 512, length);
            WorkRequest work;
            work.sges = {&from, 1};
            work.flags = kSignaled;
            ASSERT_EQ(loops[q].send.post_now(work), Posted::kOk);
            lengths[q][sent[q]++] = length;
        }
        for (const std::size_t q : {1, 0})
            for (std::uint32_t i = 0; i < sent[q]; ++i) {
                Completion completion;
                do
                    completion = loops[q].wait();
                while (completion.opcode == IBV_WC_SEND && completion.status == IBV_WC_SUCCESS);
                ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
                ASSERT_LT(completion.id, slots);
                EXPECT_EQ(completion.bytes, lengths[q][i]);
                ASSERT_EQ(
                    std::memcmp(memory.bytes.data() + kIn + completion.id * kSlot,
                                memory.bytes.data() + kOut + q * 2048 + i * 512, completion.bytes),
                    0);
                ASSERT_EQ(post(static_cast<std::uint32_t>(completion.id)), Posted::kOk);
            }
    }
}

// A shared queue whose WQEs have memory of their own gets messages one by one.
struct OneByOne {
    OneByOne() {
        receive.fill([this](std::uint32_t index, std::uint64_t& id) {
            id = index;
            return memory.piece(kIn, 64);
        });
        receive.post_again(entries - 1);
    }
    std::uint32_t next() {  // the entry that the next message takes
        const ibv_sge from = memory.piece(kOut, 8);
        WorkRequest work;
        work.sges = {&from, 1};
        EXPECT_EQ(loop.send.post_now(work), Posted::kOk);
        std::optional<std::uint32_t> entry;
        for (bool sent = false; !sent || !entry;) {
            const mlx5_cqe64* const cqe = loop.completions.first();
            if (cqe == nullptr) continue;
            loop.completions.pop();
            if (cqe->op_own >> 4 == MLX5_CQE_REQ)
                sent = loop.completions.completion(*cqe).status == IBV_WC_SUCCESS;
            else
                entry = be16toh(cqe->wqe_counter);
            loop.completions.publish();
        }
        return *entry;
    }

    Memory memory;
    Srq srq = shared_queue(memory);
    Loop<> loop{memory, {.srq = srq.get(), .signal_all = true}};
    Mlx5SharedReceiveQueue<SingleThreaded> receive{srq.get()};
    const std::uint32_t entries = receive.entries();
};

// WQEs that complete in any order are posted in the order of their indices.
TEST(DirectReceives, OfASharedQueueStayNeighbours) {
    OneByOne queue;
    std::mt19937 random(13);
    std::uint32_t expected = 0;
    for (std::uint32_t round = 0; round < 200; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        std::vector<std::uint32_t> taken;
        const std::uint32_t count = below(random, queue.entries - 1);
        for (std::uint32_t i = 0; i < count; ++i) {
            taken.push_back(queue.next());
            ASSERT_EQ(taken.back(), expected);
            expected = (expected + 1) % queue.entries;
        }
        std::shuffle(taken.begin(), taken.end(), random);
        for (const std::uint32_t entry : taken)
            queue.receive.release_own(entry);
        queue.receive.post_again(count);
    }
}

// A WQE that stays in use is skipped, and enters the list again after it has been returned.
TEST(DirectReceives, OfASharedQueueThatKeepsOne) {
    OneByOne queue;
    std::vector<std::uint32_t> uses(queue.entries);
    std::uint32_t kept = queue.next();
    for (std::uint32_t i = 0; i < 50 * queue.entries; ++i) {
        const std::uint32_t entry = queue.next();
        ASSERT_NE(entry, kept);
        ++uses[entry];
        // Sometimes the test begins to keep another WQE.
        const bool swap = i % (3 * queue.entries) == 0;
        queue.receive.release_own(swap ? std::exchange(kept, entry) : entry);
        queue.receive.post_again(1);
    }
    for (std::uint32_t entry = 0; entry < queue.entries; ++entry)
        EXPECT_GT(uses[entry], 30u) << "entry " << entry;
}

TEST(DirectReceives, OfAQpWithoutAQueueAreRefused) {
    Memory memory;
    const Srq srq = shared_queue(memory);
    const Loop<> loop(memory, {.srq = srq.get()});
    try {
        const Mlx5ReceiveQueue<SingleThreaded> receive(loop.qp.get());
        FAIL();
    } catch (const VerbsError& error) {
        EXPECT_NE(std::string(error.what()).find("without a receive queue"), std::string::npos);
    }
}

}  // namespace
}  // namespace heddle::post::test
