// SPDX-License-Identifier: BSD-2-Clause
// The progress thread: see progress.h.
#include "softhca/engine/progress.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/futex.h>
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "softhca/base/left_behind.h"
#include "softhca/base/log.h"
#include "softhca/base/options.h"
#include "softhca/device/epoch.h"
#include "softhca/device/memory/sharing.h"
#include "softhca/device/peers.h"
#include "softhca/device/reclaim.h"
#include "softhca/engine/awaited.h"
#include "softhca/engine/packets.h"
#include "softhca/engine/qp_error.h"
#include "softhca/engine/queue_memory.h"
#include "softhca/engine/receive.h"

namespace softhca::engine {

using device::Fabric;
using device::Guard;
using device::QueuePair;
using device::SpinLock;

std::atomic<LocalQp*> g_local_qps[device::kMaxQps];
std::atomic<std::uint32_t> g_local_qps_high{0};
std::atomic<std::uint32_t> g_pending{0};
std::atomic<bool> g_progress_works{false};

namespace {

constexpr std::uint64_t kMicrosecond = 1'000, kMillisecond = 1'000'000;
constexpr std::uint64_t kLivenessPeriod = 100 * kMillisecond;
constexpr std::uint64_t kCrowdedLeast = 50 * kMillisecond, kCrowdedMost = 5000 * kMillisecond;
constexpr std::uint64_t kLate = 300 * kMicrosecond;
// QPs whose doorbells are announced: for receives posted to one that has failed.
constexpr std::uint64_t kSeldomPeriod = 10 * kMillisecond;

SpinLock g_list_lock;              // the ring, g_direct, g_channel_cqs
LocalQp* g_ring[device::kMaxQps];  // a QP is on it at most once
std::uint32_t g_ring_head = 0, g_ring_tail = 0;
std::vector<LocalQp*>* g_direct = nullptr;
std::vector<std::uint32_t>* g_channel_cqs = nullptr;

std::atomic<bool> g_started{false}, g_stop{false};
pthread_t g_thread;

LocalQp* pop() noexcept {
    Guard<SpinLock> guard(g_list_lock);
    while (g_ring_head != g_ring_tail) {
        LocalQp* local = g_ring[g_ring_head++ & (device::kMaxQps - 1)];
        if (!local) continue;  // removed
        g_pending.fetch_sub(1, std::memory_order_relaxed);
        local->pending.store(false, std::memory_order_release);
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
        if (local->waiting == Waiting::kRnr || local->waiting == Waiting::kNoResponse) {
            if (!now) now = device::now_ns();
            if (!may_go_on(fabric, *local, now)) continue;
        }
        entry = nullptr;
        if (at == g_ring_head) ++g_ring_head;
        g_pending.fetch_sub(1, std::memory_order_relaxed);
        local->pending.store(false, std::memory_order_release);
        return local;
    }
    return nullptr;
}

void push(LocalQp& local) noexcept {
    Guard<SpinLock> guard(g_list_lock);
    if (local.pending.load(std::memory_order_relaxed) || local.dead.load(std::memory_order_relaxed))
        return;
    local.pending.store(true, std::memory_order_relaxed);
    g_ring[g_ring_tail++ & (device::kMaxQps - 1)] = &local;
    g_pending.fetch_add(1, std::memory_order_release);
}

std::uint64_t patience_ns(const QueuePair& qp) noexcept {
    const std::uint64_t one = std::uint64_t{4096}
                              << (qp.attr.timeout ? (qp.attr.timeout & 31) : 17);
    return one * (qp.attr.retry_cnt + 1u);
}

// What the thread knows between rounds.
struct Rounds {
    std::uint64_t next_liveness = 0;
    std::uint64_t last_direct_work = 0;
    bool busy = false;        // somebody waits for a lock
    bool had_others = false;  // there were other processes at the last look
    std::uint64_t deadline = ~0ull;
    // Programs spin on all processors: see direct_pause().
    std::uint64_t crowded_until = 0, crowded_for = kCrowdedLeast;
};

void look_at_attention(Fabric& fabric) noexcept {
    if (!fabric.self().attention.exchange(0, std::memory_order_acquire)) return;
    const std::uint32_t high = g_local_qps_high.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < high; ++i) {
        LocalQp* local = g_local_qps[i].load(std::memory_order_acquire);
        if (!local) continue;
        QueuePair& qp = fabric.segment().qps[i];
        const std::uint32_t what = qp.attention.exchange(0, std::memory_order_acquire);
        if (what & device::kAttentionState) {
            run_or_list(fabric, *local, Runner::kProgress);
            if (qp.state.load(std::memory_order_acquire) == IBV_QPS_ERR) flush_receives(fabric, i);
        }
    }
}

// QPs in error whose sender died in the middle of a message after that.
void finish_broken_off(Fabric& fabric) noexcept {
    device::epoch::Section section;
    const std::uint32_t high = g_local_qps_high.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < high; ++i) {
        QueuePair& qp = fabric.segment().qps[i];
        if (g_local_qps[i].load(std::memory_order_acquire) == nullptr ||
            qp.last_receive_owed.load(std::memory_order_relaxed) == 0)
            continue;
        flush_receives(fabric, i);
        last_wqe_reached(fabric, qp);
    }
}

