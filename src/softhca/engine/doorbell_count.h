// SPDX-License-Identifier: BSD-2-Clause
// Counts doorbells and BlueFlame writes. A post call of libmlx5 rings once. It uses BlueFlame,
// which writes the WQE itself to the register, under three conditions: the call posted one WQE of 2
// to 16 units, the uUAR takes BlueFlame, and the WQE carries inline data or
// MLX5_POST_SEND_PREFER_BF is on (its default). Otherwise it uses an eight-byte doorbell
// (post_send_db in rdma-core's providers/mlx5/qp.c).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "softhca/device/segment.h"
#include "softhca/engine/local.h"
#include "softhca/record/event.h"

namespace softhca::engine {

struct PostShape {
    unsigned entries = 0;      // WQEs posted by this call
    unsigned units = 0;        // 16-byte units of the last WQE
    bool inline_data = false;  // the last WQE has inline data
};

// The shape of a list that ibv_post_send took, up to `end` (exclusive; nullptr: the whole list).
PostShape shape_of(const device::QueuePair& qp, const ibv_send_wr* first,
                   const ibv_send_wr* end) noexcept;

// The shape of what ibv_wr_* calls have written into the ring beyond the doorbell record. WQEs are
// numbered, which tells old ones from new ones, except for those of an aborted batch. So `limit` is
// the number of basic blocks that the call has posted.
PostShape shape_in_ring(const device::QueuePair& qp, const LocalQp& local, std::uint16_t from,
                        std::uint32_t limit) noexcept;
// The run record's view of the same WQEs. `event` gets their number and what they carry.
void outline_in_ring(const device::QueuePair& qp, const LocalQp& local, std::uint16_t from,
                     std::uint32_t limit, record::Event& event) noexcept;
// How many blocks of numbered WQEs lie beyond the doorbell record.
std::uint32_t blocks_in_ring(const device::QueuePair& qp, const LocalQp& local) noexcept;

// What libmlx5 sends by BlueFlame: lists of one WQE if inline, all of them, or none. libmlx5's
// variables say so when it opens a device. Kept for each QP, because contexts of one process may
// differ.
enum BlueFlameUse : std::uint32_t { kForNone, kForInline, kForAll };
BlueFlameUse blueflame_use() noexcept;

// Whether libmlx5 posts that shape by BlueFlame.
bool by_blueflame(const device::QueuePair& qp, const PostShape& shape) noexcept;
void count_post(device::QueuePair& qp, const PostShape& shape) noexcept;

}  // namespace softhca::engine
