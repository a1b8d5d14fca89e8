// SPDX-License-Identifier: BSD-2-Clause
// The direct path without a device. mlx5dv_init_obj shows plain memory; the test reads what was
// written there, and writes CQEs as a device does. tests/endpoint compares with libmlx5. This test
// needs no libmlx5, so it also runs on other processors than x86-64.
#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/post/mlx5_completion_queue.h"
#include "heddle/post/mlx5_send_queue.h"

namespace heddle::post {
namespace {

using namespace detail;

constexpr std::uint32_t kBlocks = 8, kEntries = 8, kHalf = 256, kNumber = 0x1234;

// What a QP and its CQ look like to the device.
struct Shown {
    Shown() {
        for (mlx5_cqe64& cqe : cqes)
            cqe.op_own = MLX5_CQE_INVALID << 4 | MLX5_CQE_OWNER_MASK;
    }
    alignas(64) std::byte ring[kBlocks * kBlock] = {};
    alignas(64) std::byte uar[2 * kHalf] = {};
    alignas(64) mlx5_cqe64 cqes[kEntries] = {};
    alignas(64) __be32 record[2] = {};
    alignas(64) __be32 cq_record[2] = {};
    std::uint32_t completed = 0, blocks = kBlocks;

    std::uint32_t posted() const { return be32toh(load_word(&record[MLX5_SND_DBR])) & 0xffff; }
    // Writes a CQE as a device does: the owner's byte last.
    void complete(std::uint16_t counter) {
        mlx5_cqe64& cqe = cqes[completed & (kEntries - 1)];
        cqe.sop_drop_qpn = htobe32(MLX5_OPCODE_RDMA_WRITE << 24 | kNumber);
        const std::uint32_t own = MLX5_CQE_REQ << 4 | ((completed & kEntries) != 0 ? 1 : 0);
        void* const last = &cqe.wqe_counter;
        store_record(static_cast<std::uint32_t*>(last),
                     htobe32(std::uint32_t{counter} << 16 | own));
        ++completed;
    }
};
Shown* g_shown;

class DirectPost : public testing::Test {
protected:
    DirectPost() {
        g_shown = &shown;
        qp.qp_num = kNumber;
        qp.qp_type = IBV_QPT_RC;
    }
    WorkRequest write(const ibv_sge& piece, std::uint8_t flags) const {
        WorkRequest work;
        work.opcode = Opcode::kWrite;
        work.flags = flags;
        work.sges = {&piece, 1};
        work.remote_address = 0x1122334455667788;
        work.remote_key = 0xa1a2a3a4;
        return work;
    }
    static std::vector<std::uint8_t> bytes(const std::byte* from, std::size_t count) {
        const auto* begin = reinterpret_cast<const std::uint8_t*>(from);
        return {begin, begin + count};
    }