// Has this QP a connection on which it may wait for messages?
bool waits_for_peer(const QueuePair& qp) noexcept {
    const std::uint32_t state = qp.state.load(std::memory_order_acquire);
    return qp.type != IB_UVERBS_QPT_UD && qp.type != IB_UVERBS_QPT_XRC_INI &&
           state >= IBV_QPS_RTR && state <= IBV_QPS_SQE;
}

// SOFTHCA_LOST_PEER=flush: a connected QP whose peer's QP is no more hears nothing again. As long
// as its own retries would take it may hope, then it fails, so that a program that only receives
// learns of it. In which state the other one went makes no difference: its number tells.
void fail_lost(Fabric& fabric) noexcept {
    const std::uint64_t now = device::now_ns();
    const std::uint32_t high = g_local_qps_high.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < high; ++i) {
        LocalQp* local = g_local_qps[i].load(std::memory_order_acquire);
        if (!local) continue;
        const QueuePair& qp = fabric.segment().qps[i];
        // Only a state that has a connection may be followed by a look at it: until then another
        // thread may be writing it (modify_qp).
        const bool waits = waits_for_peer(qp);
        const std::uint32_t number = waits ? qp.attr.dest_qpn : 0;
        const QueuePair& peer = fabric.segment().qps[number & (device::kMaxQps - 1)];
        if (!waits || (peer.head.live() && peer.number == number)) {
            local->peer_lost_at = 0;
        } else if (!local->peer_lost_at) {
            local->peer_lost_at = now;
        } else if (now >= local->peer_lost_at + patience_ns(qp) && !has_work(qp, *local)) {
            LOG_DEBUG("QP 0x%x: its peer is gone", qp.number);  // (a sender's own retries end it)
            fail_qp(fabric, i, kNoEvent, false);
        }
    }
}

enum class Polling { kNo, kSeldom, kOften };

Polling poll_direct(Fabric& fabric, Rounds& rounds) noexcept {
    bool worked = false, all_announced = true;
    std::size_t count;
    {
        Guard<SpinLock> guard(g_list_lock);
        count = g_direct ? g_direct->size() : 0;
    }
    for (std::size_t i = 0; i < count; ++i) {
        LocalQp* local = nullptr;
        {
            Guard<SpinLock> guard(g_list_lock);
            if (i < g_direct->size()) local = (*g_direct)[i];
        }
        if (!local) continue;
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
            Guard<SpinLock> guard(g_list_lock);
            cqs = g_channel_cqs ? g_channel_cqs->size() : 0;
        }
        for (std::size_t i = 0; i < cqs; ++i) {
            std::uint32_t cq = device::kNone;
            {
                Guard<SpinLock> guard(g_list_lock);
                if (i < g_channel_cqs->size()) cq = (*g_channel_cqs)[i];
            }
            if (cq != device::kNone) check_armed(fabric, cq);
        }
    }
    if (worked) rounds.last_direct_work = device::now_ns();
    if (count == 0) return Polling::kNo;
    return all_announced ? Polling::kSeldom : Polling::kOften;
}

