// SPDX-License-Identifier: BSD-2-Clause
// Modifies and queries QPs (IBTA 11.2.5; kernel: modify_qp in uverbs_cmd.c, mlx5_ib_modify_qp).
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "softhca/base/assert.h"
#include "softhca/base/missing.h"
#include "softhca/base/options.h"
#include "softhca/device/epoch.h"
#include "softhca/device/identity.h"
#include "softhca/device/port.h"
#include "softhca/device/reclaim.h"
#include "softhca/device/table.h"
#include "softhca/engine/events.h"
#include "softhca/engine/hooks.h"
#include "softhca/engine/pending_list.h"
#include "softhca/engine/qp_error.h"
#include "softhca/engine/queue_memory.h"
#include "softhca/uverbs/command.h"
#include "softhca/uverbs/qp_state.h"
#include "softhca/uverbs/user_object.h"

namespace softhca::uverbs {

using device::kNone;
using device::QpAttributes;
using device::QueuePair;

namespace {

constexpr std::uint32_t kQpnMask = 0xffffff;

// The QP of a handle. For the handle of an opened XRC target it is the target itself.
QueuePair* find_qp(Command& command, std::uint32_t handle, std::uint32_t* index) noexcept {
    auto& table = command.segment().qps;
    QueuePair* qp = device::find_own(table, command.fabric(), command.context.record, handle);
    if (!qp) return nullptr;
    SOFTHCA_ASSERT(index != nullptr && handle < device::kMaxQps);
    *index = handle;
    if (qp->alias_of == kNone) return qp;
    const std::uint32_t target = qp->alias_of;
    if (target >= device::kMaxQps) return nullptr;
    *index = target;
    return &table[target];
}

// The port that the QP has after the change. An address vector has to name the same one (modify_qp
// of uverbs_cmd.c). 0: the change names none that the device has, or two.
std::uint8_t port_after(const device::Segment& segment, const QpAttributes& attr,
                        const ib_uverbs_modify_qp& m) noexcept {
    if ((m.attr_mask & (IBV_QP_PORT | IBV_QP_AV)) == 0) return attr.port != 0 ? attr.port : 1;
    const std::uint8_t own = m.attr_mask & IBV_QP_PORT ? m.port_num : attr.port;
    if ((m.attr_mask & IBV_QP_AV) && m.dest.port_num != own) return 0;
    return device::has_port(segment, own) ? own : 0;
}

int check_values(const device::Port& port, const ib_uverbs_modify_qp& m) noexcept {
    const std::uint32_t mask = m.attr_mask;
    if (mask & IBV_QP_ALT_PATH)
        return missing(EOPNOTSUPP, "alternate paths (automatic path migration)");
    if ((mask & IBV_QP_AV) && !port.can_send(m.dest.is_global, m.dest.sgid_index)) return EINVAL;
    if ((mask & IBV_QP_PKEY_INDEX) && m.pkey_index >= port.pkey_table_length()) return EINVAL;
    if ((mask & IBV_QP_PATH_MTU) && (m.path_mtu < IBV_MTU_256 || m.path_mtu > IBV_MTU_4096))
        return EINVAL;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && m.max_rd_atomic > device::kMaxRdAtomic) return EINVAL;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && m.max_dest_rd_atomic > device::kMaxRdAtomic)
        return EINVAL;
    // set_qpc_atomic_flags of the kernel driver
    if ((mask & IBV_QP_ACCESS_FLAGS) && (m.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) &&
        options().device.has(DeviceTrait::kNoAtomics))
        return EOPNOTSUPP;
    if ((mask & IBV_QP_TIMEOUT) && m.timeout > 31) return EINVAL;
    if ((mask & IBV_QP_RETRY_CNT) && m.retry_cnt > 7) return EINVAL;
    if ((mask & IBV_QP_RNR_RETRY) && m.rnr_retry > 7) return EINVAL;
    if ((mask & IBV_QP_MIN_RNR_TIMER) && m.min_rnr_timer > 31) return EINVAL;
    if ((mask & IBV_QP_DEST_QPN) && m.dest_qp_num > kQpnMask) return EINVAL;
    return 0;
}

