// SPDX-License-Identifier: BSD-2-Clause
// The requester: takes WQEs from a send queue in order and executes them at once, on both sides. It
// finds the responder's QP in the fabric and does the responder's part, too (responder.h). The
// semantics are those of IBTA volume 1, chapters 9 (transport), 10.8 (completion), 11.6 (errors).
// retries.h has what a wire does over time.
#include "softhca/engine/requester.h"

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include <algorithm>

#include "softhca/base/assert.h"
#include "softhca/base/log.h"
#include "softhca/engine/fast_path.h"
#include "softhca/engine/multicast.h"
#include "softhca/engine/qp_error.h"
#include "softhca/engine/receive.h"
#include "softhca/engine/request.h"
#include "softhca/engine/requester_parts.h"
#include "softhca/engine/responder.h"
#include "softhca/engine/retries.h"
#include "softhca/engine/srq_waiters.h"

namespace softhca::engine {

using device::count;
using device::Fabric;
using device::QueuePair;

namespace {

// Steps of one turn; a WQE takes two. The progress thread has other QPs to serve.
constexpr unsigned kProgressEntries = 32, kOwnEntries = 4096;

void fill_send_completion(const QueuePair& qp, std::uint16_t counter, std::uint8_t opcode,
                          std::uint32_t bytes, Completion& completion) noexcept {
    clear(completion);
    completion.opcode = MLX5_CQE_REQ;
    completion.cqe.srqn_uidx = htobe32(qp.uidx);
    const bool atomic = opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA;
    if (atomic && options().device.has(DeviceTrait::kAtomicBytes)) [[unlikely]]
        bytes = 0;
    completion.cqe.byte_cnt = htobe32(bytes);
    completion.cqe.sop_drop_qpn = htobe32(std::uint32_t{opcode} << 24 | qp.number);
    completion.cqe.wqe_counter = htobe16(counter);
}

// The responder's side: its completion, then its in_flight mark and, if it failed, its queues.
// False while another thread holds the lock of its CQ.
bool finish_responder(Fabric& fabric, Unfinished& work, bool patient) noexcept {
    SOFTHCA_DEBUG_ASSERT(work.active, "a request has taken effect");
    device::Segment& segment = fabric.segment();
    if (work.receive_pending) {
        SOFTHCA_DEBUG_ASSERT(work.receive_cq < device::kMaxCqs, "owe_receive() checked the index");
        const bool same =
            segment.cqs[work.receive_cq].head.generation == work.receive_cq_generation;
        if (same && put_completion(fabric, work.receive_cq, work.receive, patient) == Put::kBusy)
            return false;
        work.receive_pending = false;
    }
    if (work.target == device::kNone) return true;
    SOFTHCA_DEBUG_ASSERT(work.target < device::kMaxQps, "the index was computed from the table");
    QueuePair& target = segment.qps[work.target];
    if (target.head.live() && target.head.generation == work.target_generation) {
        clear_in_flight(target);
        if (work.responder_failed) fail_qp(fabric, work.target, work.responder_event, false);
        // A thread that failed it meanwhile found it marked, and left the flush to this one.
        if (target.state.load(std::memory_order_seq_cst) == IBV_QPS_ERR) {
            flush_receives(fabric, work.target);
            last_wqe_reached(fabric, target);
        }
    }
    work.target = device::kNone;
    return true;
}

// The requester's completion. False while another thread holds the lock of its CQ.
bool finish_requester(Fabric& fabric, LocalQp& local, const QueuePair& qp) noexcept {
    Unfinished& work = local.unfinished;
    if (!work.send_pending) return true;
    const Put put = put_completion(fabric, qp.send_cq, work.send, false);
    if (put == Put::kBusy) return false;
    work.send_pending = false;
    if (put == Put::kFailed) {  // its CQ has overrun: nothing can complete any more
        fail_qp(fabric, local.index, IBV_EVENT_QP_FATAL, false);
        work.requester_failed = false;
    }
    return true;
}

// The requester's completion, then the receiver's, which may wake the peer. On a wire the ACK is
// back before the peer's reply, so programs count on seeing the completion of a SEND before the
// receive that replies to it (the iSER target tgt, for one). A failed request is the other way
// round: its QP enters the error state with its completion.
bool finish_both(Fabric& fabric, LocalQp& local, const QueuePair& qp) noexcept {
    Unfinished& work = local.unfinished;
    if (!work.requester_failed && !finish_requester(fabric, local, qp)) return false;
    return finish_responder(fabric, work, false);
}

// Writes the completions of the current request and moves on to the next. False while another
// thread holds a lock.
bool finish(Fabric& fabric, LocalQp& local, QueuePair& qp) noexcept {
    SOFTHCA_DEBUG_ASSERT(local.run_lock.is_locked(), "the run lock guards `unfinished`");
    Unfinished& work = local.unfinished;
    SOFTHCA_DEBUG_ASSERT(work.basic_blocks != 0, "each WQE takes a block");
    if (!finish_both(fabric, local, qp) || !finish_requester(fabric, local, qp)) return false;
    qp.sq_consumer += work.basic_blocks;
    count(qp.send.wqes);
    work.active = false;
    if (work.requester_failed) {
        const bool datagram = qp.type == IB_UVERBS_QPT_UD || qp.type == IB_UVERBS_QPT_UC;
        fail_qp(fabric, local.index, kNoEvent, datagram);
    }
    return true;
}

void begin_finish(LocalQp& local, std::uint32_t blocks) noexcept {
    Unfinished& work = local.unfinished;
    SOFTHCA_DEBUG_ASSERT(local.run_lock.is_locked(), "the run lock guards `unfinished`");
    SOFTHCA_DEBUG_ASSERT(!work.active, "the request before it is finished");
    SOFTHCA_DEBUG_ASSERT(blocks != 0, "each WQE takes a block");
    work.active = true;
    work.receive_pending = work.send_pending = false;
    work.responder_failed = work.requester_failed = false;
    work.responder_event = kNoEvent;
    work.receive_cq = work.target = device::kNone;
    work.basic_blocks = blocks;
}

[[gnu::cold, gnu::noinline]] void complete_in_error(LocalQp& local, QueuePair& qp,
                                                    std::uint16_t counter, std::uint8_t opcode,
                                                    std::uint32_t blocks,
                                                    std::uint8_t syndrome) noexcept {
    if (!local.unfinished.active) begin_finish(local, blocks);
    Unfinished& work = local.unfinished;
    SOFTHCA_ASSERT(!work.send_pending, "a request has one completion");
    fill_send_completion(qp, counter, opcode, 0, work.send);
    set_error(work.send, MLX5_CQE_REQ_ERR, syndrome);
    work.send_pending = true;
    work.requester_failed = fails_qp(local, counter, syndrome);
    LOG_DEBUG("QP 0x%x: entry %u (opcode 0x%x) completes with syndrome 0x%x", qp.number, counter,
              opcode, syndrome);
}

void count_request(QueuePair& qp, std::uint8_t opcode, std::size_t bytes,
                   unsigned gathers) noexcept {
    count(qp.send.bytes_sent, bytes);
    if (opcode == MLX5_OPCODE_RDMA_READ || opcode == MLX5_OPCODE_ATOMIC_CS ||
        opcode == MLX5_OPCODE_ATOMIC_FA)
        return;  // the payload is read at the responder, written here
    count(qp.send.dma_read_payload, gathers);
}

// Answers to READs that fit travel in the send CQE (cs_req of the QP context).
void answer_in_completion(const QueuePair& qp, const Response& response,
                          Completion& completion) noexcept {
    if (!response.inline_length || response.inline_length > qp.scatter_send) return;
    SOFTHCA_DEBUG_ASSERT(response.inline_length <= sizeof completion.payload,
                         "in_entry() bounds what travels in the CQE");
    memcpy(completion.payload, response.payload, response.inline_length);
    completion.inline_length = response.inline_length;
}

// The receiver's completion has still to be written.
void owe_receive(Fabric& fabric, Unfinished& work, std::uint32_t cq) noexcept {
    if (cq >= device::kMaxCqs) return;  // there is no such queue
    work.receive_pending = true;
    work.receive_cq = cq;
    work.receive_cq_generation = fabric.segment().cqs[cq].head.generation;
}

// The request has been answered. Notes what finish() has to do.
void carried_out(Fabric& fabric, LocalQp& local, QueuePair& qp, std::uint16_t counter,
                 const Request& request, const Response& response) noexcept {
    restart_counters(local);
    begin_finish(local, request.blocks);
    Unfinished& work = local.unfinished;
    work.target = response.answer == Answer::kSilent ? device::kNone : response.target;
    if (work.target != device::kNone)
        work.target_generation = fabric.segment().qps[work.target].head.generation;
    if (response.has_completion) owe_receive(fabric, work, response.completion_cq);
    work.responder_failed = response.responder_failed;
    work.responder_event = response.event;
    count_request(qp, request.opcode, request.data.bytes, request.gathers);
    if (response.answer == Answer::kError && (reliable(qp.type) || response.local_error)) {
        complete_in_error(local, qp, counter, request.opcode, request.blocks, response.syndrome);
    } else if (request.signalled()) {
        fill_send_completion(qp, counter, request.opcode,
                             static_cast<std::uint32_t>(request.data.bytes), work.send);
        answer_in_completion(qp, response, work.send);
        work.send_pending = true;
    }
    finish_both(fabric, local, qp);  // now: the receiver waits for it; if busy, finish() does
}

// Executes one WQE by the slow path. True: it has taken effect, though finish() may still have to
// write completions. It is not inlined, because the frame of the fast path is a tenth of this
// one's.
[[gnu::noinline]] bool execute_any(Fabric& fabric, LocalQp& local, QueuePair& qp,
                                   std::uint16_t counter, std::uint32_t posted,
                                   bool defers) noexcept {
    SOFTHCA_DEBUG_ASSERT(posted != 0 && posted <= local.ring_blocks, "step() checked the record");
    Request request;
    Response response;
    response.completion = &local.unfinished.receive;
    std::uint8_t syndrome = decode(fabric, local, qp, counter, request);
    if (request.blocks > posted) {  // a wrong size: longer than what was posted
        request.blocks = posted;
        syndrome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    }
    if (syndrome) {
        complete_in_error(local, qp, counter, request.opcode, request.blocks, syndrome);
        return true;
    }
    if (defers && request.data.bytes >= kDeferBytes) {
        local.waiting = WaitReason::kDeferred;
        return false;
    }
    if (request.opcode == MLX5_OPCODE_UMR) {
        const bool indirect = is_mkey(be32toh(request.immediate));
        if (const std::uint8_t error = indirect ? change_mkey(fabric, qp, request.mkey)
                                                : change_window(fabric, qp, request.window)) {
            complete_in_error(local, qp, counter, request.opcode, request.blocks, error);
            return true;
        }
    }
    if (request.opcode == MLX5_OPCODE_NOP || request.opcode == MLX5_OPCODE_UMR) {
        begin_finish(local, request.blocks);
        if (request.signalled()) {
            fill_send_completion(qp, counter, request.opcode, 0, local.unfinished.send);
            local.unfinished.send_pending = true;
        }
        return true;
    }
    if (request.opcode == MLX5_OPCODE_MMO) {
        if (const std::uint8_t error = copy_locally(fabric, qp, request)) {
            complete_in_error(local, qp, counter, request.opcode, request.blocks, error);
            return true;
        }
        carried_out(fabric, local, qp, counter, request, response);
        return true;
    }
    const bool multicast = is_multicast(qp, request);
    if (multicast)
        respond_as_group(fabric, local, qp, request, response);
    else
        respond(fabric, qp, request, response);
    switch (response.answer) {
        case Answer::kBusy:
            wait_for(local, WaitReason::kBusy, 0);
            return false;
        case Answer::kRnr:
            if (wait_after_rnr_nak(fabric, local, qp, request, response.rnr_timer)) return false;
            complete_in_error(local, qp, counter, request.opcode, request.blocks,
                              MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
            return true;
        case Answer::kSilent:
            if (response.target != device::kNone)
                clear_in_flight(fabric.segment().qps[response.target]);
            if (reliable(qp.type)) {
                if (wait_for_response(fabric, local, qp, target_number(qp, request))) return false;
                complete_in_error(local, qp, counter, request.opcode, request.blocks,
                                  MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
                return true;
            }
            break;  // a datagram without a receiver is lost, and counts as sent
        case Answer::kNoReceive:
            if (multicast ? hold_for_group(local) : hold(local, target_number(qp, request)))
                return false;
            break;
        case Answer::kDone:
        case Answer::kError:
            if (local.in_vain == target_number(qp, request)) local.in_vain = 0;
            break;
    }
    carried_out(fabric, local, qp, counter, request, response);
    return true;
}

// After the fast path: as carried_out().
void carried_out_fast(Fabric& fabric, LocalQp& local, QueuePair& qp, std::uint16_t counter,
                      const FastPathRequest& request) noexcept {
    QueuePair& target = *request.target;
    acknowledge(qp, target, request.bytes);
    restart_counters(local);
    begin_finish(local, request.blocks);
    Unfinished& work = local.unfinished;
    if (request.has_completion) {
        if (request.is_marked) {
            work.target = static_cast<std::uint32_t>(&target - fabric.segment().qps.items);
            work.target_generation = target.head.generation;
        }
        owe_receive(fabric, work, request.receive_cq);
    }
    count_request(qp, request.opcode, request.bytes, request.is_inline ? 0 : 1);
    if (request.control & MLX5_WQE_CTRL_CQ_UPDATE) {
        fill_send_completion(qp, counter, request.opcode, request.bytes, work.send);
        work.send_pending = true;
    }
    if (request.has_completion) finish_both(fabric, local, qp);
}

bool execute(Fabric& fabric, LocalQp& local, QueuePair& qp, std::uint16_t counter,
             std::uint32_t posted, Runner runner) noexcept {
    const bool defers = runner == Runner::kPoster && local.engine == EnginePolicy::kHybrid;
    FastPathRequest request;
    if (try_fast_path(fabric, local, qp, counter, posted, most_by_fast_path(local, defers),
                      request)) {
        carried_out_fast(fabric, local, qp, counter, request);
        return true;
    }
    return execute_any(fabric, local, qp, counter, posted, defers);
}

// In the states SQE and ERR every WQE completes with a flush error, signalled or not.
void flush_entry(LocalQp& local, QueuePair& qp, std::uint16_t counter,
                 std::uint32_t blocks) noexcept {
    std::uint32_t control;
    memcpy(&control, local.send_ring + std::size_t{counter & (local.ring_blocks - 1)} * 64,
           sizeof control);
    restart_counters(local);
    complete_in_error(local, qp, counter, static_cast<std::uint8_t>(be32toh(control)), blocks,
                      MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
}

// The WQEs of a QP in that state are carried out, or flushed. Another process may have written any
// number there.
bool is_carried_out(std::uint32_t state) noexcept {
    return state == IBV_QPS_RTS || state == IBV_QPS_SQE || state == IBV_QPS_ERR;
}

// One pass. The caller holds the run lock. True: go on; false: the queue is empty, may not send, or
// waits.
bool step(Fabric& fabric, LocalQp& local, QueuePair& qp, Runner runner) noexcept {
    SOFTHCA_DEBUG_ASSERT(local.run_lock.is_locked() && local.send_ring,
                         "the thread that has the run lock executes");
    if (local.unfinished.active) {
        if (finish(fabric, local, qp)) {
            local.waiting = WaitReason::kNo;
            return true;
        }
        wait_for(local, WaitReason::kBusy, 0);
        return false;
    }
    const auto counter = static_cast<std::uint16_t>(qp.sq_consumer);
    const std::uint16_t posted = posted_so_far(local);
    if (posted == counter) {
        local.waiting = WaitReason::kNo;
        return false;
    }
    const std::uint32_t state = qp.state.load(std::memory_order_acquire);
    const auto waiting = static_cast<std::uint16_t>(posted - counter);
    const bool overfull =
        waiting > local.ring_blocks;  // the record says more than there is room for
    const bool flushes = state == IBV_QPS_ERR || state == IBV_QPS_SQE ||
                         (local.streams.in_use() && is_carried_out(state) &&
                          local.streams.has_failed(stream_of(local, counter)));
    if (flushes) {
        flush_entry(
            local, qp, counter,
            overfull ? waiting : std::min<std::uint32_t>(entry_blocks(local, counter), waiting));
        return true;
    }
    if (!is_carried_out(state)) {
        local.waiting = WaitReason::kNo;
        return false;
    }
    SOFTHCA_DEBUG_ASSERT(state == IBV_QPS_RTS);
    if (overfull) {
        complete_in_error(local, qp, counter, 0, waiting, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
        return true;
    }
    if (local.waiting == WaitReason::kRnr || local.waiting == WaitReason::kNoResponse)
        if (!may_go_on(fabric, local, device::now_ns())) return false;
    return execute(fabric, local, qp, counter, waiting, runner);
}

}  // namespace

// A program may destroy a QP as soon as it has posted, without a look at completions (mckey). An
// adapter has sent everything by then.
void send_what_is_held(Fabric& fabric, LocalQp& local) noexcept {
    SOFTHCA_ASSERT(local.run_lock.is_locked(), "the run lock guards the wait");
    if (local.held_until == 0 || local.waiting != WaitReason::kRnr) return;
    local.holds = false;
    local.waiting = WaitReason::kNo;
    QueuePair& qp = fabric.segment().qps[local.index];
    for (std::uint32_t left = 2 * local.ring_blocks; left != 0; --left)
        if (!step(fabric, local, qp, Runner::kProgress)) return;
}

void abandon_unfinished(Fabric& fabric, LocalQp& local) noexcept {
    SOFTHCA_ASSERT(local.run_lock.is_locked(), "the run lock guards `unfinished`");
    local.group_send.is_begun = false;
    if (!local.unfinished.active) return;
    finish_responder(fabric, local.unfinished, true);
    local.unfinished.active = false;
}

bool has_work(const QueuePair& qp, const LocalQp& local) noexcept {
    return local.send_ring && (local.unfinished.active ||
                               posted_so_far(local) != static_cast<std::uint16_t>(qp.sq_consumer));
}

namespace {

Ran run(Fabric& fabric, LocalQp& local, QueuePair& qp, Runner runner) noexcept {
    for (;;) {
        if (local.dead.load(std::memory_order_relaxed) || !qp.head.live()) {
            local.run_lock.unlock();
            return Ran::kIdle;
        }
        // The number is bounded, so that the thread leaves its epoch while another goes on posting.
        unsigned left = runner == Runner::kProgress ? kProgressEntries : kOwnEntries;
        bool more;
        while ((more = step(fabric, local, qp, runner)) && --left) {
        }
        if (more && local.waiting == WaitReason::kNo) local.waiting = WaitReason::kDeferred;
        const WaitReason waiting = local.waiting;
        local.run_lock.unlock();
        if (waiting != WaitReason::kNo) return Ran::kPending;
        // A thread that posted meanwhile found the lock taken, and left the WQE to this one.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (posted_so_far(local) == static_cast<std::uint16_t>(qp.sq_consumer) ||
            !is_carried_out(qp.state.load(std::memory_order_acquire)))
            return Ran::kIdle;
        if (!local.run_lock.try_lock()) return Ran::kIdle;  // its holder looks again
    }
}

}  // namespace

Ran run_send_queue(Fabric& fabric, LocalQp& local, Runner runner) noexcept {
    // The thread that holds the lock looks again after it has released it.
    if (!local.send_ring || !local.run_lock.try_lock()) return Ran::kIdle;
    return run(fabric, local, fabric.segment().qps[local.index], runner);
}

Ran run_after_fast_path(Fabric& fabric, LocalQp& local, QueuePair& qp, std::uint16_t counter,
                        const FastPathRequest& request) noexcept {
    SOFTHCA_DEBUG_ASSERT(local.run_lock.is_locked(), "the poster keeps the run lock");
    carried_out_fast(fabric, local, qp, counter, request);
    return run(fabric, local, qp, Runner::kPoster);
}

}  // namespace softhca::engine
