// SPDX-License-Identifier: BSD-2-Clause
// The progress thread: see progress.h.
#include "softhca/engine/progress.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "common/give_way.h"
#include "softhca/base/assert.h"
#include "softhca/base/log.h"
#include "softhca/base/options.h"
#include "softhca/device/epoch.h"
#include "softhca/device/memory/sharing.h"
#include "softhca/device/peers.h"
#include "softhca/device/reclaim.h"
#include "softhca/engine/direct_polling.h"
#include "softhca/engine/late_wake.h"
#include "softhca/engine/packets.h"
#include "softhca/engine/peer_watch.h"
#include "softhca/engine/pending_list.h"
#include "softhca/engine/port_events.h"

namespace softhca::engine {

using device::Fabric;

namespace {

constexpr std::uint64_t kMicrosecond = 1'000, kMillisecond = 1'000'000;
constexpr std::uint64_t kLivenessPeriod = 100 * kMillisecond;
constexpr std::uint64_t kCrowdedLeast = 50 * kMillisecond, kCrowdedMost = 5000 * kMillisecond;
constexpr std::uint64_t kLate = 300 * kMicrosecond;

std::atomic<bool> g_started{false}, g_stop{false};
pthread_t g_thread;
using Watch = void(Fabric&) noexcept;
std::atomic<Watch*> g_watch{nullptr};

// What the thread knows between rounds.
struct Rounds {
    std::uint64_t next_liveness = 0;
    std::uint64_t last_direct_work = 0;
    bool busy = false;        // a QP waits for a lock
    bool had_others = false;  // there were other processes at the last look
    std::uint64_t deadline = ~0ull;
    // Programs spin on all processors: see direct_pause().
    std::uint64_t crowded_until = 0, crowded_for = kCrowdedLeast;
};

// How long posts past the ops table may go unseen: shorter the more recent the last one is. Where
// programs spin on all processors, the scheduler runs a thread that wakes at once only if it has
// used less than its share; one that has not waits for a time slice, milliseconds. There we sleep
// several times as long as a round takes, always.
std::uint64_t direct_pause(std::uint64_t idle, bool crowded) noexcept {
    if (idle < 10 * kMicrosecond && !crowded) return 0;
    if (idle < 2 * kMillisecond) return (crowded ? 25 : 5) * kMicrosecond;
    if (idle < 20 * kMillisecond) return 50 * kMicrosecond;
    if (idle < 1000 * kMillisecond) return 500 * kMicrosecond;
    return 2 * kMillisecond;
}

// If a short sleep ends late, there are no processors to spare. This holds for a while, longer each
// time that another sleep shows the same.
void learn_from_sleep(Rounds& rounds, std::uint64_t deadline) noexcept {
    const std::uint64_t now = device::now_ns();
    if (now < deadline + kLate || now < rounds.crowded_until) return;
    const bool again = now < rounds.crowded_until + rounds.crowded_for;
    rounds.crowded_for = again ? std::min(2 * rounds.crowded_for, kCrowdedMost) : kCrowdedLeast;
    SOFTHCA_ASSERT(rounds.crowded_for >= kCrowdedLeast && rounds.crowded_for <= kCrowdedMost,
                   "the time doubles between its bounds");
    rounds.crowded_until = now + rounds.crowded_for;
}

void sleep_until_rung(Fabric& fabric, std::uint64_t deadline) noexcept {
    device::Process& self = fabric.self();
    self.sleeping.store(1, std::memory_order_seq_cst);
    if (self.bell.load(std::memory_order_seq_cst) == 0 && !g_stop.load()) {
        timespec timeout{};
        timespec* limit = nullptr;
        if (deadline != ~0ull) {
            const std::uint64_t now = device::now_ns();
            const std::uint64_t left = deadline > now ? deadline - now : 0;
            timeout = {static_cast<time_t>(left / 1'000'000'000),
                       static_cast<long>(left % 1'000'000'000)};
            limit = &timeout;
        }
        syscall(SYS_futex, &self.bell, FUTEX_WAIT, 0, limit, nullptr, 0);
    }
    self.sleeping.store(0, std::memory_order_seq_cst);
}

// Latency matters more than throughput to this thread (Linux 6.12: a slice of one's own; before,
// the call is refused and nothing is lost).
void ask_for_short_slices() noexcept {
    struct {
        std::uint32_t size, policy;
        std::uint64_t flags;
        std::int32_t nice;
        std::uint32_t priority;
        std::uint64_t runtime, deadline, period;
    } attributes{};
    attributes.size = sizeof attributes;
    attributes.runtime = 100 * kMicrosecond;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

void* progress_main(void*) noexcept {
    Fabric* fabric = Fabric::current();
    prctl(PR_SET_NAME, "softhca", 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
    ask_for_short_slices();
    Rounds rounds;
    unsigned busy_rounds = 0;
    while (fabric && !g_stop.load(std::memory_order_acquire)) {
        fabric->self().bell.store(0, std::memory_order_seq_cst);
        Polling polling;
        {
            device::memory::SharingPause pause;
            device::epoch::Section section;
            look_at_attention(*fabric);
            report_port_changes(*fabric);
            run_pending(*fabric, Runner::kProgress, device::kMaxQps);
            polling = poll_direct(*fabric, rounds.last_direct_work);
            const PendingTimers timers = pending_timers(*fabric);
            rounds.deadline = timers.deadline;
            rounds.busy = timers.busy;
        }
        const std::uint64_t now = device::now_ns();
        const bool others = others_alive(*fabric);
        const bool flushes = options().lost_peer == LostPeerPolicy::kFlush;
        Watch* const watch = g_watch.load(std::memory_order_acquire);
        if (others || rounds.had_others || flushes || watch != nullptr) {
            if (now >= rounds.next_liveness) {
                fabric->reclaim_dead();
                device::peers::collect();
                if (by_packets()) finish_broken_off(*fabric);
                if (flushes) {
                    device::memory::SharingPause pause;
                    device::epoch::Section section;
                    fail_lost(*fabric);
                }
                if (watch != nullptr) watch(*fabric);
                rounds.next_liveness = now + kLivenessPeriod;
                rounds.had_others = others;
            }
            rounds.deadline = std::min(rounds.deadline, rounds.next_liveness);
        }
        if (rounds.busy) {
            if (++busy_rounds < 100) {
                common::give_way();
                continue;
            }
            rounds.deadline = std::min(rounds.deadline, now + 50 * kMicrosecond);
        } else {
            busy_rounds = 0;
        }
        if (polling == Polling::kSeldom) {
            rounds.deadline = std::min(rounds.deadline, now + kSeldomPeriod);
        } else if (polling == Polling::kOften) {
            const std::uint64_t pause =
                direct_pause(now - rounds.last_direct_work, now < rounds.crowded_until);
            if (pause == 0) {
                device::cpu_relax();
                continue;
            }
            rounds.deadline = std::min(rounds.deadline, now + pause);
        }
        if (options().engine == EnginePolicy::kDedicated) {
            common::give_way();  // the processor may be another's, too
            continue;
        }
        if (!LateWake::may_sleep(now, rounds.deadline)) continue;
        sleep_until_rung(*fabric, rounds.deadline);
        if (polling == Polling::kOften) learn_from_sleep(rounds, rounds.deadline);
    }
    return nullptr;
}

}  // namespace

void start_progress(Fabric&) noexcept {
    if (g_started.exchange(true)) return;
    g_stop.store(false);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);  // signals are the application's
    device::memory::set_own_threads(1);
    const int error = pthread_create(&g_thread, nullptr, progress_main, nullptr);
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    if (error) {
        LOG_ERROR("cannot start the progress thread: errno %d; what has to wait will not go on",
                  error);
        device::memory::set_own_threads(0);
        g_started.store(false);
    }
}

void set_watch(Fabric& fabric, Watch* watch) noexcept {
    g_watch.store(watch, std::memory_order_release);
    device::ring_bell(fabric, fabric.slot());
}

void stop_progress() noexcept {
    if (!g_started.load()) return;
    Fabric* fabric = Fabric::current();
    if (!fabric) return;
    g_stop.store(true, std::memory_order_seq_cst);
    SOFTHCA_ASSERT(!pthread_equal(pthread_self(), g_thread), "the thread does not wait for itself");
    device::ring_bell(*fabric, fabric->slot());
    timespec limit{};
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 2;
    pthread_timedjoin_np(g_thread, nullptr, &limit);
    device::memory::set_own_threads(0);
    g_started.store(false);
}

void forget_progress_after_fork() noexcept {
    g_started.store(false);
    g_stop.store(false);
    g_watch.store(nullptr);
    forget_pending_after_fork();
    LateWake::forget_after_fork();
    forget_direct_after_fork();
    forget_local_qps_after_fork();
}

}  // namespace softhca::engine
