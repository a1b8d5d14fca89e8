// SPDX-License-Identifier: BSD-2-Clause
// QPs that are posted to past the ops table: see direct_polling.h.
#include "softhca/engine/direct_polling.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <vector>

#include "softhca/base/assert.h"
#include "softhca/base/left_behind.h"
#include "softhca/device/reclaim.h"
#include "softhca/engine/pending_list.h"
#include "softhca/engine/qp_error.h"
#include "softhca/engine/queue_memory.h"
#include "softhca/engine/receive.h"

namespace softhca::engine {

using device::Fabric;
using device::Guard;
using device::QueuePair;
using device::SpinLock;

namespace {

SpinLock g_direct_lock;
// Under g_direct_lock.
std::vector<LocalQp*>* g_direct = nullptr;
std::vector<std::uint32_t>* g_channel_cqs = nullptr;

// There is a QP or a CQ that the progress thread has not looked at. Others set it.
std::atomic<bool> g_has_new{false};
// Only the progress thread: where every doorbell is announced, when it looks again; now_ns().
std::uint64_t g_next_look = 0;

Polling look_at_all(Fabric& fabric, std::uint64_t& last_work) noexcept {
    bool worked = false, all_announced = true;
    std::size_t count;
    {
        Guard<SpinLock> guard(g_direct_lock);
        count = g_direct ? g_direct->size() : 0;
    }
    for (std::size_t i = 0; i < count; ++i) {
        LocalQp* local = nullptr;
        {
            Guard<SpinLock> guard(g_direct_lock);
            SOFTHCA_DEBUG_ASSERT(g_direct, "only a fork ends the list, and it ends this thread");
            if (i < g_direct->size()) local = (*g_direct)[i];
        }
        if (!local) continue;
        SOFTHCA_DEBUG_ASSERT(local->direct && local->send_ring,
                             "mark_direct() lists QPs that have a send queue");
        if (!local->announced.load(std::memory_order_relaxed)) all_announced = false;
        const QueuePair& qp = fabric.segment().qps[local->index];
        if (!local->pending.load(std::memory_order_relaxed) && has_work(qp, *local)) {
            worked = true;
            run_or_list(fabric, *local, Runner::kProgress);
        }
        // receives posted to a failed QP past the table
        if (qp.state.load(std::memory_order_acquire) == IBV_QPS_ERR &&
            receive_available(fabric, fabric.segment().qps[local->index], 0))
            flush_receives(fabric, local->index);
    }
    if (count) {
        std::size_t cqs;
        {
            Guard<SpinLock> guard(g_direct_lock);
            cqs = g_channel_cqs ? g_channel_cqs->size() : 0;
        }
        for (std::size_t i = 0; i < cqs; ++i) {
            std::uint32_t cq = device::kNone;
            {
                Guard<SpinLock> guard(g_direct_lock);
                SOFTHCA_DEBUG_ASSERT(g_channel_cqs, "only a fork ends the list");
                if (i < g_channel_cqs->size()) cq = (*g_channel_cqs)[i];
            }
            if (cq != device::kNone) check_armed(fabric, cq);
        }
    }
    if (worked) last_work = device::now_ns();
    if (count == 0) return Polling::kNo;
    return all_announced ? Polling::kSeldom : Polling::kOften;
}

}  // namespace

Polling poll_direct(Fabric& fabric, std::uint64_t& last_work) noexcept {
    // The thread may be woken for each large copy: a look at all QPs would take a fifth of its
    // time.
    if (g_next_look != 0 && !g_has_new.load(std::memory_order_acquire) &&
        device::now_ns() < g_next_look)
        return Polling::kSeldom;
    g_has_new.store(false, std::memory_order_relaxed);
    const Polling polling = look_at_all(fabric, last_work);
    g_next_look = polling == Polling::kSeldom ? device::now_ns() + kSeldomPeriod : 0;
    return polling;
}

void mark_direct(Fabric& fabric, LocalQp& local) noexcept {
    if (!local.send_ring) return;
    {
        Guard<SpinLock> guard(g_direct_lock);
        if (local.direct.exchange(true)) return;
        if (!g_direct) g_direct = new std::vector<LocalQp*>;
        SOFTHCA_ASSERT(std::find(g_direct->begin(), g_direct->end(), &local) == g_direct->end(),
                       "a QP is listed once, when `direct` is set");
        g_direct->push_back(&local);
    }
    g_has_new.store(true, std::memory_order_release);
    device::ring_bell(fabric, fabric.slot());
}

void forget_direct(LocalQp& local) noexcept {
    Guard<SpinLock> guard(g_direct_lock);
    const std::size_t erased = g_direct ? std::erase(*g_direct, &local) : 0;
    SOFTHCA_ASSERT(erased == (local.direct ? 1u : 0u), "a direct QP is listed once");
}

void watch_channel_cq(std::uint32_t cq) noexcept {
    SOFTHCA_ASSERT(cq < device::kMaxCqs, "the index is that of a CQ of this process");
    Guard<SpinLock> guard(g_direct_lock);
    if (!g_channel_cqs) g_channel_cqs = new std::vector<std::uint32_t>;
    g_channel_cqs->push_back(cq);
    g_has_new.store(true, std::memory_order_release);
}

void unwatch_channel_cq(std::uint32_t cq) noexcept {
    Guard<SpinLock> guard(g_direct_lock);
    if (g_channel_cqs) std::erase(*g_channel_cqs, cq);
}

void forget_direct_after_fork() noexcept {
    g_direct_lock.unlock();  // a thread that is not in the child may have held it
    leave_behind(g_direct);
    leave_behind(g_channel_cqs);
    g_direct = nullptr;
    g_channel_cqs = nullptr;
    g_has_new.store(false, std::memory_order_relaxed);
    g_next_look = 0;
}

}  // namespace softhca::engine
