// SPDX-License-Identifier: BSD-2-Clause
// Puts a QP into the error state, whichever process found the reason: state, flush of its queues,
// events.
#pragma once

#include <cstdint>

#include "softhca/device/fabric.h"

namespace softhca::engine {

// Moves a live QP to IBV_QPS_ERR, or to SQE if `send_queue_only` is set (UC and UD requester
// errors). It flushes the receive queue; the owner is notified and flushes the send queue. `event`
// is an enum ibv_event_type for the owner, or 0. The caller is inside an epoch. Nothing happens if
// the QP is already in that state.
[[gnu::cold, gnu::noinline]] void fail_qp(device::Fabric& fabric, std::uint32_t qp,
                                          std::uint32_t event, bool send_queue_only) noexcept;

// Call this after a QP reached the error state: sends IBV_EVENT_QP_LAST_WQE_REACHED if it has an
// SRQ.
void last_wqe_reached(device::Fabric& fabric, device::QueuePair& qp) noexcept;

inline constexpr std::uint32_t kNoEvent = 0xffffffffu;

}  // namespace softhca::engine
