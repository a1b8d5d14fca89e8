// SPDX-License-Identifier: BSD-2-Clause
// What happens at a post: libmlx5's calls (hooks.cc) and announced doorbells (exports.cc) end here.
#pragma once

#include <infiniband/verbs.h>

#include "softhca/device/fabric.h"
#include "softhca/engine/fast_path.h"
#include "softhca/engine/local.h"
#include "softhca/engine/pending_list.h"

namespace softhca::engine {

// The caller is inside an epoch. Most posts have one small request, on a QP without unfinished
// work.
[[gnu::always_inline]] inline void run_posted(device::Fabric& fabric, LocalQp& local) noexcept {
    if (!leaves_all_to_thread(local.engine) && local.run_lock.try_lock()) {
        device::QueuePair& qp = fabric.segment().qps[local.index];
        const auto counter = static_cast<std::uint16_t>(qp.sq_consumer);
        const auto waiting = static_cast<std::uint16_t>(posted_so_far(local) - counter);
        FastPathRequest request;
        if (!local.dead.load(std::memory_order_relaxed) && qp.head.live() && waiting != 0 &&
            waiting <= local.ring_blocks && !local.unfinished.active &&
            local.waiting == WaitReason::kNo &&
            qp.state.load(std::memory_order_acquire) == IBV_QPS_RTS &&
            try_fast_path(fabric, local, qp, counter, waiting,
                          most_by_fast_path(local, local.engine == EnginePolicy::kHybrid),
                          request)) {
            if (run_after_fast_path(fabric, local, qp, counter, request) == Ran::kPending)
                add_pending(fabric, local);
            return;
        }
        local.run_lock.unlock();
    }
    run_or_list(fabric, local, Runner::kPoster);
}

}  // namespace softhca::engine