    Shown shown;
    ibv_qp qp{};
    ibv_cq cq{};
    std::array<std::uint8_t, 200> payload{};
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(payload.data()), 8, 0xb1b2b3b4};
};

TEST_F(DirectPost, SixtyFourBytesReachTheRegisterAsTheyAre) {
    for (std::size_t i = 0; i < kBlock; ++i)
        shown.ring[i] = static_cast<std::byte>(i + 1);
    store_register64(shown.uar + kHalf, shown.ring);
    EXPECT_EQ(bytes(shown.uar + kHalf, kBlock), bytes(shown.ring, kBlock));
    EXPECT_EQ(shown.uar[kHalf - 1], std::byte{0});
    EXPECT_EQ(shown.uar[kHalf + kBlock], std::byte{0});
}

TEST_F(DirectPost, InlineWriteByteForByte) {
    for (std::uint8_t i = 0; i < 8; ++i)
        payload[i] = static_cast<std::uint8_t>(0xc0 + i);
    Mlx5SendQueue<SingleThreaded> queue(&qp, false, 200, false);
    ASSERT_EQ(queue.post_now(write(piece, kInline | kSignaled)), Posted::kOk);
    const std::vector<std::uint8_t> expected{0,    0,    0,    MLX5_OPCODE_RDMA_WRITE,
                                             0,    0x12, 0x34, 3,
                                             0,    0,    0,    MLX5_WQE_CTRL_CQ_UPDATE,
                                             0,    0,    0,
                                             0,  // control
                                             0x11, 0x22, 0x33, 0x44,
                                             0x55, 0x66, 0x77, 0x88,
                                             0xa1, 0xa2, 0xa3, 0xa4,
                                             0,    0,    0,    0,  // remote
                                             0x80, 0,    0,    8,
                                             0xc0, 0xc1, 0xc2, 0xc3,
                                             0xc4, 0xc5, 0xc6, 0xc7};
    EXPECT_EQ(bytes(shown.ring, expected.size()), expected);
    EXPECT_EQ(bytes(shown.uar, expected.size()), expected) << "BlueFlame: the whole entry";
    EXPECT_EQ(shown.posted(), 1u);
}

// The short ways write the same WQE as post_now(). `post` posts `work` by a short way to a queue
// that counts ids; `used`: bytes of the WQE.
template <class Post>
void expect_as_post_now(ibv_qp& qp, const WorkRequest& work, std::size_t used, const Post& post) {
    Shown expected;
    g_shown = &expected;
    Mlx5SendQueue<SingleThreaded> usual(&qp, false, 200, false);
    ASSERT_EQ(usual.post_now(work), Posted::kOk);
    Shown got;
    g_shown = &got;
    Mlx5SendQueue<SingleThreaded> small(&qp, false, 200, false);
    small.count_ids_from(0);
    int noted = 0;
    ASSERT_EQ(post(small, [&] { ++noted; }), Posted::kOk);
    EXPECT_EQ(noted, 1);
    using Bytes = std::vector<std::byte>;
    EXPECT_EQ(Bytes(got.ring, got.ring + used), Bytes(expected.ring, expected.ring + used));
    EXPECT_EQ(Bytes(got.uar, got.uar + used), Bytes(expected.uar, expected.uar + used));
    EXPECT_EQ(got.posted(), expected.posted());
}

// post_small() of 16 to 24 bytes, and post_message() of 16 to 184.
TEST_F(DirectPost, ShortMessagesAreAsAllOthers) {
    for (std::size_t i = 0; i < payload.size(); ++i)
        payload[i] = static_cast<std::uint8_t>(0x30 + i);
    const std::uint32_t srq = 0xabcde, immediate = 0x01020304;
    const auto word = [&](std::size_t at) {
        std::uint64_t value;
        std::memcpy(&value, payload.data() + at, sizeof value);
        return value;
    };
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_XRC_SEND})
        for (std::uint32_t more = 0; more <= 168; more += more < 80 ? 1 : 11)
            for (const bool has_immediate : {false, true})
                for (const bool signaled : {false, true}) {
                    qp.qp_type = type;
                    piece.length = 16 + more;
                    WorkRequest work;
                    work.opcode = has_immediate ? Opcode::kSendImm : Opcode::kSend;
                    work.flags = static_cast<std::uint8_t>(kInline | (signaled ? kSignaled : 0));
                    work.sges = {&piece, 1};
                    work.immediate = immediate;
                    work.remote_srq = srq;
                    const std::size_t used = (type == IBV_QPT_RC ? 16 : 32) + 4 + piece.length;
                    const auto* const rest =
                        reinterpret_cast<const std::byte*>(payload.data()) + 16;
                    expect_as_post_now(qp, work, used, [&](auto& queue, const auto& noted) {
                        return has_immediate
                                   ? queue.template post_message<true>(word(0), word(8), rest, more,
                                                                       immediate, htobe32(srq),
                                                                       signaled, noted)
                                   : queue.template post_message<false>(word(0), word(8), rest,
                                                                        more, 0, htobe32(srq),
                                                                        signaled, noted);
                    });
                    if (more > 8) continue;
                    std::uint64_t tail = 0;
                    std::memcpy(&tail, rest, more);
                    expect_as_post_now(qp, work, used, [&](auto& queue, const auto& noted) {
                        return has_immediate
                                   ? queue.template post_small<true>(word(0), word(8), tail, more,
                                                                     immediate, htobe32(srq),
                                                                     signaled, noted)
                                   : queue.template post_small<false>(word(0), word(8), tail, more,
                                                                      0, htobe32(srq), signaled,
                                                                      noted);
                    });
                }
}

