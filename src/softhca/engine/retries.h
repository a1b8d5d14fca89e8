// SPDX-License-Identifier: BSD-2-Clause
// When a request is tried again: after an RNR NAK, while the responder is silent, and while an
// unreliable message finds no receive. Each function notes in LocalQp what the send queue waits
// for. Under the run lock, inside an epoch.
#pragma once

#include "softhca/engine/local.h"
#include "softhca/engine/request.h"

namespace softhca::engine {

inline void wait_for(LocalQp& local, Waiting why, std::uint64_t until) noexcept {
    local.waiting = why;
    local.wait_until = local.look_at = until;
}

// An RNR NAK with the responder's timer. False: rnr_retry is used up, so the request fails.
bool wait_after_rnr_nak(device::Fabric& fabric, LocalQp& local, device::QueuePair& qp,
                        const Request& request, std::uint8_t timer) noexcept;

// Nobody answers: waits for the ack timeout, retry_cnt times more. False: that is used up, so the
// request fails.
bool wait_for_response(device::Fabric& fabric, LocalQp& local, device::QueuePair& qp) noexcept;

// An unreliable message to QP `target` for which no receive is posted. True while it is to be held.
bool hold(LocalQp& local, std::uint32_t target) noexcept;

}  // namespace softhca::engine
