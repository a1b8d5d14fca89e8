// SPDX-License-Identifier: BSD-2-Clause
// The send queues of this process that wait for something: a timer (RNR, ack timeout), a lock that
// a peer held, or a thread with time for a large copy. The progress thread takes them in turn, and
// so do threads that poll an empty CQ.
#pragma once

#include <atomic>
#include <cstdint>

#include "softhca/device/epoch.h"
#include "softhca/device/fabric.h"
#include "softhca/device/reclaim.h"
#include "softhca/engine/local.h"
#include "softhca/engine/requester.h"

namespace softhca::engine {

// Puts a QP on the list (once), and wakes the thread if it sleeps and the QP must not wait for a
// poll (late_wake.h).
void add_pending(device::Fabric& fabric, LocalQp& local) noexcept;
void remove_pending(LocalQp& local) noexcept;

extern std::atomic<std::uint32_t> g_pending;  // how many are on the list
// The progress thread executes what is on the list. A thread that polls meanwhile has nothing to
// do, and on processors that share a core it would slow the copy down.
extern std::atomic<bool> g_progress_works;
// The program may sleep until one of its CQs has an event: what waits for a poll waits no longer.
inline void program_may_sleep(device::Fabric& fabric) noexcept {
    if (g_pending.load(std::memory_order_relaxed)) device::ring_bell(fabric, fabric.slot());
}
// Gives up to `most` of them a turn. Inside an epoch.
void run_pending(device::Fabric& fabric, Runner runner, unsigned most) noexcept;

// The caller has found its CQ empty. Executes what is on the list, or pauses for less than a
// microsecond while the progress thread does (see g_progress_works). True: the caller should look
// at the CQ again.
inline bool work_while_empty() noexcept {
    if (g_pending.load(std::memory_order_relaxed)) {
        device::Fabric* fabric = device::Fabric::current();
        if (!fabric || options().engine == EnginePolicy::kDedicated) return false;
        device::epoch::Section section;
        run_pending(*fabric, Runner::kPoller, 4);
        return true;
    }
    if (g_progress_works.load(std::memory_order_relaxed))
        for (int i = 0; i < 24; ++i)
            device::cpu_relax();
    return false;
}

// Runs a QP now if the engine's mode and the runner allow, and lists it if it has to wait.
void run_or_list(device::Fabric& fabric, LocalQp& local, Runner runner) noexcept;

// For how long there is nothing to do for the list.
struct PendingTimers {
    std::uint64_t deadline = ~0ull;  // the earliest timer; now_ns()
    bool busy = false;               // a QP waits for a lock, or for its turn
};
PendingTimers pending_timers(device::Fabric& fabric) noexcept;

void forget_pending_after_fork() noexcept;

}  // namespace softhca::engine
