// SPDX-License-Identifier: BSD-2-Clause
// Receive queues: see receive.h. A WQE of a QP is an array of mlx5_wqe_data_seg that lkey 0x100
// ends. A WQE of an SRQ is a mlx5_wqe_srq_next_seg and the array; the WQEs form a linked list that
// starts at WQE 0.
#include "softhca/engine/receive.h"

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include <algorithm>

#include "softhca/base/assert.h"
#include "softhca/engine/events.h"
#include "softhca/engine/queue_memory.h"

namespace softhca::engine {

using device::Fabric;
using device::kNone;
using device::QueuePair;
using device::SharedReceiveQueue;

namespace {

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

// Written under the queue's lock; a sender that looks for a receive before it waits reads it
// without (receive_available()).
void count_consumed(SharedReceiveQueue& srq, int by) noexcept {
    std::atomic_ref(srq.consumed)
        .store(srq.consumed + static_cast<std::uint32_t>(by), std::memory_order_relaxed);
}
std::uint32_t consumed_by_now(SharedReceiveQueue& srq) noexcept {
    return std::atomic_ref(srq.consumed).load(std::memory_order_relaxed);
}

// Takes the first WQE of the list; `next` is the index of the second. The caller holds the queue's
// lock.
void consume_shared(Fabric& fabric, SharedReceiveQueue& srq, std::uint16_t next,
                    Receive& receive) noexcept {
    receive.process = srq.head.owner();
    receive.pd = srq.pd;
    receive.counter = srq.next;
    srq.next = next;
    count_consumed(srq, 1);
    device::count(srq.counters.dma_read_wqe);
    limit_reached(fabric, srq);
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
    consume_shared(fabric, srq, be16toh(next.next_wqe_index), receive);
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

namespace {

// What a message to `target` takes from: *srq, or the target's own queue if that is nullptr. False:
// there is no such queue.
bool find_queue(Fabric& fabric, const QueuePair& target, std::uint32_t xrc_srq, Receive& receive,
                SharedReceiveQueue** srq) noexcept {
    receive.held = nullptr;
    receive.srq = kNone;
    receive.cq = target.recv_cq;
    receive.uidx = target.uidx;
    *srq = shared_queue(fabric, target, xrc_srq);
    const bool is_xrc = target.type == IB_UVERBS_QPT_XRC_TGT;
    if (!*srq) return !is_xrc;
    if (is_xrc) {
        receive.cq = (*srq)->cq;
        receive.uidx = (*srq)->uidx;
    }
    receive.srq = static_cast<std::uint32_t>(*srq - fabric.segment().srqs.items);
    return (*srq)->head.live();
}

// The address of `bytes` of the SGE at `from`, if they are in it and wholly shared.
std::byte* one_sge(Fabric& fabric, const std::byte* from, std::uint32_t pd, std::size_t bytes,
                   Reach& reach) noexcept {
    mlx5_wqe_data_seg segment;
    memcpy(&segment, from, sizeof segment);
    if (be32toh(segment.byte_count) < bytes) return nullptr;
    return resolve_shared(fabric, be32toh(segment.lkey), pd, be64toh(segment.addr), bytes,
                          IBV_ACCESS_LOCAL_WRITE, reach);
}

std::byte* one_sge_of_own(Fabric& fabric, QueuePair& qp, std::size_t bytes, Receive& receive,
                          Reach& reach) noexcept {
    if (!qp.rq_count || !qp.receive_lock.try_lock()) return nullptr;
    const std::uint32_t process = qp.head.owner();
    const auto entry = [&](std::uint32_t counter) {
        return queue_pointer(fabric, process, qp.buffer,
                             entry_at(counter & (qp.rq_count - 1), qp.rq_shift),
                             sizeof(mlx5_wqe_data_seg));
    };
    bool readable;
    std::byte* to = nullptr;
    if (another(fabric, process, qp.record, qp.rq_consumer, qp.rq_posted_seen, &readable))
        if (const std::byte* from = entry(qp.rq_consumer))
            to = one_sge(fabric, from, qp.pd, bytes, reach);
    if (to) {
        consume(fabric, qp, true, receive);
        // The next WQE lies in its owner's cache: fetch it now, for the next message.
        if (((qp.rq_posted_seen ^ qp.rq_consumer) & 0xffff) != 0)
            __builtin_prefetch(entry(qp.rq_consumer));
    }
    qp.receive_lock.unlock();
    return to;
}

std::byte* one_sge_of_shared(Fabric& fabric, SharedReceiveQueue& srq, std::size_t bytes,
                             Receive& receive, Reach& reach) noexcept {
    if (!srq.lock.try_lock()) return nullptr;
    const std::uint32_t process = srq.head.owner();
    mlx5_wqe_srq_next_seg next;
    const auto entry = [&](std::uint32_t index) {
        return queue_pointer(fabric, process, srq.buffer, entry_at(index, srq.wqe_shift),
                             sizeof next + sizeof(mlx5_wqe_data_seg));
    };
    bool readable;
    std::byte* to = nullptr;
    if (!srq.failed &&
        another(fabric, process, srq.record, srq.consumed, srq.posted_seen, &readable)) {
        if (const std::byte* from = entry(srq.next)) {
            memcpy(&next, from, sizeof next);
            if (be16toh(next.next_wqe_index) < srq.wqe_count)
                to = one_sge(fabric, from + sizeof next, srq.pd, bytes, reach);
        }
    }
    if (to) {
        consume_shared(fabric, srq, be16toh(next.next_wqe_index), receive);
        if (((srq.posted_seen ^ srq.consumed) & 0xffff) != 0) __builtin_prefetch(entry(srq.next));
    }
    srq.lock.unlock();
    return to;
}

}  // namespace

Take take_receive(Fabric& fabric, QueuePair& target, std::uint32_t xrc_srq, bool hold,
                  Receive& receive) noexcept {
    SharedReceiveQueue* srq;
    if (!find_queue(fabric, target, xrc_srq, receive, &srq)) return Take::kBroken;
    return srq ? take_shared(fabric, *srq, hold, receive) : take_own(fabric, target, hold, receive);
}

bool take_one_sge(Fabric& fabric, QueuePair& target, std::uint32_t xrc_srq, std::size_t bytes,
                  Receive& receive, Reach& reach, std::byte** to) noexcept {
    SharedReceiveQueue* srq;
    if (!find_queue(fabric, target, xrc_srq, receive, &srq)) return false;
    *to = srq ? one_sge_of_shared(fabric, *srq, bytes, receive, reach)
              : one_sge_of_own(fabric, target, bytes, receive, reach);
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
        count_consumed(srq, -1);
    }
    release_receive(receive);
}

bool receive_available(Fabric& fabric, QueuePair& target, std::uint32_t xrc_srq) noexcept {
    std::uint32_t posted;
    if (SharedReceiveQueue* srq = shared_queue(fabric, target, xrc_srq))
        return record_read(fabric, srq->head.owner(), srq->record, kReceiveRecord, &posted) &&
               ((posted ^ consumed_by_now(*srq)) & 0xffff) != 0;
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
        std::size_t room = segment_bytes(be32toh(receive.list[i].byte_count));
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

}  // namespace softhca::engine