// On Ethernet the path follows from the GIDs of this moment: a QP keeps it, whatever becomes of
// them.
void apply(const device::Segment& segment, const device::Port& port, const ib_uverbs_modify_qp& m,
           QpAttributes& attr) noexcept {
    const std::uint32_t mask = m.attr_mask;
    if (mask & IBV_QP_AV) {
        attr.given_dlid = port.is_ethernet() ? 0 : m.dest.dlid;
        attr.dlid = port.is_ethernet()
                        ? device::path_to_gid(segment, port.gid(m.dest.sgid_index), m.dest.dgid)
                        : device::path_to_lid(segment, m.dest.dlid, m.dest.is_global, m.dest.dgid);
        attr.sl = m.dest.sl;
        attr.src_path_bits = m.dest.src_path_bits;
        attr.static_rate = m.dest.static_rate;
        attr.is_global = m.dest.is_global;
        memcpy(attr.dgid, m.dest.dgid, sizeof attr.dgid);
        attr.flow_label = m.dest.flow_label;
        attr.sgid_index = m.dest.sgid_index;
        attr.hop_limit = m.dest.hop_limit;
        attr.traffic_class = m.dest.traffic_class;
        attr.ah_port = m.dest.port_num;
    }
    if (mask & IBV_QP_ACCESS_FLAGS) attr.qp_access_flags = m.qp_access_flags;
    if (mask & IBV_QP_QKEY) attr.qkey = m.qkey;
    if (mask & IBV_QP_RQ_PSN) attr.rq_psn = m.rq_psn & kQpnMask;
    if (mask & IBV_QP_SQ_PSN) attr.sq_psn = m.sq_psn & kQpnMask;
    if (mask & IBV_QP_DEST_QPN) attr.dest_qpn = m.dest_qp_num;
    if (mask & IBV_QP_PKEY_INDEX) attr.pkey_index = m.pkey_index;
    if (mask & IBV_QP_PORT) {
        attr.port = m.port_num;
        attr.lid = port.path();
    }
    if (mask & IBV_QP_PATH_MTU) attr.path_mtu = m.path_mtu;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC) attr.max_rd_atomic = m.max_rd_atomic;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) attr.max_dest_rd_atomic = m.max_dest_rd_atomic;
    if (mask & IBV_QP_MIN_RNR_TIMER) attr.min_rnr_timer = m.min_rnr_timer;
    if (mask & IBV_QP_TIMEOUT) attr.timeout = m.timeout;
    if (mask & IBV_QP_RETRY_CNT) attr.retry_cnt = m.retry_cnt;
    if (mask & IBV_QP_RNR_RETRY) attr.rnr_retry = m.rnr_retry;
}

// Resets a QP: no posted WQEs, and none in progress. After synchronize() no other thread works on
// it.
void reset(Command& command, QueuePair& qp, std::uint32_t index) noexcept {
    SOFTHCA_ASSERT(index < device::kMaxQps);
    qp.state.store(IBV_QPS_RESET, std::memory_order_seq_cst);
    engine::LocalQp* local = engine::g_local_qps[index].load(std::memory_order_acquire);
    device::epoch::synchronize();
    if (local) {
        local->run_lock.lock();
        device::epoch::Section section;
        engine::abandon_unfinished(command.fabric(), *local);
    }
    qp.sq_consumer = qp.rq_consumer = qp.rq_posted_seen = 0;
    qp.in_flight.store(0);
    qp.last_receive_owed.store(0);
    qp.attention.store(0);
    qp.attr = {};
    if (local) {
        local->unfinished = {};
        local->streams.forget_failures();
        engine::restart_counters(*local);
        local->recorded_to.store(0, std::memory_order_relaxed);
        local->run_lock.unlock();
    }
}

int enter(Command& command, QueuePair& qp, std::uint32_t index, std::uint32_t from,
          std::uint32_t to) noexcept {
    SOFTHCA_ASSERT(index < device::kMaxQps && from <= IBV_QPS_ERR && to <= IBV_QPS_ERR);
    SOFTHCA_ASSERT(to != IBV_QPS_RESET, "reset() handles it");
    engine::LocalQp* local = engine::g_local_qps[index].load(std::memory_order_acquire);
    if (to == IBV_QPS_RTR && from == IBV_QPS_INIT) qp.responder_psn = qp.attr.rq_psn;
    if (qp.type == device::kDctType) qp.attr.max_dest_rd_atomic = device::kMaxRdAtomic;
    if (to == IBV_QPS_RTS && from == IBV_QPS_RTR) qp.requester_psn = qp.attr.sq_psn;
    if (to == IBV_QPS_ERR) {
        device::epoch::Section section;
        engine::fail_qp(command.fabric(), index, engine::kNoEvent, false);
        if (local) engine::run_or_list(command.fabric(), *local, engine::Runner::kPoller);
        return 0;
    }
    std::uint32_t expected = from;  // a peer may have put it into ERR in the meantime
    if (!qp.state.compare_exchange_strong(expected, to, std::memory_order_seq_cst)) return EINVAL;
    if (to == IBV_QPS_RTS && local) {
        if (is_user_object(command.context, local->user_handle, sizeof(ibv_qp_ex)))
            engine::hook_qp(*local, local->user_handle);
        device::epoch::Section section;
        engine::run_or_list(command.fabric(), *local, engine::Runner::kPoster);
    }
    return 0;
}

// Programs set the attributes of both sides on both sides of an XRC connection. uverbs drops those
// that the side does not have (modify_qp_mask).
std::uint32_t attributes_of(std::uint32_t type, std::uint32_t mask) noexcept {
    if (type == IB_UVERBS_QPT_XRC_INI)
        mask &= ~std::uint32_t{IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER};
    if (type == IB_UVERBS_QPT_XRC_TGT)
        mask &= ~std::uint32_t{IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY};
    return mask;
}

