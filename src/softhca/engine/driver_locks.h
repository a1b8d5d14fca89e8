// SPDX-License-Identifier: BSD-2-Clause
// Which locks libmlx5 takes in a post and a poll, for the run record. libmlx5 decides by facts that
// the kernel does not see: a thread domain in the QP's parent domain (mlx5_spinlock_init_pd), the
// flag IBV_CREATE_CQ_ATTR_SINGLE_THREADED, MLX5_SINGLE_THREADED, and which list of uUARs a QP takes
// its uUAR from (mlx5_get_qp_uar, need_uuar_lock; all in rdma-core's providers/mlx5). So the public
// functions of the context that carry these facts are wrapped, while a record is written. Without
// that, as when a program opens the device by a function other than ibv_open_device(), a lock is
// unknown.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "softhca/device/segment.h"
#include "softhca/engine/hooks.h"
#include "softhca/engine/local.h"
#include "softhca/record/text.h"

namespace softhca::engine {

// A context was opened by ibv_open_device(): wraps ibv_alloc_td(), ibv_alloc_parent_domain() and
// ibv_create_cq_ex().
void watch_context(ibv_context* context) noexcept;

// libmlx5 reads MLX5_SINGLE_THREADED whenever a context is opened. Called at that time.
void read_single_threaded() noexcept;

// A UAR page was allocated. `rank` counts the pages of its context that libmlx5 allocated for QPs.
// A page is for QPs unless this thread is inside ibv_alloc_td().
bool is_page_for_qps() noexcept;
void note_uar_page(std::uint32_t page, bool for_qps, std::uint32_t rank) noexcept;

// The QP takes its uUAR from a static context, as the kernel's answer says: uUAR `bfreg` of
// `total`, the last `low_latency` of which serve one QP each, or that of a thread domain.
void note_static_uuar(LocalQp& local, std::uint32_t bfreg, std::uint32_t total,
                      std::uint32_t low_latency) noexcept;
void note_thread_domain(LocalQp& local) noexcept;

struct QpLocks {
    record::Locked queue = record::Locked::kUnknown, uuar = record::Locked::kUnknown;
};
// The locks of a post by libmlx5, at its first post.
QpLocks locks_of(const ibv_qp& qp, const LocalQp& local, const device::QueuePair& object,
                 std::uint32_t low_latency) noexcept;

// The lock of a poll. Called inside libmlx5's function that creates the CQ.
record::Locked lock_of_new_cq(PolledBy polled) noexcept;

void forget_driver_locks_after_fork() noexcept;

}  // namespace softhca::engine
