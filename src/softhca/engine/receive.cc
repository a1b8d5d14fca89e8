// SPDX-License-Identifier: BSD-2-Clause
// Receive queues: see receive.h. A WQE of a QP is an array of mlx5_wqe_data_seg that lkey 0x100
// ends. A WQE of an SRQ is a mlx5_wqe_srq_next_seg and the array; the WQEs form a linked list that
// starts at WQE 0.
#include "softhca/engine/receive.h"

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include <algorithm>

#include "softhca/base/assert.h"
#include "softhca/device/epoch.h"
#include "softhca/device/reclaim.h"
#include "softhca/engine/events.h"
#include "softhca/engine/queue_memory.h"

namespace softhca::engine {

using device::Fabric;
using device::kNone;
using device::QueuePair;
using device::SharedReceiveQueue;

namespace {

constexpr unsigned kReceiveRecord = 0;
constexpr std::uint64_t kInFlight = 1ull << 63;

// Copies a scatter list out of the owner's memory, so that it cannot change while it is used.
bool fetch_list(Fabric& fabric, std::uint32_t process, const device::QueueMemory& buffer,
                std::uint64_t at, std::size_t bytes, Receive& receive) noexcept {
    bytes = std::min(bytes, sizeof receive.list);
    const std::byte* from = queue_pointer(fabric, process, buffer, at, bytes);
    const unsigned most = static_cast<unsigned>(bytes / sizeof(mlx5_wqe_data_seg));
    if (!from && !queue_read(fabric, process, buffer, at, receive.list, bytes)) return false;
    receive.entries = 0;
    for (unsigned i = 0; i < most; ++i) {
        if (from)
            memcpy(&receive.list[i], from + i * sizeof(mlx5_wqe_data_seg),
                   sizeof(mlx5_wqe_data_seg));
        if (receive.list[i].lkey == htobe32(MLX5_INVALID_LKEY) && !receive.list[i].byte_count)
            break;
        receive.entries = i + 1;
    }
    SOFTHCA_DEBUG_ASSERT(receive.entries <= std::size(receive.list), "the list has a fixed size");
    return true;
}

// Whether a WQE is posted beyond `consumed`. The record is in a cache line that its owner writes at
// each post. So it is read only if all WQEs of its last known value are taken. *readable is false
// if it cannot be read.
bool another(Fabric& fabric, std::uint32_t process, const device::QueueMemory& record,
             std::uint32_t consumed, std::uint32_t& posted_seen, bool* readable) noexcept {
    *readable = true;
    if (((posted_seen ^ consumed) & 0xffff) != 0) return true;
    *readable = record_read(fabric, process, record, kReceiveRecord, &posted_seen);
    return *readable && ((posted_seen ^ consumed) & 0xffff) != 0;
}

void limit_reached(Fabric& fabric, SharedReceiveQueue& srq) noexcept {
    std::uint32_t posted;
    if (!srq.limit || !record_read(fabric, srq.head.owner(), srq.record, kReceiveRecord, &posted))
        return;
    const std::uint32_t left = (posted - srq.consumed) & 0xffff;
    if (left >= srq.limit) return;
    srq.limit = 0;  // the event is sent once (IBTA 10.2.9.3)
    send_async_event(fabric, srq.head.context, IBV_EVENT_SRQ_LIMIT_REACHED, srq.user_handle,
                     &srq.async_events_sent);
}

Take take_shared(Fabric& fabric, SharedReceiveQueue& srq, bool hold, Receive& receive) noexcept {
    SOFTHCA_DEBUG_ASSERT(!receive.held && receive.srq < device::kMaxSrqs,
                         "take_receive() has set what it takes from");
    if (!srq.lock.try_lock_briefly()) return Take::kBusy;
    const std::uint32_t process = srq.head.owner();
    bool readable;
    if (srq.failed ||
        !another(fabric, process, srq.record, srq.consumed, srq.posted_seen, &readable)) {
        const bool broken = srq.failed || !readable;
        srq.lock.unlock();
        return broken ? Take::kBroken : Take::kEmpty;
    }
    const std::uint64_t at = entry_at(srq.next, srq.wqe_shift);
    mlx5_wqe_srq_next_seg next;
    if (!queue_read(fabric, process, srq.buffer, at, &next, sizeof next) ||
        be16toh(next.next_wqe_index) >= srq.wqe_count ||
        !fetch_list(fabric, process, srq.buffer, at + sizeof next,
                    entry_bytes(srq.wqe_shift) - sizeof next, receive)) {
        if (!fabric.going(process)) {
            // The owner has corrupted its list: the queue fails, as for a WQE fetched with an
            // error.
            srq.failed = 1;
            send_async_event(fabric, srq.head.context, IBV_EVENT_SRQ_ERR, srq.user_handle,
                             &srq.async_events_sent);
        }
        srq.lock.unlock();
        return Take::kBroken;
    }
    receive.process = process;
    receive.pd = srq.pd;
    receive.counter = srq.next;
    srq.next = be16toh(next.next_wqe_index);
    ++srq.consumed;
    device::count(srq.counters.dma_read_wqe);
    limit_reached(fabric, srq);
    if (hold)
        receive.held = &srq.lock;
    else
        srq.lock.unlock();
    return Take::kOk;
}

// Takes the queue's next WQE. The caller holds the queue's lock.
void consume(Fabric& fabric, QueuePair& qp, bool mark, Receive& receive) noexcept {
    receive.process = qp.head.owner();
    receive.pd = qp.pd;
    receive.counter = qp.rq_consumer & 0xffff;
    if (mark) mark_in_flight(fabric, qp, receive.counter);
    ++qp.rq_consumer;
    device::count(qp.receive.dma_read_wqe);
}

Take take_own(Fabric& fabric, QueuePair& qp, bool hold, Receive& receive) noexcept {
    SOFTHCA_DEBUG_ASSERT(!receive.held && receive.srq == kNone,
                         "take_receive() has set what it takes from");
    if (!qp.receive_lock.try_lock_briefly()) return Take::kBusy;
    const std::uint32_t process = qp.head.owner();
    bool readable = true;
    Take result = Take::kOk;
    if (!qp.rq_count ||
        !another(fabric, process, qp.record, qp.rq_consumer, qp.rq_posted_seen, &readable))
        result = readable ? Take::kEmpty : Take::kBroken;
    else if (const std::uint64_t at = entry_at(qp.rq_consumer & (qp.rq_count - 1), qp.rq_shift);
             !fetch_list(fabric, process, qp.buffer, at, entry_bytes(qp.rq_shift), receive))
        result = Take::kBroken;
    if (result != Take::kOk) {
        qp.receive_lock.unlock();
        return result;
    }
    consume(fabric, qp, !hold, receive);
    if (hold)
        receive.held = &qp.receive_lock;
    else
        qp.receive_lock.unlock();
    return Take::kOk;
}

}  // namespace

SharedReceiveQueue* xrc_queue(Fabric& fabric, const QueuePair& target,
                              std::uint32_t number) noexcept {
    SharedReceiveQueue& srq = fabric.segment().srqs[number & (device::kMaxSrqs - 1)];
    if (!srq.head.live() || srq.number != number || srq.type != IBV_SRQT_XRC ||
        srq.xrcd != target.xrcd)
        return nullptr;
    return &srq;
}

SharedReceiveQueue* shared_queue(Fabric& fabric, const QueuePair& target,
                                 std::uint32_t xrc_srq) noexcept {
    if (target.type == IB_UVERBS_QPT_XRC_TGT) return xrc_queue(fabric, target, xrc_srq);
    return target.srq < device::kMaxSrqs ? &fabric.segment().srqs[target.srq] : nullptr;
}

Take take_receive(Fabric& fabric, QueuePair& target, std::uint32_t xrc_srq, bool hold,
                  Receive& receive) noexcept {
    receive.held = nullptr;
    receive.srq = kNone;
    receive.cq = target.recv_cq;
    receive.uidx = target.uidx;
    SharedReceiveQueue* const srq = shared_queue(fabric, target, xrc_srq);
    if (target.type == IB_UVERBS_QPT_XRC_TGT) {
        if (!srq) return Take::kBroken;
        receive.cq = srq->cq;
        receive.uidx = srq->uidx;
    } else if (!srq) {
        return take_own(fabric, target, hold, receive);
    } else if (!srq->head.live()) {
        return Take::kBroken;
    }
    receive.srq = static_cast<std::uint32_t>(srq - fabric.segment().srqs.items);
    return take_shared(fabric, *srq, hold, receive);
}

bool take_one_sge(Fabric& fabric, QueuePair& qp, std::size_t bytes, Receive& receive, Reach& reach,
                  std::byte** to) noexcept {
    if (!qp.rq_count || !qp.receive_lock.try_lock()) return false;
    const std::uint32_t process = qp.head.owner();
    const auto entry = [&](std::uint32_t counter) {
        return queue_pointer(fabric, process, qp.buffer,
                             entry_at(counter & (qp.rq_count - 1), qp.rq_shift),
                             sizeof(mlx5_wqe_data_seg));
    };
    bool readable;
    *to = nullptr;
    if (another(fabric, process, qp.record, qp.rq_consumer, qp.rq_posted_seen, &readable)) {
        if (const std::byte* from = entry(qp.rq_consumer)) {
            mlx5_wqe_data_seg segment;
            memcpy(&segment, from, sizeof segment);
            if (be32toh(segment.byte_count) >= bytes)
                *to = resolve_shared(fabric, be32toh(segment.lkey), qp.pd, be64toh(segment.addr),
                                     bytes, IBV_ACCESS_LOCAL_WRITE, reach);
        }
    }
    if (*to) {
        receive.held = nullptr;
        receive.srq = kNone;
        receive.cq = qp.recv_cq;
        receive.uidx = qp.uidx;
        consume(fabric, qp, true, receive);
        // The next WQE lies in its owner's cache: fetch it now, for the next message.
        if (((qp.rq_posted_seen ^ qp.rq_consumer) & 0xffff) != 0)
            __builtin_prefetch(entry(qp.rq_consumer));
    }
    qp.receive_lock.unlock();
    return *to != nullptr;
}

void release_receive(Receive& receive) noexcept {
    if (receive.held) receive.held->unlock();
    receive.held = nullptr;
}

void return_receive(Fabric& fabric, QueuePair& target, Receive& receive) noexcept {
    SOFTHCA_ASSERT(receive.srq == kNone || receive.srq < device::kMaxSrqs,
                   "take_receive() computed the index");
    if (receive.srq == kNone) {
        --target.rq_consumer;
    } else {
        SharedReceiveQueue& srq = fabric.segment().srqs[receive.srq];
        srq.next = receive.counter;
        --srq.consumed;
    }
    release_receive(receive);
}

bool receive_available(Fabric& fabric, QueuePair& target, std::uint32_t xrc_srq) noexcept {
    std::uint32_t posted;
    if (const SharedReceiveQueue* srq = shared_queue(fabric, target, xrc_srq))
        return record_read(fabric, srq->head.owner(), srq->record, kReceiveRecord, &posted) &&
               (posted & 0xffff) != (srq->consumed & 0xffff);
    return target.rq_count &&
           record_read(fabric, target.head.owner(), target.record, kReceiveRecord, &posted) &&
           (posted & 0xffff) != (target.rq_consumer & 0xffff);
}

std::uint8_t scatter_list(Fabric& fabric, const Receive& receive, std::size_t skip,
                          std::size_t bytes, SpanList& list) noexcept {
    SOFTHCA_DEBUG_ASSERT(list.count == 0 && list.bytes == 0, "the list is the payload's alone");
    SOFTHCA_DEBUG_ASSERT(receive.entries <= std::size(receive.list), "the list has a fixed size");
    [[maybe_unused]] const std::size_t all = bytes;
    list.process = receive.process;
    for (unsigned i = 0; i < receive.entries && bytes; ++i) {
        std::size_t room = be32toh(receive.list[i].byte_count);
        if (room == 0) room = std::size_t{1} << 31;
        std::uint64_t address = be64toh(receive.list[i].addr);
        if (skip >= room) {
            skip -= room;
            continue;
        }
        room -= skip;
        address += skip;
        skip = 0;
        room = std::min(room, bytes);
        switch (resolve(fabric, be32toh(receive.list[i].lkey), receive.pd, address, room,
                        IBV_ACCESS_LOCAL_WRITE, list)) {
            case Access::kOk:
                break;
            default:
                return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
        }
        bytes -= room;
        SOFTHCA_DEBUG_ASSERT(list.bytes + bytes == all, "resolve() adds the bytes it is asked for");
    }
    return bytes ? MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR : 0;
}

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
