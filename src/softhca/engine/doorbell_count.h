// SPDX-License-Identifier: BSD-2-Clause
// Counting doorbells and BlueFlame writes. A post call of libmlx5 rings once: by BlueFlame - the
// entry itself is written to the register - if it posted one entry of 2 to 16 units on a uUAR that
// takes BlueFlame, and the entry carries inline data or MLX5_POST_SEND_PREFER_BF is on (its
// default); else by an eight-byte doorbell (post_send_db in rdma-core's providers/mlx5/qp.c).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "softhca/device/segment.h"
#include "softhca/engine/local.h"

namespace softhca::engine {

struct PostShape {
    unsigned entries = 0;      // posted by this call
    unsigned units = 0;        // 16-byte units of the last one
    bool inline_data = false;  // of the last one
};

// The shape of a list that ibv_post_send took, up to `end` (exclusive; nullptr: all of it).
PostShape shape_of(const device::QueuePair& qp, const ibv_send_wr* first,
                   const ibv_send_wr* end) noexcept;

// The shape of what ibv_wr_* calls have put into the ring beyond the doorbell record: entries are
// numbered, so an old one is told from a new one - but for those of a batch that was aborted:
// `limit` is how many basic blocks the call turned out to have posted.
PostShape shape_in_ring(const device::QueuePair& qp, const LocalQp& local, std::uint16_t from,
                        std::uint32_t limit) noexcept;
// How many blocks of numbered entries lie beyond the doorbell record.
std::uint32_t blocks_in_ring(const device::QueuePair& qp, const LocalQp& local) noexcept;

// What libmlx5 sends by BlueFlame as its variables say when it opens a device: lists of one, if
// inline, or all of them, or none. Kept for each QP, as contexts of one process may differ.
enum BlueFlameUse : std::uint32_t { kForNone, kForInline, kForAll };
BlueFlameUse blueflame_use() noexcept;

// A post of that shape goes by BlueFlame, if libmlx5 makes it.
bool by_blueflame(const device::QueuePair& qp, const PostShape& shape) noexcept;
void count_post(device::QueuePair& qp, const PostShape& shape) noexcept;

}  // namespace softhca::engine
