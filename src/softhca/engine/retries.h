// SPDX-License-Identifier: BSD-2-Clause
// When a request is tried again: after an RNR NAK, while the responder is silent, and while an
// unreliable message finds no receive. Each function notes in LocalQp what the send queue waits
// for. The caller holds the run lock and is inside an epoch.
#pragma once

#include "softhca/engine/local.h"
#include "softhca/engine/request.h"

namespace softhca::engine {

inline void wait_for(LocalQp& local, WaitReason why, std::uint64_t until) noexcept {
    SOFTHCA_DEBUG_ASSERT(local.run_lock.is_locked(), "the run lock guards the wait");
    SOFTHCA_DEBUG_ASSERT(why != WaitReason::kNo, "a queue that does not wait has no reason");
    local.waiting = why;
    local.wait_until = local.look_at = until;
}

// An RNR NAK with the responder's timer. False: rnr_retry is used up, so the request fails.
bool wait_after_rnr_nak(device::Fabric& fabric, LocalQp& local, device::QueuePair& qp,
                        const Request& request, std::uint8_t timer) noexcept;

// The responder, the QP of that number, is silent: waits for the ack timeout, retry_cnt times more.
// False: these are used up, so the request fails.
bool wait_for_response(device::Fabric& fabric, LocalQp& local, device::QueuePair& qp,
                       std::uint32_t number) noexcept;

// An unreliable message for which no receive is posted. True: hold it for now. False: it has been
// held for long enough.
bool hold_longer(LocalQp& local) noexcept;
// As above, for a message to QP `target`. False also if holding the last one was in vain.
bool hold(LocalQp& local, std::uint32_t target) noexcept;

}  // namespace softhca::engine
