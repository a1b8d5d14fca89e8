// SPDX-License-Identifier: BSD-2-Clause
// The responder's side of messages that take a receive: SENDs, and RDMA WRITEs with immediate data.
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/base/assert.h"
#include "softhca/base/tsan.h"
#include "softhca/engine/grh.h"
#include "softhca/engine/packets.h"
#include "softhca/engine/qp_error.h"
#include "softhca/engine/responder_parts.h"

namespace softhca::engine {

using device::count;
using device::Fabric;
using device::kNone;
using device::QueuePair;

void fill_receive_completion(const QueuePair& requester, const QueuePair& target,
                             const Message& message, const Receive& receive,
                             Completion& completion) noexcept {
    const bool datagram = requester.type == IB_UVERBS_QPT_UD;
    clear(completion);
    completion.opcode = message.opcode == MLX5_OPCODE_RDMA_WRITE_IMM ? MLX5_CQE_RESP_WR_IMM
                        : message.opcode == MLX5_OPCODE_SEND_IMM     ? MLX5_CQE_RESP_SEND_IMM
                        : message.opcode == MLX5_OPCODE_SEND_INVAL   ? MLX5_CQE_RESP_SEND_INV
                                                                     : MLX5_CQE_RESP_SEND;
    completion.solicited = (message.control & MLX5_WQE_CTRL_SOLICITED) != 0;
    completion.cqe.srqn_uidx = htobe32(receive.uidx);
    if (has_immediate(message.opcode) || message.opcode == MLX5_OPCODE_SEND_INVAL)
        completion.cqe.imm_inval_pkey = message.immediate;
    completion.cqe.byte_cnt =
        htobe32(static_cast<std::uint32_t>(message.bytes + (datagram ? kGrhBytes : 0)));
    completion.cqe.sop_drop_qpn = htobe32(target.number);
    completion.cqe.flags_rqpn =
        htobe32(requester.number | (datagram ? std::uint32_t{message.service_level} << 24 : 0) |
                (datagram && message.has_grh ? 1u << 28 : 0));
    // slid, with the two bytes before it: see store_entry in completion.cc
    const std::uint32_t slid = htobe32(message.source_lid);
    memcpy(reinterpret_cast<std::byte*>(&completion.cqe) + offsetof(mlx5_cqe64, slid) - 2, &slid,
           4);
    completion.cqe.wqe_counter = htobe16(static_cast<std::uint16_t>(receive.counter));
}

void receive_failed(Fabric& fabric, QueuePair& target, const Receive& receive, Response& response,
                    std::uint8_t syndrome, std::uint8_t answer) noexcept {
    SOFTHCA_DEBUG_ASSERT(response.completion, "the caller gives a completion");
    Completion& completion = *response.completion;
    clear(completion);
    set_error(completion, MLX5_CQE_RESP_ERR, syndrome);
    completion.cqe.srqn_uidx = htobe32(receive.uidx);
    completion.cqe.sop_drop_qpn = htobe32(target.number);
    completion.cqe.wqe_counter = htobe16(static_cast<std::uint16_t>(receive.counter));
    response.has_completion = true;
    response.completion_cq = receive.cq;
    nak(fabric, target, response, answer, kNoEvent);
}

namespace {

// The payload of a message that goes to a receive queue; the receive has been taken.
void deliver(Fabric& fabric, QueuePair& requester, QueuePair& target, Request& request,
             const Receive& receive, Response& response) noexcept {
    const bool datagram = requester.type == IB_UVERBS_QPT_UD;
    const std::size_t bytes = request.data.bytes;
    SpanList list;
    if (const std::uint8_t syndrome =
            scatter_list(fabric, receive, datagram ? kGrhBytes : 0, bytes, list)) {
        receive_failed(fabric, target, receive, response, syndrome,
                       syndrome == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR
                           ? MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR
                           : MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
        return;
    }
    fill_receive_completion(requester, target, message_of(request), receive, *response.completion);
    response.has_completion = true;
    response.completion_cq = receive.cq;
    Moved moved = Moved::kOk;
    if (bytes && bytes <= in_entry(target.scatter_recv)) {
        SOFTHCA_DEBUG_ASSERT(bytes <= sizeof response.completion->payload,
                             "in_entry() bounds what travels in the CQE");
        SpanList inside;
        inside.process = fabric.slot();
        inside.add(response.completion->payload, 0, bytes);
        moved = move(fabric, request.data, inside);
        response.completion->inline_length = static_cast<std::uint8_t>(bytes);
    } else {
        if (datagram && request.ud.has_grh) {
            std::byte grh[kGrhBytes];
            build_grh(fabric, requester, request, grh);
            SpanList header, place;
            header.process = fabric.slot();
            header.add(grh, 0, kGrhBytes);
            if (scatter_list(fabric, receive, 0, kGrhBytes, place) == 0)
                move(fabric, header, place);
        }
        if (bytes) {
            // Another thread of the engine may have delivered to the same memory before: the
            // program has posted it again since.
            tsan_acquire(list.spans[0].pointer);
            moved = move_payload(fabric, requester, request.data, list);
            tsan_release(list.spans[0].pointer);
        }
        count(target.receive.dma_write_payload, list.count);
    }
    switch (moved) {
        case Moved::kOk:
            return;
        case Moved::kSourceFault:
            // The sender's own memory is not there. The receive is lost with the message.
            receive_failed(fabric, target, receive, response, MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
                           MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
            response.local_error = true;
            return;
        case Moved::kTargetFault:
            receive_failed(fabric, target, receive, response, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
                           MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
            return;
        case Moved::kRefused:
            receive_failed(fabric, target, receive, response, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
                           MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
            return;
        case Moved::kGone:
            response.answer = Answer::kSilent;
            response.has_completion = false;
            return;
    }
}

}  // namespace

bool take_for(Fabric& fabric, const QueuePair& requester, QueuePair& target, const Request& request,
              Receive& receive, Response& response) noexcept {
    const bool datagram = requester.type == IB_UVERBS_QPT_UD;
    switch (take_receive(fabric, target, request.srq_number, datagram, receive)) {
        case Take::kOk:
            SOFTHCA_DEBUG_ASSERT((receive.held != nullptr) == datagram,
                                 "the queue stays locked for datagrams only");
            if (datagram) return true;
            if (receive.srq != kNone) {
                // It is delivered as soon as it is taken; and a DCT may have several.
                if (!by_packets() || target.type == device::kDctType) return true;
                mark_in_flight(fabric, target, receive.counter, receive.srq);
            }
            // marked in flight
            response.target = static_cast<std::uint32_t>(&target - fabric.segment().qps.items);
            return true;
        case Take::kBusy:
            response.answer = Answer::kBusy;
            return false;
        case Take::kEmpty:
            response.answer = reliable(requester.type) ? Answer::kRnr : Answer::kNoReceive;
            response.rnr_timer = target.attr.min_rnr_timer;
            return false;
        case Take::kBroken:
            break;
    }
    if (datagram)
        response.answer = Answer::kSilent;
    else
        nak(fabric, target, response, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, IBV_EVENT_QP_FATAL);
    return false;
}

namespace {

bool invalidate(device::Segment& segment, const QueuePair& target, std::uint32_t key) noexcept {
    return is_mkey(key) ? invalidate_mkey(segment, target, key)
                        : invalidate_window(segment, target, key);
}

}  // namespace

void respond_to_send(Fabric& fabric, QueuePair& requester, QueuePair& target, Request& request,
                     Response& response) noexcept {
    const bool datagram = requester.type == IB_UVERBS_QPT_UD;
    Receive receive;
    if (!take_for(fabric, requester, target, request, receive, response)) return;
    // IBTA 9.4.1.1.3: a key that is not the window's of this QP ends the connection, and the
    // receive completes in error.
    if (request.opcode == MLX5_OPCODE_SEND_INVAL &&
        !invalidate(fabric.segment(), target, be32toh(request.immediate)))
        return receive_failed(fabric, target, receive, response, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
                              MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    deliver(fabric, requester, target, request, receive, response);
    if (!datagram) return;
    if (response.local_error) {  // the sender's own fault: nothing would have been sent
        return_receive(fabric, target, receive);
        response.has_completion = response.responder_failed = false;
        response.target = kNone;
        return;
    }
    // Senders to one datagram QP complete in the order in which they took, so its queue is still
    // locked; and nobody waits here for the lock of its CQ.
    if (put_completion(fabric, receive.cq, *response.completion, false) == Put::kBusy) {
        return_receive(fabric, target, receive);
        Completion* completion = response.completion;
        response = Response{};
        response.answer = Answer::kBusy;
        response.completion = completion;
        return;
    }
    response.has_completion = false;
    release_receive(receive);
}

}  // namespace softhca::engine
