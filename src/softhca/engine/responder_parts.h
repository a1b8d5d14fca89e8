// SPDX-License-Identifier: BSD-2-Clause
// What the two parts of the responder share: messages that take a receive (receive_responder.cc)
// and requests that name memory (rdma_responder.cc). responder.cc chooses between them.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/base/assert.h"
#include "softhca/engine/responder.h"

namespace softhca::engine {

inline bool has_immediate(std::uint8_t opcode) noexcept {
    return opcode == MLX5_OPCODE_SEND_IMM || opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
}
inline Message message_of(const Request& request) noexcept {
    return {request.opcode,           request.control,    request.data.bytes, request.immediate,
            request.ud.service_level, request.ud.has_grh, request.source_lid};
}

inline void nak(device::Fabric& fabric, device::QueuePair& target, Response& response,
                std::uint8_t syndrome, std::uint32_t event) noexcept {
    response.answer = Answer::kError;
    response.syndrome = syndrome;
    response.target = static_cast<std::uint32_t>(&target - fabric.segment().qps.items);
    SOFTHCA_DEBUG_ASSERT(response.target < device::kMaxQps, "the target is in the table");
    SOFTHCA_DEBUG_ASSERT(syndrome != 0, "zero stands for no error");
    // A DCT goes on for its other requesters.
    if (target.type == device::kDctType) return;
    response.responder_failed = true;
    response.event = event;
}

inline void local_error(Response& response, std::uint8_t syndrome) noexcept {
    response.answer = Answer::kError;
    response.syndrome = syndrome;
    response.local_error = true;
}

// The receive that a message takes; or false, and the answer it gets.
bool take_for(device::Fabric& fabric, const device::QueuePair& requester, device::QueuePair& target,
              const Request& request, Receive& receive, Response& response) noexcept;

// The receiver's side of a failed receive: its completion says `syndrome`, the requester's
// `answer`.
void receive_failed(device::Fabric& fabric, device::QueuePair& target, const Receive& receive,
                    Response& response, std::uint8_t syndrome, std::uint8_t answer) noexcept;

// A SEND: takes a receive and delivers the payload there.
void respond_to_send(device::Fabric& fabric, device::QueuePair& requester,
                     device::QueuePair& target, Request& request, Response& response) noexcept;

// RDMA READ and WRITE, with immediate data or without, and atomics.
void respond_to_rdma(device::Fabric& fabric, device::QueuePair& requester,
                     device::QueuePair& target, Request& request, Response& response) noexcept;

}  // namespace softhca::engine
