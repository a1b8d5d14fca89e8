// SPDX-License-Identifier: BSD-2-Clause
// How does a device deliver: in which order, where small messages go, and to which numbers of queue
// pairs? See hardware_check.h.
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>

#include "cli/heddle/looped_qp.h"
#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "heddle/post/mlx5_objects.h"

namespace heddle::cli {

namespace {

constexpr std::uint64_t kOrderRounds = 2000;

// In how many of kOrderRounds RDMA writes the end was in memory before the rest.
std::uint64_t early_ends(CheckedDevice& device, LoopedQp& loop, std::uint32_t bytes) {
    HEDDLE_ASSERT(bytes % 64 == 0 && bytes != 0 && bytes <= kRemote, "whole cache lines");
    const auto at = [&](std::size_t offset) {
        return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(device.memory() + offset));
    };
    std::uint64_t early = 0;
    for (std::size_t i = 0; i < bytes; i += 8)
        at(kRemote + i).store(0, std::memory_order_relaxed);
    for (std::uint64_t round = 1; round <= kOrderRounds; ++round) {
        for (std::size_t i = 0; i < bytes; i += 8)
            at(i).store(round, std::memory_order_relaxed);
        loop.write(0, kRemote, bytes);
        const auto end = std::chrono::steady_clock::now() + kCompletionPatience;
        while (at(kRemote + bytes - 8).load(std::memory_order_acquire) != round)
            if (std::chrono::steady_clock::now() > end)
                throw VerbsError("the end of an RDMA write", ETIMEDOUT);
        for (std::size_t i = 0; i < bytes; i += 64)
            if (at(kRemote + i).load(std::memory_order_relaxed) != round) {
                ++early;
                break;
            }
        loop.wait(loop.cq());
    }
    return early;
}

}  // namespace

Finding check_order(CheckedDevice& device) {
    Finding finding;
    LoopedQp loop(device);
    constexpr std::uint32_t kBytes = 1 << 16;
    const std::uint32_t packet = std::max(device.info.mtu, 256u);
    const std::uint64_t early = early_ends(device, loop, kBytes);
    const std::uint64_t early_in_packet = early_ends(device, loop, packet);
    using Query = int (*)(ibv_qp*, ibv_wr_opcode, std::uint32_t);
    const auto query = reinterpret_cast<Query>(dlsym(RTLD_DEFAULT, "ibv_query_qp_data_in_order"));
    const int promised = query != nullptr ? query(loop.qp(), IBV_WR_RDMA_WRITE, 0) : -1;
    finding.details = {
        {"writes", kOrderRounds},
        {"bytes", kBytes},
        {"seen_early", early},
        {"packet_bytes", packet},
        {"seen_early_in_packet", early_in_packet},
        {"ibv_query_qp_data_in_order",
         promised < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(promised)}};
    finding.seen = "the end came first in " + std::to_string(early) + " of " +
                   std::to_string(kOrderRounds) + " writes of 64 KiB, and in " +
                   std::to_string(early_in_packet) + " of one packet; in order by promise: " +
                   (promised < 0    ? "unknown"
                    : promised != 0 ? "yes"
                                    : "no");
    finding.meaning = "A reader of the last byte found the whole write.";
    if (early != 0) {
        finding.answer = Answer::kDiffers;
        finding.meaning =
            "Packets are placed out of order. Eager rings carry messages of one packet only, "
            "so heddle does not depend on it.";
    }
    if (early_in_packet != 0) {
        finding.answer = Answer::kDiffers;
        finding.meaning =
            "Even one packet is not written in order, as with a firmware that forces relaxed "
            "ordering. Eager rings would deliver wrong bytes: keep FI_HEDDLE_RINGS=0.";
    }
    return finding;
}

