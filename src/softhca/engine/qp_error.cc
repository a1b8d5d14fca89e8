// SPDX-License-Identifier: BSD-2-Clause
// Puts a QP into the error state: see qp_error.h and IBTA 10.3.1, 11.6.2.
#include "softhca/engine/qp_error.h"

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/base/assert.h"
#include "softhca/device/reclaim.h"
#include "softhca/engine/events.h"
#include "softhca/engine/receive.h"

namespace softhca::engine {

using device::Fabric;
using device::QueuePair;

void last_wqe_reached(Fabric& fabric, QueuePair& qp) noexcept {
    if (is_being_delivered(fabric, qp) || qp.last_receive_owed.exchange(0) == 0) return;
    send_async_event(fabric, qp.head.context, IBV_EVENT_QP_LAST_WQE_REACHED, qp.user_handle,
                     &qp.async_events_sent);
}

void fail_qp(Fabric& fabric, std::uint32_t index, std::uint32_t event,
             bool send_queue_only) noexcept {
    SOFTHCA_ASSERT(index < device::kMaxQps, "callers take the index from the table");
    QueuePair& qp = fabric.segment().qps[index];
    std::uint32_t state = qp.state.load(std::memory_order_acquire);
    const std::uint32_t to = send_queue_only ? IBV_QPS_SQE : IBV_QPS_ERR;
    do {
        if (state == IBV_QPS_RESET || state == IBV_QPS_ERR || state == to) return;
    } while (!qp.state.compare_exchange_weak(state, to, std::memory_order_seq_cst));
    if (!send_queue_only) {
        if (qp.srq != device::kNone || qp.type == IB_UVERBS_QPT_XRC_TGT)
            qp.last_receive_owed.store(1);
        flush_receives(fabric, index);
        last_wqe_reached(fabric, qp);
    }
    if (event != kNoEvent)
        send_async_event(fabric, qp.head.context, event, qp.user_handle, &qp.async_events_sent);
    device::call_attention(fabric, qp, device::kAttentionState);
}

}  // namespace softhca::engine
