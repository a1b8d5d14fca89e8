// SPDX-License-Identifier: BSD-2-Clause
// What a process keeps for each of its own QPs besides the object in the fabric: the run lock of
// its send queue, where its queues are mapped, and the state of the work request under way.
#pragma once

#include <endian.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "softhca/base/options.h"
#include "softhca/base/tsan.h"
#include "softhca/device/fabric.h"
#include "softhca/device/lock.h"
#include "softhca/device/relaxed_hint.h"
#include "softhca/engine/completion.h"
#include "softhca/engine/spans.h"

namespace softhca::engine {

// A work request whose effects are done but whose completions are not all written, because a peer
// held the lock of a completion queue. Run lock.
struct Unfinished {
    device::RelaxedHint<bool> active = false;
    bool receive_pending = false;       // `receive` must go to receive_cq
    bool send_pending = false;          // `send` must go to the send CQ
    bool responder_failed = false;      // the target QP goes to error after its completion
    bool requester_failed = false;      // and so does ours
    std::uint32_t responder_event = 0;  // asynchronous event for the target's owner, or 0
    std::uint32_t receive_cq = device::kNone;
    std::uint32_t receive_cq_generation = 0;
    std::uint32_t target = device::kNone;  // QP whose in_flight mark is to be cleared
    std::uint32_t target_generation = 0;  // it may be gone, and its place taken, before we are done
    std::uint32_t basic_blocks = 0;       // by how much the send queue's consumer moves on
    Completion receive;
    Completion send;
};

enum class Waiting : std::uint8_t { kNo, kRnr, kNoResponse, kBusy, kDeferred };

struct alignas(64) LocalQp {
    device::SpinLock run_lock;
    std::uint32_t index;  // in Segment.qps
    std::uint32_t number;
    std::atomic<bool> dead{false};     // being destroyed; set under run_lock
    std::atomic<bool> pending{false};  // on the progress list
    std::atomic<bool> direct{false};   // posts may come past the ops table: the record is polled
    // Its poster has called softhca_doorbell() and will again: polled for what that cannot tell.
    std::atomic<bool> announced{false};

    // written at creation
    std::byte* send_ring;              // or nullptr: no send queue
    const std::uint32_t* send_record;  // big-endian producer counter
    void* posters_record;              // the same word where its owner sees it: for tsan_acquire()
    std::uint32_t ring_blocks;
    std::uint64_t user_handle;  // of its owner's ibv_qp
    bool takes_blueflame;
    bool checks_register;  // trait `shared-uuar`
    EnginePolicy engine;
    std::uint64_t most_by_fast_path;  // bytes

    // Run lock. What is a RelaxedHint is read without it, too.
    Unfinished unfinished;
    device::RelaxedHint<Waiting> waiting = Waiting::kNo;
    // Not before wait_until; and then at look_at, or as soon as the process has been told of other
    // posts than posts_seen (srq_waiters.h).
    device::RelaxedHint<std::uint64_t> wait_until = std::uint64_t{0}, look_at = std::uint64_t{0};
    device::RelaxedHint<std::uint32_t> posts_seen = std::uint32_t{0};
    std::uint8_t rnr_left = 0, retry_left = 0;
    bool counting_rnr = false, counting_retries = false;
    // A message that no receive waits for: held until then (0: none is); and the QP for which that
    // was in vain.
    std::uint64_t held_until = 0;
    std::uint32_t in_vain = 0;
    Reach source, remote, receive;     // of small messages: what they were sent from, and where to
    std::uint64_t doorbells_seen = 0;  // of posts past the ops table: changes of the record seen
    std::uint16_t counted_producer = 0;

    // by the progress thread
    std::uint64_t peer_lost_at = 0;
};

// The request under way is done with: the next one's attempts and waits begin anew. Run lock.
inline void restart_counters(LocalQp& local) noexcept {
    local.counting_rnr = local.counting_retries = false;
    local.waiting = Waiting::kNo;
    local.held_until = 0;
}

// Own QPs by table index. A pointer is set when the QP is made and cleared when it is destroyed;
// who reads it is inside an epoch, and the LocalQp is freed after synchronize_own().
extern std::atomic<LocalQp*> g_local_qps[device::kMaxQps];
extern std::atomic<std::uint32_t> g_local_qps_high;

inline LocalQp* local_qp(std::uint32_t number) noexcept {
    LocalQp* qp = g_local_qps[number & (device::kMaxQps - 1)].load(std::memory_order_acquire);
    return qp && qp->number == number ? qp : nullptr;
}

// The send queue's producer counter, as the owner's doorbell record says.
inline std::uint16_t posted_so_far(const LocalQp& local) noexcept {
    const std::uint32_t counter = std::atomic_ref(*const_cast<std::uint32_t*>(local.send_record))
                                      .load(std::memory_order_acquire);
    tsan_acquire(local.posters_record);
    return static_cast<std::uint16_t>(be32toh(counter));
}

// Called when a QP or CQ of this process has been made or is about to go.
LocalQp* add_local_qp(device::Fabric& fabric, std::uint32_t index) noexcept;
void remove_local_qp(std::uint32_t index) noexcept;  // waits until nobody uses it, then frees it
void forget_local_qps_after_fork() noexcept;

// The send queue pauses: the request under way gets its completions. Under the run lock, inside an
// epoch.
void finish_started(device::Fabric& fabric, LocalQp& local) noexcept;
// The QP goes away or back to the beginning in the middle of a request: what the other side is owed
// is done. Under the run lock, inside an epoch.
void abandon_unfinished(device::Fabric& fabric, LocalQp& local) noexcept;

}  // namespace softhca::engine