void earliest_timer(Fabric& fabric, Rounds& rounds) noexcept {
    Guard<SpinLock> guard(g_list_lock);
    for (std::uint32_t at = g_ring_head; at != g_ring_tail; ++at) {
        const LocalQp* local = g_ring[at & (device::kMaxQps - 1)];
        if (!local) continue;
        // read without the run lock: a stale value costs one round
        if (local->waiting == Waiting::kRnr || local->waiting == Waiting::kNoResponse)
            rounds.deadline = std::min(rounds.deadline, goes_on_at(fabric, *local));
        else
            rounds.busy = true;
    }
}

bool others_alive(Fabric& fabric) noexcept {
    const std::uint32_t high = fabric.segment().processes_high.load(std::memory_order_acquire);
    for (std::uint32_t slot = 0; slot < high && slot < device::kMaxProcesses; ++slot)
        if (slot != fabric.slot() &&
            fabric.segment().processes[slot].state.load(std::memory_order_acquire) == device::kLive)
            return true;
    return false;
}

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

// How late a short sleep ended tells whether there are processors to spare. What was found out
// holds for a while, longer each time that trying again shows the same.
void learn_from_sleep(Rounds& rounds, std::uint64_t deadline) noexcept {
    const std::uint64_t now = device::now_ns();
    if (now < deadline + kLate || now < rounds.crowded_until) return;
    const bool again = now < rounds.crowded_until + rounds.crowded_for;
    rounds.crowded_for = again ? std::min(2 * rounds.crowded_for, kCrowdedMost) : kCrowdedLeast;
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
        rounds.busy = false;
        rounds.deadline = ~0ull;
        Polling polling;
        {
            device::memory::SharingPause pause;
            device::epoch::Section section;
            look_at_attention(*fabric);
            run_pending(*fabric, Runner::kProgress, device::kMaxQps);
            polling = poll_direct(*fabric, rounds);
            earliest_timer(*fabric, rounds);
        }
        const std::uint64_t now = device::now_ns();
        const bool others = others_alive(*fabric);
        const bool flushes = options().lost_peer == LostPeerPolicy::kFlush;
        if (others || rounds.had_others || flushes) {
            if (now >= rounds.next_liveness) {
                fabric->reclaim_dead();
                device::peers::collect();
                if (by_packets()) finish_broken_off(*fabric);
                if (flushes) {
                    device::memory::SharingPause pause;
                    device::epoch::Section section;
                    fail_lost(*fabric);
                }
                rounds.next_liveness = now + kLivenessPeriod;
                rounds.had_others = others;
            }
            rounds.deadline = std::min(rounds.deadline, rounds.next_liveness);
        }
        if (rounds.busy) {
            if (++busy_rounds < 100) {
                sched_yield();
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
            sched_yield();  // the processor may be another's, too
            continue;
        }
        sleep_until_rung(*fabric, rounds.deadline);
        if (polling == Polling::kOften) learn_from_sleep(rounds, rounds.deadline);
    }
    return nullptr;
}

}  // namespace