// post_transfer(): reads, writes, and writes of up to 12 inline bytes.
TEST_F(DirectPost, ShortTransfersAreAsAllOthers) {
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_XRC_SEND})
        for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite})
            for (const bool is_inline : {false, true})
                for (const bool signaled : {false, true})
                    for (std::uint32_t length = 1; length <= 12; ++length) {
                        if (is_inline && opcode == Opcode::kRead) continue;
                        qp.qp_type = type;
                        piece.length = length;
                        WorkRequest work = write(piece, is_inline ? kInline : 0);
                        work.opcode = opcode;
                        work.remote_srq = 0xabcde;
                        ASSERT_TRUE(Mlx5SendQueue<SingleThreaded>::is_transfer(work));
                        WorkRequest usual = work;
                        if (signaled) usual.flags |= kSignaled;
                        const std::size_t used =
                            (type == IBV_QPT_RC ? 32 : 48) + (is_inline ? 4 + length : 16);
                        expect_as_post_now(qp, usual, used, [&](auto& queue, const auto& noted) {
                            return queue.post_transfer(work, signaled, noted);
                        });
                    }
}

TEST_F(DirectPost, KnowsWhatIsNoShortTransfer) {
    using Queue = Mlx5SendQueue<SingleThreaded>;
    EXPECT_TRUE(Queue::is_transfer(write(piece, 0)));
    for (const std::uint8_t flag : {kFence, kSolicited, kSignaled})
        EXPECT_FALSE(Queue::is_transfer(write(piece, flag))) << int{flag};
    for (const Opcode opcode :
         {Opcode::kSend, Opcode::kWriteImm, Opcode::kFetchAdd, Opcode::kNop}) {
        WorkRequest work = write(piece, 0);
        work.opcode = opcode;
        EXPECT_FALSE(Queue::is_transfer(work));
    }
    piece.length = 13;
    EXPECT_TRUE(Queue::is_transfer(write(piece, 0)));
    EXPECT_FALSE(Queue::is_transfer(write(piece, kInline)));
    piece.length = 0;
    EXPECT_FALSE(Queue::is_transfer(write(piece, 0))) << "zero means 2 GiB";
    const ibv_sge two[] = {piece, piece};
    WorkRequest work = write(piece, 0);
    work.sges = two;
    EXPECT_FALSE(Queue::is_transfer(work));
}

// Long and short messages in turns, each of which completes at once: they have the whole ring, and
// what would wrap is left to post_now().
TEST_F(DirectPost, ShortMessagesUseTheWholeRing) {
    Mlx5SendQueue<SingleThreaded> queue(&qp, false, 200, false);
    queue.count_ids_from(0);
    unsigned wrapped = 0;
    for (std::uint32_t round = 0; round < 200; ++round) {
        const std::uint32_t more = round * 37 % 169;
        const auto counter = static_cast<std::uint16_t>(shown.posted());
        const std::uint32_t blocks = (16 + 4 + 16 + more + 63) / 64;
        const bool wraps = counter % kBlocks + blocks > kBlocks;
        const Posted posted = queue.post_message<false>(
            1, 2, reinterpret_cast<std::byte*>(payload.data()), more, 0, 0, false, [] {});
        EXPECT_EQ(posted, wraps ? Posted::kInvalid : Posted::kOk) << round;
        if (wraps) {
            ++wrapped;
            piece.length = 16 + more;
            WorkRequest work;
            work.flags = kInline;
            work.sges = {&piece, 1};
            ASSERT_EQ(queue.post_now(work), Posted::kOk);
        }
        EXPECT_EQ(static_cast<std::uint16_t>(shown.posted() - counter), blocks);
        EXPECT_EQ(queue.completed(counter), round);
    }
    EXPECT_GT(wrapped, 10U);
    // Not completed: it fills up, and no message is half there.
    const std::uint32_t before = shown.posted();
    unsigned taken = 0;
    for (; taken < 100; ++taken)
        if (queue.post_message<false>(1, 2, nullptr, 0, 0, 0, false, [] {}) != Posted::kOk) break;
    EXPECT_EQ(taken, kBlocks);
    EXPECT_EQ(shown.posted() - before, kBlocks);
    EXPECT_EQ(queue.post_message<false>(1, 2, nullptr, 0, 0, 0, false, [] {}), Posted::kFull);
}

