// SPDX-License-Identifier: BSD-2-Clause
// The short cut for the requests that latency is measured with: an RC SEND or RDMA WRITE whose
// entry is one basic block with one piece of payload, in memory that is shared on both sides. It
// checks what the general way (request.h, responder.h) checks, and declines whenever a check fails
// or something is out of the ordinary, having changed nothing: errors, retries and all other
// requests are the general way's alone.
#pragma once

#include "softhca/engine/responder.h"

namespace softhca::engine {

// True: the request is carried out. `request` then has opcode, control, immediate, blocks, bytes of
// data and gathers; `response` is as after respond(). Under the run lock, inside an epoch.
bool short_cut(device::Fabric& fabric, const LocalQp& local, device::QueuePair& qp,
               std::uint16_t counter, std::size_t most_bytes, Request& request,
               Response& response) noexcept;

}  // namespace softhca::engine
