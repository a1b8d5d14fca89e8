// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/engine/srq_waiters.h"

#include <rdma/ib_user_verbs.h>

#include <algorithm>

#include "softhca/base/assert.h"
#include "softhca/device/reclaim.h"
#include "softhca/engine/receive.h"

namespace softhca::engine {

using device::Fabric;
using device::SharedReceiveQueue;

namespace {

// SharedReceiveQueue.waiters: no process, one process (its slot and one), or more than one.
constexpr std::uint32_t kNobody = 0, kSeveral = ~0u;

void notify_process(Fabric& fabric, std::uint32_t slot) noexcept {
    SOFTHCA_ASSERT(slot < device::kMaxProcesses, "callers check the slot");
    fabric.segment().processes[slot].receives_posted.fetch_add(1, std::memory_order_release);
    device::ring_bell(fabric, slot);
}

}  // namespace

bool await_receive(Fabric& fabric, LocalQp& local, device::QueuePair& target,
                   std::uint32_t xrc_srq) noexcept {
    SharedReceiveQueue* const srq = shared_queue(fabric, target, xrc_srq);
    if (!srq || !srq->announced.load(std::memory_order_relaxed)) return false;
    // Read this before another process can notify us.
    local.posts_seen = fabric.self().receives_posted.load(std::memory_order_acquire);
    const std::uint32_t self = fabric.slot() + 1;
    SOFTHCA_DEBUG_ASSERT(self != kNobody && self != kSeveral, "the process has joined");
    std::uint32_t there = srq->waiters.load(std::memory_order_relaxed);
    while (there != self && there != kSeveral &&
           !srq->waiters.compare_exchange_weak(there, there == kNobody ? self : kSeveral,
                                               std::memory_order_relaxed)) {
    }
    // Announce the wait, then look for a receive. receives_posted() posts, then looks for a wait.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return !receive_available(fabric, target, xrc_srq);
}

void receives_posted(Fabric& fabric, std::uint32_t index) noexcept {
    if (index >= device::kMaxSrqs) return;
    SharedReceiveQueue& srq = fabric.segment().srqs[index];
    if (!srq.announced.load(std::memory_order_relaxed)) [[unlikely]]
        srq.announced.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (srq.waiters.load(std::memory_order_relaxed) == kNobody) return;
    const std::uint32_t who = srq.waiters.exchange(kNobody, std::memory_order_acq_rel);
    if (who == kNobody) return;
    if (who != kSeveral) {
        if (who - 1 < device::kMaxProcesses) notify_process(fabric, who - 1);
        return;
    }
    const std::uint32_t high = fabric.segment().processes_high.load(std::memory_order_acquire);
    for (std::uint32_t slot = 0; slot < std::min<std::uint32_t>(high, device::kMaxProcesses);
         ++slot)
        if (fabric.segment().processes[slot].state.load(std::memory_order_acquire) == device::kLive)
            notify_process(fabric, slot);
}

}  // namespace softhca::engine