Finding check_scatter(CheckedDevice& device) {
    need_mlx5(device);
    Finding finding;
    LoopedQp loop(device);
    const mlx5dv_cq shown = post::detail::layout_of(loop.receive_cq());
    HEDDLE_ASSERT(std::has_single_bit(shown.cqe_cnt) && shown.cqe_size >= sizeof(mlx5_cqe64),
                  "the index of an entry is taken modulo a power of two");
    nlohmann::ordered_json sizes = nlohmann::ordered_json::array();
    std::uint32_t most = 0, index = 0;
    for (const std::uint32_t bytes : {8u, 32u, 33u, 64u}) {
        ibv_sge into = device.piece(kRemote, 64), from = device.piece(0, bytes);
        ibv_recv_wr receive{}, *bad_receive = nullptr;
        receive.sg_list = &into;
        receive.num_sge = 1;
        if (const int error = ibv_post_recv(loop.qp(), &receive, &bad_receive))
            throw VerbsError("a receive", error);
        ibv_send_wr send{}, *bad_send = nullptr;
        send.sg_list = &from;
        send.num_sge = 1;
        send.opcode = IBV_WR_SEND;
        send.send_flags = IBV_SEND_SIGNALED;
        if (const int error = ibv_post_send(loop.qp(), &send, &bad_send))
            throw VerbsError("a message", error);
        loop.wait(loop.cq());
        loop.wait(loop.receive_cq());
        const auto* const entry = reinterpret_cast<const mlx5_cqe64*>(
            static_cast<const std::byte*>(shown.buf) +
            std::size_t{(index++ & (shown.cqe_cnt - 1)) + 1} * shown.cqe_size - sizeof(mlx5_cqe64));
        const bool inside =
            (entry->op_own & (MLX5_INLINE_SCATTER_32 | MLX5_INLINE_SCATTER_64)) != 0;
        if (inside) most = std::max(most, bytes);
        sizes.push_back({{"bytes", bytes}, {"in_entry", inside}});
    }
    finding.details = {{"entry_bytes", shown.cqe_size}, {"sizes", sizes}};
    finding.seen = most != 0 ? "messages of " + std::to_string(most) +
                                   " bytes come in entries of " + std::to_string(shown.cqe_size)
                             : "no message comes in an entry";
    finding.meaning = "A receiver of small messages saves a cache miss.";
    if (most == 0) {
        finding.answer = Answer::kDiffers;
        finding.meaning = "Small messages go to memory. heddle works with both.";
    }
    return finding;
}

Finding check_numbers(CheckedDevice& device) {
    Finding finding;
    verbs::CompletionQueue cq(ibv_create_cq(device.context(), 16, nullptr, nullptr, 0));
    if (!cq) throw VerbsError("a completion queue", errno);
    constexpr int kMost = 2000;
    std::uint32_t first = 0;
    int again = 0;
    for (int i = 0; i < kMost && again == 0; ++i) {
        ibv_qp_init_attr wanted{};
        wanted.qp_type = IBV_QPT_RC;
        wanted.send_cq = wanted.recv_cq = cq.get();
        wanted.cap = {.max_send_wr = 1,
                      .max_recv_wr = 1,
                      .max_send_sge = 1,
                      .max_recv_sge = 1,
                      .max_inline_data = 0};
        verbs::QueuePair qp(ibv_create_qp(device.pd(), &wanted));
        if (!qp) throw VerbsError("queue pair " + std::to_string(i + 1), errno);
        if (i == 0)
            first = qp->qp_num;
        else if (qp->qp_num == first)
            again = i;
    }
    finding.details = {{"made", kMost}, {"first_number_again_after", again}};
    if (again != 0) {
        finding.seen = "again after " + std::to_string(again) + " other QPs";
        finding.meaning =
            "A late packet can reach another QP: heddle tells connections apart by "
            "more than their numbers.";
    } else {
        finding.answer = Answer::kDiffers;
        finding.seen = "not within " + std::to_string(kMost) + " QPs";
        finding.meaning = "The device is kinder than heddle needs.";
    }
    return finding;
}

}  // namespace heddle::cli
