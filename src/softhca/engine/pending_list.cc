// SPDX-License-Identifier: BSD-2-Clause
// The list of send queues that wait: see pending_list.h.
#include "softhca/engine/pending_list.h"

#include <algorithm>

#include "softhca/base/assert.h"
#include "softhca/engine/late_wake.h"
#include "softhca/engine/srq_waiters.h"

namespace softhca::engine {

using device::Fabric;
using device::Guard;
using device::SpinLock;

std::atomic<std::uint32_t> g_pending{0};
std::atomic<bool> g_progress_works{false};

namespace {

SpinLock g_list_lock;
// g_list_lock guards the ring. A QP is on it at most once. A null pointer is the place of a QP that
// was taken from between others.
LocalQp* g_ring[device::kMaxQps];
std::uint32_t g_ring_head = 0, g_ring_tail = 0;
constexpr std::uint32_t kGaps = 64;  // null pointers that are left alone, besides one for each QP

// Marks a QP that was taken from the ring. The caller holds g_list_lock.
void left_ring(LocalQp& local) noexcept {
    SOFTHCA_DEBUG_ASSERT(g_list_lock.is_locked() && local.pending.load(std::memory_order_relaxed),
                         "a QP on the ring is pending");
    [[maybe_unused]] const std::uint32_t before = g_pending.fetch_sub(1, std::memory_order_relaxed);
    SOFTHCA_DEBUG_ASSERT(before != 0, "g_pending counts the QPs on the ring");
    local.pending.store(false, std::memory_order_release);
}

// Takes the null pointers from the ring, in which the order of the QPs stays. The caller holds
// g_list_lock.
[[gnu::cold, gnu::noinline]] void close_gaps() noexcept {
    std::uint32_t to = g_ring_head;
    for (std::uint32_t at = g_ring_head; at != g_ring_tail; ++at)
        if (LocalQp* local = g_ring[at & (device::kMaxQps - 1)])
            g_ring[to++ & (device::kMaxQps - 1)] = local;
    g_ring_tail = to;
    SOFTHCA_ASSERT(g_ring_tail - g_ring_head == g_pending.load(std::memory_order_relaxed),
                   "g_pending counts the QPs on the ring");
}

LocalQp* pop() noexcept {
    Guard<SpinLock> guard(g_list_lock);
    while (g_ring_head != g_ring_tail) {
        LocalQp* local = g_ring[g_ring_head++ & (device::kMaxQps - 1)];
        if (!local) continue;  // removed
        left_ring(*local);
        return local;
    }
    return nullptr;
}

// For a thread that polls: the first of the next few that can go on now.
LocalQp* pop_runnable(Fabric& fabric, unsigned most) noexcept {
    std::uint64_t now = 0;
    Guard<SpinLock> guard(g_list_lock);
    while (g_ring_head != g_ring_tail && !g_ring[g_ring_head & (device::kMaxQps - 1)])
        ++g_ring_head;
    for (std::uint32_t at = g_ring_head; at != g_ring_tail && most; ++at) {
        LocalQp*& entry = g_ring[at & (device::kMaxQps - 1)];
        if (!entry) continue;
        --most;
        LocalQp* local = entry;
        if (local->waiting == WaitReason::kRnr || local->waiting == WaitReason::kNoResponse) {
            if (!now) now = device::now_ns();
            if (!may_go_on(fabric, *local, now)) continue;
        }
        entry = nullptr;
        if (at == g_ring_head) ++g_ring_head;
        left_ring(*local);
        return local;
    }
    return nullptr;
}

void push(LocalQp& local) noexcept {
    Guard<SpinLock> guard(g_list_lock);
    if (local.pending.load(std::memory_order_relaxed) || local.dead.load(std::memory_order_relaxed))
        return;
    // Threads that poll take QPs from behind one that waits for a timer, and list them again, until
    // the progress thread has a turn. So the ring may be mostly null pointers, and full.
    if (g_ring_tail - g_ring_head >=
        std::min(device::kMaxQps, 2 * g_pending.load(std::memory_order_relaxed) + kGaps))
        [[unlikely]]
        close_gaps();
    SOFTHCA_ASSERT(g_ring_tail - g_ring_head < device::kMaxQps,
                   "this QP is not on the ring, which has room for all QPs");
    local.pending.store(true, std::memory_order_relaxed);
    g_ring[g_ring_tail++ & (device::kMaxQps - 1)] = &local;
    g_pending.fetch_add(1, std::memory_order_release);
}

}  // namespace

void add_pending(Fabric& fabric, LocalQp& local) noexcept {
    push(local);
    // The progress thread clears the bell before it looks at the list, and looks at the bell before
    // it sleeps.
    if (!LateWake::may_wait(fabric, local)) device::ring_bell(fabric, fabric.slot());
}

void remove_pending(LocalQp& local) noexcept {
    Guard<SpinLock> guard(g_list_lock);
    for (std::uint32_t at = g_ring_head; at != g_ring_tail; ++at) {
        LocalQp*& entry = g_ring[at & (device::kMaxQps - 1)];
        if (entry != &local) continue;
        entry = nullptr;
        left_ring(local);
    }
    if (!g_pending.load(std::memory_order_relaxed)) g_ring_head = g_ring_tail;
}

namespace {

void run_listed(Fabric& fabric, Runner runner, unsigned most, unsigned left) noexcept {
    for (; left; --left) {
        LocalQp* local = runner == Runner::kProgress ? pop() : pop_runnable(fabric, most);
        if (!local) return;
        // Read without the run lock: a stale value is one operation counted too much.
        if (local->waiting == WaitReason::kDeferred) {
            if (runner == Runner::kProgress)
                LateWake::taken_by_thread();
            else
                LateWake::taken_by_poll(device::now_ns());
        }
        if (run_send_queue(fabric, *local, runner) != Ran::kPending) continue;
        if (runner == Runner::kProgress)
            push(*local);
        else
            add_pending(fabric, *local);  // the thread may be asleep with no deadline
    }
}

}  // namespace

void run_pending(Fabric& fabric, Runner runner, unsigned most) noexcept {
    const unsigned left = std::min(most, g_pending.load(std::memory_order_relaxed));
    if (!left) return;
    if (runner == Runner::kProgress) g_progress_works.store(true, std::memory_order_relaxed);
    run_listed(fabric, runner, most, left);
    if (runner == Runner::kProgress) g_progress_works.store(false, std::memory_order_relaxed);
}

void run_or_list(Fabric& fabric, LocalQp& local, Runner runner) noexcept {
    if (runner == Runner::kPoster && leaves_all_to_thread(local.engine)) {
        add_pending(fabric, local);
        return;
    }
    if (run_send_queue(fabric, local, runner) == Ran::kPending) add_pending(fabric, local);
}

PendingTimers pending_timers(Fabric& fabric) noexcept {
    PendingTimers timers;
    Guard<SpinLock> guard(g_list_lock);
    for (std::uint32_t at = g_ring_head; at != g_ring_tail; ++at) {
        const LocalQp* local = g_ring[at & (device::kMaxQps - 1)];
        if (!local) continue;
        // This thread reads it without the run lock: a stale value costs one round.
        if (local->waiting == WaitReason::kRnr || local->waiting == WaitReason::kNoResponse)
            timers.deadline = std::min(timers.deadline, goes_on_at(fabric, *local));
        else
            timers.busy = true;
    }
    return timers;
}

void forget_pending_after_fork() noexcept {
    g_list_lock.unlock();  // a thread that is not in the child may have held it
    g_ring_head = g_ring_tail = 0;
    g_pending.store(0);
    g_progress_works.store(false);
}

}  // namespace softhca::engine