int modify(Command& command, const ib_uverbs_modify_qp& given) noexcept {
    std::uint32_t index;
    QueuePair* qp = find_qp(command, given.qp_handle, &index);
    if (!qp) return EINVAL;
    ib_uverbs_modify_qp m = given;
    m.attr_mask = attributes_of(qp->type, given.attr_mask);
    const std::uint32_t from = qp->state.load(std::memory_order_acquire);
    if ((m.attr_mask & IBV_QP_CUR_STATE) && m.cur_qp_state != from) return EINVAL;
    const std::uint32_t to = m.attr_mask & IBV_QP_STATE ? m.qp_state : from;
    if (!qp_change_allowed(qp->type, from, to, m.attr_mask)) return EINVAL;
    const device::Segment& segment = command.segment();
    const std::uint8_t number = port_after(segment, qp->attr, m);
    if (!device::has_port(segment, number)) return EINVAL;
    const device::Port port = device::port_of(segment, command.context.device, number);
    if (const int error = check_values(port, m)) return error;
    if (to == IBV_QPS_RESET) {
        reset(command, *qp, index);
        return 0;
    }
    engine::LocalQp* local = engine::g_local_qps[index].load(std::memory_order_acquire);
    if (local) local->run_lock.lock();
    apply(segment, port, m, qp->attr);
    if (local) local->run_lock.unlock();
    return enter(command, *qp, index, from, to);
}

}  // namespace

int modify_qp(Command& command) noexcept {
    if (!command.extended) {
        ib_uverbs_modify_qp request;
        if (const int error = command.request(request)) return error;
        if (request.attr_mask & ~((static_cast<std::uint32_t>(IBV_QP_DEST_QPN) << 1) - 1))
            return EOPNOTSUPP;
        return modify(command, request);
    }
    ib_uverbs_ex_modify_qp request;
    if (const int error = command.request(request)) return error;
    if (request.base.attr_mask & ~((static_cast<std::uint32_t>(IBV_QP_DEST_QPN) << 1) - 1))
        return missing(EOPNOTSUPP, "rate limits of queue pairs");
    if (const int error = modify(command, request.base)) return error;
    std::uint32_t index;
    const QueuePair* qp = find_qp(command, request.base.qp_handle, &index);
    if (qp != nullptr && qp->type == device::kDctType &&
        qp->state.load(std::memory_order_relaxed) == IBV_QPS_RTR) {
        mlx5_ib_modify_qp_resp driver{};
        driver.response_length = sizeof driver;
        driver.dctn = qp->number;
        if (const int error = command.driver_respond(driver)) return error;
    }
    ib_uverbs_ex_modify_qp_resp response{};
    response.response_length = sizeof response;
    return command.respond(response);
}

int query_qp(Command& command) noexcept {
    ib_uverbs_query_qp request;
    if (const int error = command.request(request)) return error;
    std::uint32_t index;
    const QueuePair* qp = find_qp(command, request.qp_handle, &index);
    if (!qp) return EINVAL;
    const QpAttributes& attr = qp->attr;
    ib_uverbs_query_qp_resp out{};
    out.dest.dlid = attr.given_dlid;
    out.dest.sl = attr.sl;
    out.dest.src_path_bits = attr.src_path_bits;
    out.dest.static_rate = attr.static_rate;
    out.dest.is_global = attr.is_global;
    memcpy(out.dest.dgid, attr.dgid, sizeof attr.dgid);
    out.dest.flow_label = attr.flow_label;
    out.dest.sgid_index = attr.sgid_index;
    out.dest.hop_limit = attr.hop_limit;
    out.dest.traffic_class = attr.traffic_class;
    out.dest.port_num = attr.ah_port;
    out.max_send_wr = qp->max_send_wr;
    // For the receive queue the response has the size that libmlx5 chose, as in the kernel.
    out.max_recv_wr = qp->rq_count;
    out.max_send_sge = qp->max_send_sge;
    out.max_recv_sge =
        qp->rq_count ? static_cast<std::uint32_t>(engine::entry_bytes(qp->rq_shift)) / 16 : 0;
    out.max_inline_data = qp->max_inline;
    out.qkey = attr.qkey;
    out.rq_psn = attr.rq_psn;
    out.sq_psn = attr.sq_psn;
    out.dest_qp_num = attr.dest_qpn;
    out.qp_access_flags = attr.qp_access_flags;
    out.pkey_index = attr.pkey_index;
    out.qp_state = out.cur_qp_state =
        static_cast<std::uint8_t>(qp->state.load(std::memory_order_acquire));
    out.path_mtu = attr.path_mtu;
    out.path_mig_state = IBV_MIG_MIGRATED;
    out.max_rd_atomic = attr.max_rd_atomic;
    out.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    out.min_rnr_timer = attr.min_rnr_timer;
    out.port_num = attr.port;
    out.timeout = attr.timeout;
    out.retry_cnt = attr.retry_cnt;
    out.rnr_retry = attr.rnr_retry;
    out.sq_sig_all = qp->signal_all != 0;
    return command.respond(out);
}

}  // namespace softhca::uverbs