// The last request that the depth allows may be one of several blocks.
TEST_F(DirectPost, TheLastOfAFullQueueMayBeLong) {
    Mlx5SendQueue<SingleThreaded> queue(&qp, false, 200, false, 4);
    queue.count_ids_from(0);
    for (int i = 0; i < 3; ++i)
        ASSERT_EQ(queue.post_message<false>(1, 2, nullptr, 0, 0, 0, false, [] {}), Posted::kOk);
    const auto* const rest = reinterpret_cast<const std::byte*>(payload.data());
    ASSERT_EQ(queue.post_message<false>(1, 2, rest, 64, 0, 0, false, [] {}), Posted::kInvalid);
    piece.length = 80;
    WorkRequest work;
    work.flags = kInline;
    work.sges = {&piece, 1};
    ASSERT_EQ(queue.post_now(work), Posted::kOk);
    EXPECT_EQ(shown.posted(), 5u);
    EXPECT_EQ(queue.post_message<false>(1, 2, rest, 64, 0, 0, false, [] {}), Posted::kFull);
}

TEST_F(DirectPost, QpWithoutSendQueueIsRefused) {
    shown.blocks = 0;
    try {
        Mlx5SendQueue<SingleThreaded> queue(&qp, false, 200, false);
        FAIL() << "it was taken";
    } catch (const VerbsError& error) {
        EXPECT_EQ(error.error(), EINVAL);
        EXPECT_NE(error.hint().find("without a send queue"), std::string::npos);
    }
}

// A queue that counts ids has no list of them. The completion of the last of several requests
// covers all.
TEST_F(DirectPost, IdsThatAreCounted) {
    Mlx5SendQueue<SingleThreaded> queue(&qp, false, 200, false, 4);
    queue.count_ids_from(std::uint64_t{7} << 32);
    std::uint64_t posted = 0;
    for (int round = 0; round < 50; ++round) {
        std::uint16_t counter = 0;
        for (int i = 0; i < 1 + round % 4; ++i, ++posted) {
            counter = static_cast<std::uint16_t>(shown.posted());
            ASSERT_EQ(queue.post_now(write(piece, kInline)), Posted::kOk);
        }
        if (round % 4 == 3) {
            EXPECT_EQ(queue.post_now(write(piece, kInline)), Posted::kFull);
        }
        EXPECT_EQ(queue.completed(counter), (std::uint64_t{7} << 32) + posted - 1);
    }
}

TEST_F(DirectPost, GatheredWriteByteForByteAndTheRegisterAlternates) {
    Mlx5SendQueue<SingleThreaded> queue(&qp, false, 200, false);
    ASSERT_EQ(queue.post_now(write(piece, 0)), Posted::kOk);
    std::vector<std::uint8_t> expected{0, 0, 0, 8, 0xb1, 0xb2, 0xb3, 0xb4};
    const std::uint64_t at = htobe64(piece.addr);
    expected.resize(16);
    std::memcpy(&expected[8], &at, 8);
    EXPECT_EQ(bytes(shown.ring + 2 * kUnit, kUnit), expected);
    ASSERT_EQ(queue.post_now(write(piece, kInline)), Posted::kOk);
    EXPECT_EQ(bytes(shown.uar, kBlock), bytes(shown.ring, kBlock));
    EXPECT_EQ(bytes(shown.uar + kHalf, 3 * kUnit), bytes(shown.ring + kBlock, 3 * kUnit));
}

