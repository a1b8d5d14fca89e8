// SPDX-License-Identifier: BSD-2-Clause
// Reclaims the objects of dead processes: see reclaim.h.
#include "softhca/device/reclaim.h"

#include <infiniband/verbs.h>
#include <linux/futex.h>
#include <rdma/ib_user_verbs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "softhca/base/assert.h"
#include "softhca/device/epoch.h"
#include "softhca/device/fabric.h"
#include "softhca/device/table.h"

namespace softhca::device {
namespace {

// Here and below the state is loaded before the owner: a free item still names its last owner while
// another process takes it.
template <class T, std::uint32_t N>
void condemn(Table<T, N>& table, std::uint32_t slot) noexcept {
    SOFTHCA_ASSERT(slot < kMaxProcesses);
    for (std::uint32_t i = 0; i < used(table); ++i) {
        ObjectHead& head = table[i].head;
        if (head.state.load(std::memory_order_acquire) != kFree && head.owner() == slot)
            head.state.store(kDying, std::memory_order_release);
    }
}

template <class T, std::uint32_t N>
void free_all(Table<T, N>& table, std::uint32_t slot) noexcept {
    for (std::uint32_t i = 0; i < used(table); ++i) {
        T& item = table[i];
        if (item.head.dying() && item.head.owner() == slot) free_item(table, item);
    }
}

// Nobody holds an id, a group or an event but under connection_lock.
bool free_connections(Segment& segment, std::uint32_t slot) noexcept {
    if (!segment.connection_lock.lock()) return false;
    condemn(segment.cm_events, slot);
    condemn(segment.cm_groups, slot);
    condemn(segment.cm_ids, slot);
    free_all(segment.cm_events, slot);
    free_all(segment.cm_groups, slot);
    free_all(segment.cm_ids, slot);
    segment.connection_lock.unlock();
    return true;
}

}  // namespace

void ring_bell(Fabric& fabric, std::uint32_t slot) noexcept { ring_bell(fabric.segment(), slot); }

void ring_bell(Segment& segment, std::uint32_t slot) noexcept {
    if (slot >= kMaxProcesses) return;
    Process& process = segment.processes[slot];
    process.bell.store(1, std::memory_order_seq_cst);
    if (process.sleeping.load(std::memory_order_seq_cst))
        syscall(SYS_futex, &process.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void call_attention(Fabric& fabric, QueuePair& qp, std::uint32_t what) noexcept {
    SOFTHCA_ASSERT(what != 0);
    qp.attention.fetch_or(what, std::memory_order_release);
    const std::uint32_t slot = qp.head.owner();
    if (slot >= kMaxProcesses) return;
    fabric.segment().processes[slot].attention.store(1, std::memory_order_release);
    ring_bell(fabric, slot);
}

void drop_xrc_domain(Fabric& fabric, std::uint32_t index) noexcept {
    auto& table = fabric.segment().xrcds;
    if (index >= kMaxXrcds || !table.lock.lock()) return;
    XrcDomain& domain = table[index];
    if (domain.head.state.load() == kLive && domain.references.fetch_sub(1) == 1)
        free_item(table, domain);
    table.lock.unlock();
}

void drop_qp_references(Fabric& fabric, QueuePair& qp) noexcept {
    Segment& segment = fabric.segment();
    if (qp.alias_of < kMaxQps) {  // else kNone
        QueuePair& target = segment.qps[qp.alias_of];
        if (target.references.fetch_sub(1) == 1) {
            target.head.state.store(kDying, std::memory_order_release);
            if (epoch::synchronize()) free_item(segment.qps, target);
        }
        return;
    }
    if (qp.pd < kMaxPds) segment.pds[qp.pd].users.fetch_sub(1);
    if (qp.send_cq < kMaxCqs) segment.cqs[qp.send_cq].users.fetch_sub(1);
    if (qp.recv_cq < kMaxCqs) segment.cqs[qp.recv_cq].users.fetch_sub(1);
    if (qp.srq < kMaxSrqs) segment.srqs[qp.srq].users.fetch_sub(1);
    if (qp.uar_page < kMaxUarPages && qp.uuar < kUuarsPerUar)
        segment.uars[qp.uar_page].users[qp.uuar].fetch_sub(1);
}

void silence_qps(Fabric& fabric, std::uint32_t slot) noexcept {
    SOFTHCA_ASSERT(slot < kMaxProcesses);
    auto& table = fabric.segment().qps;
    for (std::uint32_t i = 0; i < used(table); ++i) {
        QueuePair& qp = table[i];
        // Other processes may share an XRC target, so it is left to the process that reclaims this
        // one.
        if (!qp.head.live() || qp.head.owner() != slot || qp.type == IB_UVERBS_QPT_XRC_TGT)
            continue;
        std::uint32_t live = kLive;  // another thread may be destroying the QP
        qp.head.state.compare_exchange_strong(live, kDying, std::memory_order_release,
                                              std::memory_order_relaxed);
    }
}

bool reclaim_process(Fabric& fabric, std::uint32_t slot) noexcept {
    SOFTHCA_ASSERT(slot < kMaxProcesses);
    Segment& segment = fabric.segment();
    if (!free_connections(segment, slot)) return false;
    // An XRC target that another process has opened outlives the process that created it.
    for (std::uint32_t i = 0; i < used(segment.qps); ++i) {
        QueuePair& qp = segment.qps[i];
        if (!qp.head.live() || qp.head.owner() != slot) continue;
        if (qp.type == IB_UVERBS_QPT_XRC_TGT && qp.alias_of == kNone &&
            qp.references.fetch_sub(1) > 1) {
            qp.head.set_owner(kNone);
            qp.head.context = kNone;
        }
    }
    condemn(segment.qps, slot);
    condemn(segment.srqs, slot);
    condemn(segment.mws, slot);
    condemn(segment.mkeys, slot);
    condemn(segment.mrs, slot);
    condemn(segment.dms, slot);
    condemn(segment.cqs, slot);
    condemn(segment.xrcd_handles, slot);
    condemn(segment.pds, slot);
    condemn(segment.uars, slot);
    condemn(segment.channels, slot);
    condemn(segment.contexts, slot);
    if (!leave_multicast_of(segment, slot)) return false;
    if (!epoch::synchronize()) return false;
    for (std::uint32_t i = 0; i < used(segment.qps); ++i) {
        QueuePair& qp = segment.qps[i];
        if (qp.head.dying() && qp.head.owner() == slot && qp.alias_of != kNone)
            drop_qp_references(fabric, qp);
    }
    for (std::uint32_t i = 0; i < used(segment.xrcd_handles); ++i) {
        XrcdHandle& handle = segment.xrcd_handles[i];
        if (handle.head.dying() && handle.head.owner() == slot)
            drop_xrc_domain(fabric, handle.domain);
    }
    free_all(segment.qps, slot);
    free_all(segment.srqs, slot);
    free_all(segment.mws, slot);
    free_all(segment.mkeys, slot);
    free_all(segment.mrs, slot);
    free_all(segment.dms, slot);
    free_all(segment.cqs, slot);
    free_all(segment.xrcd_handles, slot);
    free_all(segment.pds, slot);
    free_all(segment.uars, slot);
    free_all(segment.channels, slot);
    free_all(segment.contexts, slot);
    return true;
}

}  // namespace softhca::device
