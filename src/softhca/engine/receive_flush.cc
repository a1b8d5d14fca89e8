// SPDX-License-Identifier: BSD-2-Clause
// Receives that were taken but not completed, and those that a QP in the error state has still
// posted: see receive.h.
#include "softhca/engine/receive.h"

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/base/assert.h"
#include "softhca/device/epoch.h"
#include "softhca/device/reclaim.h"
#include "softhca/engine/queue_memory.h"

namespace softhca::engine {

using device::Fabric;
using device::kNone;
using device::QueuePair;
using device::SharedReceiveQueue;

namespace {

constexpr std::uint64_t kInFlight = 1ull << 63;

}  // namespace

void mark_in_flight(Fabric& fabric, QueuePair& target, std::uint32_t counter,
                    std::uint32_t srq) noexcept {
    static_assert(device::kMaxProcesses <= 1u << 15);  // the mark has 15 bits for the slot
    SOFTHCA_DEBUG_ASSERT(fabric.slot() < device::kMaxProcesses, "the process has joined");
    target.in_flight_srq.store(srq, std::memory_order_relaxed);
    const std::uint64_t generation = fabric.self().generation.load(std::memory_order_relaxed);
    target.in_flight.store(
        kInFlight | std::uint64_t{fabric.slot()} << 48 | (generation & 0xffff) << 32 | counter,
        std::memory_order_release);
}

void clear_in_flight(QueuePair& target) noexcept {
    target.in_flight.store(0, std::memory_order_seq_cst);
}

bool is_being_delivered(Fabric& fabric, const QueuePair& target) noexcept {
    const std::uint64_t mark = target.in_flight.load(std::memory_order_seq_cst);
    if (mark == 0) return false;
    const std::uint32_t slot = static_cast<std::uint32_t>(mark >> 48) & 0x7fff;
    return slot < device::kMaxProcesses &&
           (fabric.segment().processes[slot].generation.load() & 0xffff) ==
               ((mark >> 32) & 0xffff) &&
           fabric.alive(slot);
}

namespace {

// Completes the receive at `counter` with a flush error, for a QP in the error state.
Put put_flushed(Fabric& fabric, const QueuePair& qp, std::uint32_t cq, std::uint32_t uidx,
                std::uint32_t counter, bool patient) noexcept {
    Completion completion;
    clear(completion);
    set_error(completion, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    completion.cqe.srqn_uidx = htobe32(uidx);
    completion.cqe.sop_drop_qpn = htobe32(qp.number);
    completion.cqe.wqe_counter = htobe16(static_cast<std::uint16_t>(counter));
    return put_completion(fabric, cq, completion, patient);
}

// Flushes the one receive of an SRQ that a QP in error may still hold.
void flush_shared(Fabric& fabric, QueuePair& qp) noexcept {
    if (qp.in_flight.load(std::memory_order_seq_cst) == 0 || is_being_delivered(fabric, qp)) return;
    // If several threads come here, one of them gets the mark.
    const std::uint64_t mark = qp.in_flight.exchange(0);
    const std::uint32_t index = qp.in_flight_srq.load(std::memory_order_relaxed);
    if (mark == 0 || index >= device::kMaxSrqs) return;
    const SharedReceiveQueue& srq = fabric.segment().srqs[index];
    const bool is_xrc = qp.type == IB_UVERBS_QPT_XRC_TGT;
    if (!srq.head.live()) return;
    put_flushed(fabric, qp, is_xrc ? srq.cq : qp.recv_cq, is_xrc ? srq.uidx : qp.uidx,
                static_cast<std::uint32_t>(mark), true);
}

}  // namespace

void flush_receives(Fabric& fabric, std::uint32_t index) noexcept {
    SOFTHCA_ASSERT(index < device::kMaxQps, "callers take the index from the table");
    QueuePair& qp = fabric.segment().qps[index];
    if (qp.srq != kNone || qp.type == IB_UVERBS_QPT_XRC_TGT) return flush_shared(fabric, qp);
    if (!qp.rq_count) return;
    // Read the state that brought us here, then what is posted: see post_recv() in hooks.cc.
    device::epoch::heavy_barrier(fabric);
    if (!qp.receive_lock.lock()) return;
    const auto complete = [&](std::uint32_t counter) {
        return put_flushed(fabric, qp, qp.recv_cq, qp.uidx, counter, false) != Put::kBusy;
    };
    // Another thread holds the CQ: the owner comes here again.
    const auto later = [&] {
        qp.receive_lock.unlock();
        device::call_attention(fabric, qp, device::kAttentionState);
    };
    if (const std::uint64_t mark = qp.in_flight.load(std::memory_order_seq_cst)) {
        // The requester is still at work, and comes here when it is done.
        if (is_being_delivered(fabric, qp)) {
            qp.receive_lock.unlock();
            return;
        }
        // It was marked before the consumer advanced, so it has not been taken.
        const std::uint32_t counter = static_cast<std::uint32_t>(mark) & 0xffff;
        if (counter != (qp.rq_consumer & 0xffff) && !complete(counter)) return later();
        clear_in_flight(qp);
    }
    std::uint32_t posted;
    if (record_read(fabric, qp.head.owner(), qp.record, kReceiveRecord, &posted))
        for (std::uint32_t n = 0; n < qp.rq_count && (posted & 0xffff) != (qp.rq_consumer & 0xffff);
             ++n) {
            if (!complete(qp.rq_consumer & 0xffff)) return later();
            ++qp.rq_consumer;
        }
    qp.receive_lock.unlock();
}

}  // namespace softhca::engine