// Each request completes at once, so that long WQEs begin at each block of the ring.
TEST_F(DirectPost, LongEntriesWrap) {
    for (std::size_t i = 0; i < payload.size(); ++i)
        payload[i] = static_cast<std::uint8_t>(i + 1);
    Mlx5SendQueue<SingleThreaded> queue(&qp, false, 200, false);
    Mlx5CompletionQueue<SingleThreaded> completions(&cq);
    completions.add(queue);
    std::uint32_t counter = 0;
    for (std::uint32_t round = 0; round < 100; ++round) {
        piece.length = 61 + round;  // two to four blocks
        WorkRequest work = write(piece, kInline | kSignaled);
        work.id = round;
        ASSERT_EQ(queue.post_now(work), Posted::kOk);
        const std::uint32_t next = shown.posted();
        for (std::uint32_t i = 0; i < piece.length; ++i) {
            const std::size_t at = std::size_t{counter} * kBlock + 2 * kUnit + 4 + i;
            ASSERT_EQ(shown.ring[at % sizeof shown.ring], std::byte{payload[i]})
                << round << ' ' << i;
        }
        shown.complete(static_cast<std::uint16_t>(counter));
        Completion completion;
        ASSERT_EQ(completions.poll(&completion, 1), 1u);
        ASSERT_EQ(completion.id, round);
        ASSERT_EQ(completion.opcode, IBV_WC_RDMA_WRITE);
        ASSERT_EQ(completions.poll(&completion, 1), 0u);
        counter = next;
    }
}

// A thread plays the device: it finds the WQEs that the record announces, and its CQEs arrive.
TEST_F(DirectPost, WhatTheRecordCountsIsWritten) {
    constexpr std::uint32_t kWorks = 5000;
    Mlx5SendQueue<SingleThreaded> queue(&qp, false, 200, false);
    Mlx5CompletionQueue<SingleThreaded> completions(&cq);
    completions.add(queue);
    std::uint32_t wrong = 0;
    std::thread device([&] {
        for (std::uint32_t counter = 0; counter < kWorks; ++counter) {
            while (shown.posted() == (counter & 0xffff))
                std::this_thread::yield();
            std::uint64_t value;
            std::memcpy(&value,
                        shown.ring + std::size_t{counter % kBlocks} * kBlock + 2 * kUnit + 4, 8);
            wrong += value != counter;
            shown.complete(static_cast<std::uint16_t>(counter));
        }
    });
    std::uint32_t posted = 0, done = 0;
    while (done < kWorks) {
        if (posted < kWorks && posted - done < kEntries) {
            const std::uint64_t value = posted;
            std::memcpy(payload.data(), &value, sizeof value);
            WorkRequest work = write(piece, kInline | kSignaled);
            work.id = posted;
            if (queue.post_now(work) == Posted::kOk) ++posted;
        }
        Completion completion;
        while (completions.poll(&completion, 1) != 0) {
            EXPECT_EQ(completion.id, done);
            ++done;
        }
        if (posted - done == kEntries) std::this_thread::yield();
    }
    device.join();
    EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace heddle::post

// It replaces the function of libmlx5.
extern "C" int mlx5dv_init_obj(mlx5dv_obj* object, std::uint64_t type) {
    heddle::post::Shown& shown = *heddle::post::g_shown;
    if (type == MLX5DV_OBJ_QP) {
        mlx5dv_qp& out = *object->qp.out;
        out.sq.buf = shown.ring;
        out.sq.wqe_cnt = shown.blocks;
        out.sq.stride = heddle::post::detail::kBlock;
        out.dbrec = shown.record;
        out.bf.reg = shown.uar;
        out.bf.size = heddle::post::kHalf;
    } else {
        mlx5dv_cq& out = *object->cq.out;
        out.buf = shown.cqes;
        out.cqe_cnt = heddle::post::kEntries;
        out.cqe_size = sizeof(mlx5_cqe64);
        out.dbrec = shown.cq_record;
        out.cq_uar = shown.uar;
    }
    return 0;
}