void add_pending(Fabric& fabric, LocalQp& local) noexcept {
    push(local);
    device::Process& self = fabric.self();
    // the thread clears the bell before it looks at the list, and looks at the bell before it
    // sleeps
    self.bell.store(1, std::memory_order_seq_cst);
    if (self.sleeping.load(std::memory_order_seq_cst))
        syscall(SYS_futex, &self.bell, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void remove_pending(LocalQp& local) noexcept {
    Guard<SpinLock> guard(g_list_lock);
    for (std::uint32_t at = g_ring_head; at != g_ring_tail; ++at) {
        LocalQp*& entry = g_ring[at & (device::kMaxQps - 1)];
        if (entry != &local) continue;
        entry = nullptr;
        g_pending.fetch_sub(1, std::memory_order_relaxed);
        local.pending.store(false, std::memory_order_relaxed);
    }
    if (!g_pending.load(std::memory_order_relaxed)) g_ring_head = g_ring_tail;
}

namespace {

void run_listed(Fabric& fabric, Runner runner, unsigned most, unsigned left) noexcept {
    for (; left; --left) {
        LocalQp* local = runner == Runner::kProgress ? pop() : pop_runnable(fabric, most);
        if (!local) return;
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

void mark_direct(Fabric& fabric, LocalQp& local) noexcept {
    if (!local.send_ring) return;
    {
        Guard<SpinLock> guard(g_list_lock);
        if (local.direct.exchange(true)) return;
        if (!g_direct) g_direct = new std::vector<LocalQp*>;
        g_direct->push_back(&local);
    }
    device::ring_bell(fabric, fabric.slot());
}

void forget_direct(LocalQp& local) noexcept {
    Guard<SpinLock> guard(g_list_lock);
    if (g_direct) std::erase(*g_direct, &local);
}

void watch_channel_cq(std::uint32_t cq) noexcept {
    Guard<SpinLock> guard(g_list_lock);
    if (!g_channel_cqs) g_channel_cqs = new std::vector<std::uint32_t>;
    g_channel_cqs->push_back(cq);
}

void unwatch_channel_cq(std::uint32_t cq) noexcept {
    Guard<SpinLock> guard(g_list_lock);
    if (g_channel_cqs) std::erase(*g_channel_cqs, cq);
}

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

void stop_progress() noexcept {
    if (!g_started.load()) return;
    Fabric* fabric = Fabric::current();
    if (!fabric) return;
    g_stop.store(true, std::memory_order_seq_cst);
    device::ring_bell(*fabric, fabric->slot());
    timespec limit{};
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 2;
    pthread_timedjoin_np(g_thread, nullptr, &limit);
    device::memory::set_own_threads(0);
    g_started.store(false);
}

void forget_progress_after_fork() noexcept {
    g_list_lock.unlock();  // a thread that is not in the child may have held it
    g_started.store(false);
    g_stop.store(false);
    g_ring_head = g_ring_tail = 0;
    g_pending.store(0);
    g_progress_works.store(false);
    leave_behind(g_direct);
    leave_behind(g_channel_cqs);
    g_direct = nullptr;
    g_channel_cqs = nullptr;
    const std::uint32_t high = g_local_qps_high.load();
    for (std::uint32_t i = 0; i < high; ++i)
        leave_behind(g_local_qps[i].exchange(nullptr));
}

LocalQp* add_local_qp(Fabric& fabric, std::uint32_t index) noexcept {
    QueuePair& qp = fabric.segment().qps[index];
    auto* local = new (std::nothrow) LocalQp;
    if (!local) return nullptr;
    const std::uint32_t sq_count = qp.sq_count;
    local->index = index;
    local->number = qp.number;
    local->engine = options().engine;
    local->most_by_short_cut = by_packets() ? kSmallestPacket : device::kMaxMessage;
    local->send_ring = nullptr;
    local->send_record = nullptr;
    local->posters_record = nullptr;
    local->ring_blocks = sq_count;
    local->user_handle = qp.user_handle;
    local->takes_blueflame = qp.blueflame;
    local->checks_register = options().device.has(DeviceTrait::kSharedUuar);
    if (sq_count) {
        local->send_ring = queue_pointer(fabric, fabric.slot(), qp.buffer, qp.sq_offset,
                                         std::uint64_t{sq_count} * 64);
        local->send_record = reinterpret_cast<const std::uint32_t*>(
            queue_words(fabric, fabric.slot(), qp.record, 4, 4));
        local->posters_record = reinterpret_cast<void*>(qp.record.address + 4);
        if (!local->send_ring || !local->send_record) {
            delete local;
            return nullptr;
        }
    }
    g_local_qps[index].store(local, std::memory_order_release);
    std::uint32_t high = g_local_qps_high.load();
    while (high <= index && !g_local_qps_high.compare_exchange_weak(high, index + 1)) {
    }
    return local;
}

void remove_local_qp(std::uint32_t index) noexcept {
    LocalQp* local = g_local_qps[index].load(std::memory_order_acquire);
    if (!local) return;
    local->run_lock.lock();
    if (Fabric* fabric = Fabric::current()) {
        device::epoch::Section section;
        abandon_unfinished(*fabric, *local);
    }
    local->dead.store(true, std::memory_order_seq_cst);
    local->run_lock.unlock();
    g_local_qps[index].store(nullptr, std::memory_order_release);
    remove_pending(*local);
    forget_direct(*local);
    if (device::epoch::synchronize_own()) delete local;  // else a stopped thread may still hold it
}

}  // namespace softhca::engine
