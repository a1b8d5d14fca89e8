// SPDX-License-Identifier: BSD-2-Clause
// The responder's part of a request: see responder.cc.
#pragma once

#include <infiniband/verbs.h>

#include "softhca/device/identity.h"
#include "softhca/engine/receive.h"
#include "softhca/engine/request.h"

namespace softhca::engine {

enum class Answer : std::uint8_t {
    kDone,       // acknowledged: everything is where it belongs
    kSilent,     // no such QP, not ready, gone: a wire would give no answer
    kRnr,        // no receive posted: RNR NAK
    kNoReceive,  // the same where there is no NAK: a datagram, or UC
    kBusy,       // another thread holds a lock: try again
    kError,      // syndrome says which
};

struct Response {
    Answer answer = Answer::kDone;
    std::uint8_t syndrome = 0;  // of the requester's completion, if kError
    bool local_error = false;   // the requester's own fault: it fails whatever the transport
    std::uint8_t rnr_timer = 0;
    // the receiver's completion, still to be written: the payload is there
    Completion* completion = nullptr;  // given by the caller
    bool has_completion = false;
    std::uint32_t completion_cq = device::kNone;
    std::uint32_t target = device::kNone;  // QP marked in flight, or that fails
    bool responder_failed = false;
    std::uint32_t event = 0xffffffffu;
    // answer of a READ that goes into the requester's CQE
    std::uint8_t inline_length = 0;
    std::byte payload[64];
};

// The type of the QP that one of this type is connected to.
inline std::uint32_t partner_type(std::uint32_t type) noexcept {
    return type == IB_UVERBS_QPT_XRC_INI ? std::uint32_t{IB_UVERBS_QPT_XRC_TGT}
           : type == device::kDciType    ? device::kDctType
                                         : type;
}
inline bool reliable(std::uint32_t type) noexcept {
    return type == IB_UVERBS_QPT_RC || type == IB_UVERBS_QPT_XRC_INI || type == device::kDciType;
}
// The QP with that number, as a peer of that type finds it: there, of the type, and it may receive.
inline device::QueuePair* find_receiver(device::Fabric& fabric, std::uint32_t number,
                                        std::uint32_t type) noexcept {
    device::QueuePair& target = fabric.segment().qps[number & (device::kMaxQps - 1)];
    const std::uint32_t state = target.state.load(std::memory_order_acquire);
    return target.head.live() && target.number == number && target.alias_of == device::kNone &&
                   target.type == type && state - IBV_QPS_RTR <= IBV_QPS_SQE - IBV_QPS_RTR
               ? &target
               : nullptr;
}
// Whether each of two connected QPs is where the other sends to.
inline bool are_linked(const device::QpAttributes& a, const device::QpAttributes& b) noexcept {
    return a.dlid == b.lid && b.dlid == a.lid;
}
// A connected QP's: it is connected back and, if that is what both go by, expects this packet. An
// answer goes where the target's own path leads, so the requester has to be there.
inline bool expects(const device::QueuePair& target, const device::QueuePair& requester,
                    bool reliable) noexcept {
    return target.attr.dest_qpn == requester.number && are_linked(target.attr, requester.attr) &&
           (!reliable || ((target.responder_psn ^ requester.requester_psn) & 0xffffff) == 0);
}

// The protection domain of memory that a request to `target` names. Annex A14: with XRC that of the
// SRQ that the packet names. False: there is no such SRQ.
inline bool find_domain(device::Fabric& fabric, const device::QueuePair& target,
                        std::uint32_t srq_number, std::uint32_t* pd) noexcept {
    *pd = target.pd;
    if (target.type != IB_UVERBS_QPT_XRC_TGT) return true;
    const device::SharedReceiveQueue* srq = xrc_queue(fabric, target, srq_number);
    if (srq) *pd = srq->pd;
    return srq != nullptr;
}

// The QP that a request of `requester` reaches, or nullptr: no QP would answer.
device::QueuePair* find_target(device::Fabric& fabric, const device::QueuePair& requester,
                               const Request& request) noexcept;
// After a reliable request of so many bytes was carried out: both sides' packet sequence numbers.
void acknowledge(device::QueuePair& requester, device::QueuePair& target,
                 std::size_t bytes) noexcept;
// What a receiver's completion says of the message.
struct Message {
    std::uint8_t opcode, control;
    std::uint64_t bytes;
    std::uint32_t immediate = 0;  // big-endian
    std::uint8_t service_level = 0;
    bool has_grh = false;
    std::uint16_t source_lid = 0;
};
// The receiver's completion of a message that took `receive`.
void fill_receive_completion(const device::QueuePair& requester, const device::QueuePair& target,
                             const Message& message, const Receive& receive,
                             Completion& completion) noexcept;

// The Q_Key that a datagram carries.
inline std::uint32_t qkey_of(const device::QueuePair& requester, const Request& request) noexcept {
    // One with the high bit set stands for the sender's own (IBTA 10.2.5).
    return request.ud.qkey & 0x80000000u ? requester.attr.qkey : request.ud.qkey;
}

// Does all of the request but the completions, with the QP that it reaches. Inside an epoch.
void respond_as(device::Fabric& fabric, device::QueuePair& requester, device::QueuePair& target,
                Request& request, Response& response) noexcept;
// As above. Finds the QP.
void respond(device::Fabric& fabric, device::QueuePair& requester, Request& request,
             Response& response) noexcept;

}  // namespace softhca::engine
