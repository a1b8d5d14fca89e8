// SPDX-License-Identifier: BSD-2-Clause
// Peers that changed a QP of ours, or that are gone: see peer_watch.h.
#include "softhca/engine/peer_watch.h"

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/base/assert.h"
#include "softhca/base/log.h"
#include "softhca/device/epoch.h"
#include "softhca/device/reclaim.h"
#include "softhca/engine/pending_list.h"
#include "softhca/engine/qp_error.h"
#include "softhca/engine/receive.h"

namespace softhca::engine {

using device::Fabric;
using device::QueuePair;

namespace {

std::uint64_t patience_ns(const QueuePair& qp) noexcept {
    const std::uint64_t one = std::uint64_t{4096}
                              << (qp.attr.timeout ? (qp.attr.timeout & 31) : 17);
    return one * (qp.attr.retry_cnt + 1u);
}

// Has this QP a connection on which it may wait for messages?
bool waits_for_peer(const QueuePair& qp) noexcept {
    const std::uint32_t state = qp.state.load(std::memory_order_acquire);
    return qp.type != IB_UVERBS_QPT_UD && qp.type != IB_UVERBS_QPT_XRC_INI &&
           qp.type != device::kDciType && qp.type != device::kDctType && state >= IBV_QPS_RTR &&
           state <= IBV_QPS_SQE;
}

}  // namespace

void look_at_attention(Fabric& fabric) noexcept {
    if (!fabric.self().attention.exchange(0, std::memory_order_acquire)) return;
    const std::uint32_t high = g_local_qps_high.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < high; ++i) {
        LocalQp* local = g_local_qps[i].load(std::memory_order_acquire);
        if (!local) continue;
        SOFTHCA_ASSERT(local->index == i, "the table has each QP at its index");
        QueuePair& qp = fabric.segment().qps[i];
        const std::uint32_t what = qp.attention.exchange(0, std::memory_order_acquire);
        if (what & device::kAttentionState) {
            run_or_list(fabric, *local, Runner::kProgress);
            if (qp.state.load(std::memory_order_acquire) == IBV_QPS_ERR) flush_receives(fabric, i);
        }
    }
}

// QPs in error whose sender died in the middle of a message after that.
void finish_broken_off(Fabric& fabric) noexcept {
    device::epoch::Section section;
    const std::uint32_t high = g_local_qps_high.load(std::memory_order_acquire);
    SOFTHCA_ASSERT(high <= device::kMaxQps, "the bound is that of the table");
    for (std::uint32_t i = 0; i < high; ++i) {
        QueuePair& qp = fabric.segment().qps[i];
        if (g_local_qps[i].load(std::memory_order_acquire) == nullptr ||
            qp.last_receive_owed.load(std::memory_order_relaxed) == 0)
            continue;
        flush_receives(fabric, i);
        last_wqe_reached(fabric, qp);
    }
}

// SOFTHCA_LOST_PEER=flush: a connected QP gets no message after its peer's QP has gone. It waits as
// long as its own retries would take, then it fails, so that a program that only receives learns of
// it. The peer's last state makes no difference: its number is gone.
void fail_lost(Fabric& fabric) noexcept {
    const std::uint64_t now = device::now_ns();
    const std::uint32_t high = g_local_qps_high.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < high; ++i) {
        LocalQp* local = g_local_qps[i].load(std::memory_order_acquire);
        if (!local) continue;
        SOFTHCA_ASSERT(local->index == i, "the table has each QP at its index");
        const QueuePair& qp = fabric.segment().qps[i];
        // Only a state that has a connection may be followed by a look at it: until then another
        // thread may be writing it (modify_qp).
        const bool waits = waits_for_peer(qp);
        const std::uint32_t number = waits ? qp.attr.dest_qpn : 0;
        const QueuePair& peer = fabric.segment().qps[number & (device::kMaxQps - 1)];
        if (!waits || (peer.head.live() && peer.number == number)) {
            local->peer_lost_at = 0;
        } else if (!local->peer_lost_at) {
            local->peer_lost_at = now;
        } else if (now >= local->peer_lost_at + patience_ns(qp) && !has_work(qp, *local)) {
            LOG_DEBUG("QP 0x%x: its peer is gone", qp.number);  // (a sender's own retries end it)
            fail_qp(fabric, i, kNoEvent, false);
        }
    }
}

bool others_alive(Fabric& fabric) noexcept {
    const std::uint32_t high = fabric.segment().processes_high.load(std::memory_order_acquire);
    for (std::uint32_t slot = 0; slot < high && slot < device::kMaxProcesses; ++slot)
        if (slot != fabric.slot() &&
            fabric.segment().processes[slot].state.load(std::memory_order_acquire) == device::kLive)
            return true;
    return false;
}

}  // namespace softhca::engine
