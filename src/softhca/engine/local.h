// SPDX-License-Identifier: BSD-2-Clause
// The process's own state of each of its QPs, besides the object in the fabric: the run lock of its
// send queue, where its queues are mapped, and the state of the current work request.
#pragma once

#include <endian.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "softhca/base/assert.h"
#include "softhca/base/options.h"
#include "softhca/base/tsan.h"
#include "softhca/device/fabric.h"
#include "softhca/device/lock.h"
#include "softhca/device/relaxed_hint.h"
#include "softhca/engine/completion.h"
#include "softhca/engine/dci_streams.h"
#include "softhca/engine/spans.h"
#include "softhca/record/text.h"

namespace softhca::engine {

// A work request that has taken effect, but not all of whose completions are written, because a
// peer held the lock of a completion queue. Guarded by the run lock.
struct Unfinished {
    device::RelaxedHint<bool> active = false;
    bool receive_pending = false;       // `receive` must go to receive_cq
    bool send_pending = false;          // `send` must go to the send CQ
    bool responder_failed = false;      // the target QP goes to error after its completion
    bool requester_failed = false;      // and so does our QP
    std::uint32_t responder_event = 0;  // asynchronous event for the target's owner, or 0
    std::uint32_t receive_cq = device::kNone;
    std::uint32_t receive_cq_generation = 0;
    std::uint32_t target = device::kNone;  // the QP whose in_flight mark must be cleared
    std::uint32_t target_generation = 0;   // the target may be freed and its slot reused meanwhile
    std::uint32_t basic_blocks = 0;        // by how much the send queue's consumer advances
    Completion receive;
    Completion send;
};

// A datagram to a multicast group, between two attempts to deliver it: the members that have still
// to get it. Guarded by the run lock. See multicast.h.
struct GroupSend {
    static constexpr unsigned kWords = (device::kMaxGroupMembers + 63) / 64;
    bool is_begun = false;
    std::uint32_t entry = 0;              // sq_consumer of its WQE
    std::uint32_t group = device::kNone;  // of this datagram, and of the last one
    std::uint32_t joins = 0;              // only members that joined before get it
    std::uint64_t left[kWords] = {};      // by place in the group
    // Those for which holding a datagram was in vain, as LocalQp.in_vain.
    std::uint64_t in_vain[kWords] = {};
};

// What a send queue waits for; kNo: for nothing.
enum class WaitReason : std::uint8_t { kNo, kRnr, kNoResponse, kBusy, kDeferred };

struct alignas(64) LocalQp {
    device::SpinLock run_lock;
    std::uint32_t index;  // in Segment.qps
    std::uint32_t number;
    std::atomic<bool> dead{false};     // being destroyed; set under run_lock
    std::atomic<bool> pending{false};  // on the progress list
    std::atomic<bool> direct{false};   // posts may bypass the ops table: the record is polled
    // The posting thread has called softhca_doorbell() and will again. The record is polled only
    // for what the call cannot tell.
    std::atomic<bool> announced{false};

    // Written at creation:
    std::byte* send_ring;              // nullptr: no send queue
    const std::uint32_t* send_record;  // big-endian producer counter
    void* posters_record;              // the same word at its owner's address: for tsan_acquire()
    std::uint32_t ring_blocks;
    std::uint64_t user_handle;  // of its owner's ibv_qp
    bool takes_blueflame;
    bool checks_register;  // trait `shared-uuar`
    EnginePolicy engine;
    std::uint64_t most_by_fast_path;  // bytes

    // Guarded by the run lock. A RelaxedHint is also read without it, as a hint.
    Unfinished unfinished;
    device::RelaxedHint<WaitReason> waiting = WaitReason::kNo;
    // The queue waits until wait_until. Then it continues at look_at, or as soon as the process's
    // number of notified posts differs from posts_seen (srq_waiters.h).
    device::RelaxedHint<std::uint64_t> wait_until = std::uint64_t{0}, look_at = std::uint64_t{0};
    device::RelaxedHint<std::uint32_t> posts_seen = std::uint32_t{0};
    std::uint8_t rnr_left = 0, retry_left = 0;
    bool counting_rnr = false, counting_retries = false;
    DciStreams streams;
    // A message for which no receive is posted is held until then (0: none is held). The second is
    // the QP for which holding one was in vain.
    std::uint64_t held_until = 0;
    bool holds = true;  // false: the QP is being destroyed
    std::uint32_t in_vain = 0;
    GroupSend group_send;
    // The memory of the last messages of the fast path: SENDs and WRITEs, then READs.
    Reach source, remote, receive, read_into, read_from;
    std::uint64_t doorbells_seen = 0;  // changes of the record by posts that bypass the ops table
    std::uint16_t counted_producer = 0;

    // The run record (recording.h), written by posting threads. The first one describes the QP, and
    // others wait until it has.
    enum Description : std::uint8_t { kMissing, kBegun, kThere };
    std::atomic<std::uint8_t> description{kMissing};
    std::atomic<std::uint16_t> recorded_to{0};  // the send queue's producer at the last event
    // Written at creation, where the kernel knows them: driver_locks.h.
    record::Locked lock = record::Locked::kUnknown, uuar_lock = record::Locked::kUnknown;

    // Written by the progress thread:
    std::uint64_t peer_lost_at = 0;
};

inline std::size_t ring_bytes(const LocalQp& local) noexcept {
    return std::size_t{local.ring_blocks} * 64;
}

// The current request is done, so attempts and waits of the next one begin at zero. The caller
// holds the run lock.
inline void restart_counters(LocalQp& local) noexcept {
    SOFTHCA_DEBUG_ASSERT(local.run_lock.is_locked(), "the run lock guards the counters");
    local.counting_rnr = local.counting_retries = false;
    local.waiting = WaitReason::kNo;
    local.held_until = 0;
}

// This process's QPs by table index. A pointer is set when the QP is created and cleared when it is
// destroyed. A reader is inside an epoch, and the LocalQp is freed after synchronize_own().
extern std::atomic<LocalQp*> g_local_qps[device::kMaxQps];
extern std::atomic<std::uint32_t> g_local_qps_high;

inline LocalQp* local_qp(std::uint32_t number) noexcept {
    LocalQp* qp = g_local_qps[number & (device::kMaxQps - 1)].load(std::memory_order_acquire);
    return qp && qp->number == number ? qp : nullptr;
}

// The send queue's producer counter, from the owner's doorbell record.
inline std::uint16_t posted_so_far(const LocalQp& local) noexcept {
    SOFTHCA_DEBUG_ASSERT(local.send_record, "the QP has a send queue");
    const std::uint32_t counter = std::atomic_ref(*const_cast<std::uint32_t*>(local.send_record))
                                      .load(std::memory_order_acquire);
    tsan_acquire(local.posters_record);
    return static_cast<std::uint16_t>(be32toh(counter));
}

// Call these when a QP of this process has been created, and before it is destroyed.
LocalQp* add_local_qp(device::Fabric& fabric, std::uint32_t index) noexcept;
void remove_local_qp(std::uint32_t index) noexcept;  // waits until no thread uses it, then frees it
void forget_local_qps_after_fork() noexcept;

// The QP is destroyed: sends what waits because a receiver has no receive, without waiting longer.
// The caller holds the run lock and is inside an epoch.
void send_what_is_held(device::Fabric& fabric, LocalQp& local) noexcept;
// The QP is destroyed or reset during a request: completes what the other side is owed. The caller
// holds the run lock and is inside an epoch.
void abandon_unfinished(device::Fabric& fabric, LocalQp& local) noexcept;

}  // namespace softhca::engine
