// SPDX-License-Identifier: BSD-2-Clause
// A QP goes to the error state, whoever found the reason: state, flush of its queues, events.
#pragma once

#include <cstdint>

#include "softhca/device/fabric.h"

namespace softhca::engine {

// Moves a live QP to IBV_QPS_ERR (UC and UD requester errors: to SQE when `send_queue_only`). The
// receive queue is flushed here; the send queue by its owner, who is told. `event` is an enum
// ibv_event_type for the owner, or 0. Inside an epoch. Nothing happens when it is there already.
[[gnu::cold, gnu::noinline]] void fail_qp(device::Fabric& fabric, std::uint32_t qp,
                                          std::uint32_t event, bool send_queue_only) noexcept;

// After a QP reached the error state: IBV_EVENT_QP_LAST_WQE_REACHED for those with an SRQ.
void last_wqe_reached(device::Fabric& fabric, device::QueuePair& qp) noexcept;

inline constexpr std::uint32_t kNoEvent = 0xffffffffu;

}  // namespace softhca::engine
