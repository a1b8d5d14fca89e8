// SPDX-License-Identifier: BSD-2-Clause
// The responder: finds the QP at the other end, checks what IBTA 9.6-9.8 has it check, moves the
// payload and prepares the receiver's completion. Runs in the requester's process.
#include "softhca/engine/responder.h"

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/base/assert.h"
#include "softhca/device/port.h"
#include "softhca/engine/packets.h"
#include "softhca/engine/qp_error.h"
#include "softhca/engine/responder_parts.h"

namespace softhca::engine {

using device::Fabric;
using device::kNone;
using device::QueuePair;

namespace {

// How many packet sequence numbers a message takes (IBTA 9.7.2).
std::uint32_t packets(const QueuePair& requester, std::size_t bytes) noexcept {
    return bytes ? static_cast<std::uint32_t>((bytes - 1) >> mtu_shift(requester)) + 1 : 1;
}

}  // namespace

QueuePair* find_target(Fabric& fabric, const QueuePair& requester,
                       const Request& request) noexcept {
    const std::uint16_t dlid =
        has_address_vector(requester.type) ? request.ud.dlid : requester.attr.dlid;
    const device::Segment& segment = fabric.segment();
    if (segment.has_link_down.load(std::memory_order_relaxed) != 0 &&
        !(device::link_is_up(segment, requester.attr.lid) && device::link_is_up(segment, dlid)))
        return nullptr;
    QueuePair* target =
        find_receiver(fabric, target_number(requester, request), partner_type(requester.type));
    if (!target || target->attr.lid != dlid) return nullptr;
    if (target->type == device::kDctType) return target;
    if (requester.type == IB_UVERBS_QPT_UD)
        return qkey_of(requester, request) == target->attr.qkey ? target : nullptr;
    return expects(*target, requester, reliable(requester.type)) ? target : nullptr;
}

void acknowledge(QueuePair& requester, QueuePair& target, std::size_t bytes) noexcept {
    const std::uint32_t n = packets(requester, bytes);
    SOFTHCA_DEBUG_ASSERT(n != 0, "a message of no bytes is one packet");
    requester.requester_psn += n;
    if (target.type != device::kDctType) target.responder_psn += n;
}

namespace {

// Does the process end whose memory the request names, the target's owner or that of the SRQ?
bool responder_is_going(Fabric& fabric, const QueuePair& target, const Request& request) noexcept {
    if (!target.head.live()) return true;
    const std::uint32_t owner = target.head.owner();  // none: an XRC target whose maker is gone
    if (owner != kNone && fabric.going(owner)) return true;
    const auto* srq = is_send(request.opcode) || request.opcode == MLX5_OPCODE_RDMA_WRITE_IMM
                          ? shared_queue(fabric, target, request.srq_number)
                          : nullptr;
    return srq && srq->head.owner() != owner && fabric.going(srq->head.owner());
}

}  // namespace

void respond_as(Fabric& fabric, QueuePair& requester, QueuePair& target, Request& request,
                Response& response) noexcept {
    SOFTHCA_DEBUG_ASSERT(
        response.completion && !response.has_completion && response.target == kNone,
        "the caller gives a new response");
    if (is_send(request.opcode))
        respond_to_send(fabric, requester, target, request, response);
    else
        respond_to_rdma(fabric, requester, target, request, response);
    // If the request failed because the other process ends, that is no error of the request: the QP
    // is about to go with its process, and a wire is silent from then on.
    if (response.answer == Answer::kError && !response.local_error &&
        responder_is_going(fabric, target, request)) {
        response.answer = Answer::kSilent;
        response.has_completion = response.responder_failed = false;
        response.event = kNoEvent;
    }
    // A responder that does not acknowledge cannot refuse either (IBTA 9.8.2.2).
    if (!reliable(requester.type) && response.answer == Answer::kError && !response.local_error &&
        !response.has_completion && response.responder_failed) {
        response.answer = Answer::kSilent;
        response.responder_failed = false;
        response.target = kNone;
    }
    if (reliable(requester.type) && response.answer == Answer::kDone)
        acknowledge(requester, target, request.data.bytes);
}

void respond(Fabric& fabric, QueuePair& requester, Request& request, Response& response) noexcept {
    QueuePair* target = find_target(fabric, requester, request);
    if (!target)
        response.answer = Answer::kSilent;
    else if (target->type == device::kDctType && target->access_key != request.ud.access_key)
        nak(fabric, *target, response, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, kNoEvent);
    else
        respond_as(fabric, requester, *target, request, response);
}

}  // namespace softhca::engine
