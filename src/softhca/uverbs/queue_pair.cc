// SPDX-License-Identifier: BSD-2-Clause
// Creates, opens and destroys QPs (kernel: drivers/infiniband/hw/mlx5/qp.c). modify_qp.cc modifies
// and queries them.
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>

#include "softhca/base/assert.h"
#include "softhca/base/log.h"
#include "softhca/base/missing.h"
#include "softhca/base/options.h"
#include "softhca/device/epoch.h"
#include "softhca/device/reclaim.h"
#include "softhca/device/table.h"
#include "softhca/engine/direct_polling.h"
#include "softhca/engine/driver_locks.h"
#include "softhca/engine/events.h"
#include "softhca/engine/hooks.h"
#include "softhca/engine/queue_memory.h"
#include "softhca/engine/recording.h"
#include "softhca/uverbs/command.h"
#include "softhca/uverbs/extents.h"
#include "softhca/uverbs/most_sges.h"
#include "softhca/uverbs/object_number.h"
#include "softhca/uverbs/pinned.h"
#include "softhca/uverbs/qp_bfreg.h"
#include "softhca/uverbs/uar.h"
#include "softhca/uverbs/user_object.h"

namespace softhca::uverbs {

using device::kDciType;
using device::kDctType;
using device::kNone;
using device::QueuePair;

namespace {

struct CreateRequest {
    std::uint32_t create_flags;
    mlx5_ib_create_qp driver;
    ib_uverbs_create_qp core;  // last: it ends in a flexible array
};

int read_create_request(Command& command, CreateRequest& out) noexcept {
    out.create_flags = 0;
    if (!command.extended) {
        if (const int error = command.request(out.core)) return error;
        return command.driver_request(out.driver);
    }
    ib_uverbs_ex_create_qp request;
    if (const int error = command.request(request)) return error;
    if (request.comp_mask & ~static_cast<std::uint32_t>(IB_UVERBS_CREATE_QP_SUP_COMP_MASK))
        return EINVAL;
    if (request.reserved) return EINVAL;
    if (request.comp_mask & IB_UVERBS_CREATE_QP_MASK_IND_TABLE)
        return missing(EOPNOTSUPP, "queue pairs that spread raw packets (RSS)");
    out.core = {};
    out.core.user_handle = request.user_handle;
    out.core.pd_handle = request.pd_handle;
    out.core.send_cq_handle = request.send_cq_handle;
    out.core.recv_cq_handle = request.recv_cq_handle;
    out.core.srq_handle = request.srq_handle;
    out.core.max_send_wr = request.max_send_wr;
    out.core.max_recv_wr = request.max_recv_wr;
    out.core.max_send_sge = request.max_send_sge;
    out.core.max_recv_sge = request.max_recv_sge;
    out.core.max_inline_data = request.max_inline_data;
    out.core.sq_sig_all = request.sq_sig_all;
    out.core.qp_type = request.qp_type;
    out.core.is_srq = request.is_srq;
    out.create_flags = request.create_flags;
    return command.driver_request(out.driver);
}

bool has_send_queue(std::uint32_t type) noexcept {
    return type != IB_UVERBS_QPT_XRC_TGT && type != kDctType;
}
bool has_receive_queue(const ib_uverbs_create_qp& request) noexcept {
    return request.qp_type != IB_UVERBS_QPT_XRC_TGT && request.qp_type != IB_UVERBS_QPT_XRC_INI &&
           request.qp_type != kDciType && !request.is_srq;
}

// Which side of DC the driver asks for (process_vendor_flags of the kernel driver). 0: none.
std::uint8_t dc_type(std::uint32_t flags) noexcept {
    constexpr std::uint32_t kBoth = MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_TYPE_DCI;
    switch (flags & kBoth) {
        case MLX5_QP_FLAG_TYPE_DCT:
            return kDctType;
        case MLX5_QP_FLAG_TYPE_DCI:
            return kDciType;
        default:
            return 0;
    }
}

int check_type(std::uint32_t type) noexcept {
    switch (type) {
        case kDciType:
        case kDctType:
            return options().device.has(DeviceTrait::kNoDc)
                       ? missing(EOPNOTSUPP, "the DC transport")
                       : 0;
        case IB_UVERBS_QPT_RC:
        case IB_UVERBS_QPT_UC:
        case IB_UVERBS_QPT_UD:
        case IB_UVERBS_QPT_XRC_INI:
        case IB_UVERBS_QPT_XRC_TGT:
            return 0;
        case IB_UVERBS_QPT_RAW_PACKET:
            return missing(EOPNOTSUPP, "raw packet queue pairs");
        case IB_UVERBS_QPT_DRIVER:
            return EOPNOTSUPP;
        default:
            return EINVAL;
    }
}

// Checks as set_rq_size and set_user_buf_size of the kernel driver.
int check_sizes(const CreateRequest& request) noexcept {
    const ib_uverbs_create_qp& core = request.core;
    const mlx5_ib_create_qp& driver = request.driver;
    constexpr std::uint32_t kFlags = MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_BFREG_INDEX |
                                     MLX5_QP_FLAG_ALLOW_SCATTER_CQE | MLX5_QP_FLAG_UAR_PAGE_INDEX;
    if (driver.flags & MLX5_QP_FLAG_SIGNATURE)
        return missing(EOPNOTSUPP, "signed work queue entries");
    const bool is_dc = core.qp_type == kDciType || core.qp_type == kDctType;
    constexpr std::uint32_t kDcFlags = MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_TYPE_DCI;
    const std::uint32_t stream_flag = core.qp_type == kDciType ? MLX5_QP_FLAG_DCI_STREAM : 0;
    if (driver.flags & ~((is_dc ? kFlags | kDcFlags : kFlags) | stream_flag)) return EINVAL;
    if ((driver.flags & MLX5_QP_FLAG_DCI_STREAM) &&
        (driver.dci_streams.log_num_concurent > device::kMaxLogStreams ||
         driver.dci_streams.log_num_errored > device::kMaxLogFailedStreams))
        return EINVAL;
    if (core.qp_type == kDctType && !core.is_srq) return EINVAL;
    if (core.max_send_wr > device::kMaxQpWr || core.max_recv_wr > device::kMaxQpWr) return EINVAL;
    if (core.max_send_sge > most_sges() || core.max_recv_sge > most_sges()) return EINVAL;
    if (has_send_queue(core.qp_type)) {
        if (driver.sq_wqe_count > device::kMaxSendWqebb) return EINVAL;
        if (driver.sq_wqe_count && !std::has_single_bit(driver.sq_wqe_count)) return EINVAL;
    }
    if (has_receive_queue(core) && core.max_recv_wr) {
        if (driver.rq_wqe_count > device::kMaxQpWr || !std::has_single_bit(driver.rq_wqe_count))
            return EINVAL;
        if (driver.rq_wqe_shift < 4 || driver.rq_wqe_shift > 9 ||
            (1u << driver.rq_wqe_shift) > device::kMaxRqDescriptorBytes)
            return EINVAL;
    }
    return 0;
}

struct Parts {
    device::ProtectionDomain* pd = nullptr;
    device::CompletionQueue* send_cq = nullptr;
    device::CompletionQueue* recv_cq = nullptr;
    device::SharedReceiveQueue* srq = nullptr;
    device::XrcdHandle* xrcd = nullptr;
};

// Finds the objects that the request names. They depend on the transport.
int find_parts(Command& command, const ib_uverbs_create_qp& core, Parts& parts) noexcept {
    device::Segment& segment = command.segment();
    const auto find = [&](auto& table, std::uint32_t index) {
        return device::find_own(table, command.fabric(), command.context.record, index);
    };
    if (core.qp_type == IB_UVERBS_QPT_XRC_TGT) {  // pd_handle is that of the XRC domain
        parts.xrcd = find(segment.xrcd_handles, core.pd_handle);
        return parts.xrcd ? 0 : EINVAL;
    }
    parts.pd = find(segment.pds, core.pd_handle);
    parts.send_cq = find(segment.cqs, core.send_cq_handle);
    if (!parts.pd || !parts.send_cq) return EINVAL;
    if (core.qp_type == IB_UVERBS_QPT_XRC_INI || core.qp_type == kDciType) {
        return 0;
    }
    parts.recv_cq = find(segment.cqs, core.recv_cq_handle);
    if (!parts.recv_cq) return EINVAL;
    if (core.is_srq) {
        parts.srq = find(segment.srqs, core.srq_handle);
        if (!parts.srq || parts.srq->type != IBV_SRQT_BASIC) return EINVAL;
    }
    return 0;
}

// Sets how much of a message is written into CQEs, as configure_responder_scat_cqe and
// configure_requester_scat_cqe.
void set_scatter(const CreateRequest& request, const Parts& parts, QueuePair& qp) noexcept {
    if (!(request.driver.flags & MLX5_QP_FLAG_SCATTER_CQE)) return;
    const std::uint32_t type = request.core.qp_type;
    SOFTHCA_ASSERT(type == IB_UVERBS_QPT_XRC_TGT || parts.send_cq);
    if (type == IB_UVERBS_QPT_RC || type == IB_UVERBS_QPT_UC)
        qp.scatter_recv = parts.recv_cq->cqe_size == 128 ? 64 : 32;
    if (type == IB_UVERBS_QPT_RC &&
        (request.core.sq_sig_all || (request.driver.flags & MLX5_QP_FLAG_ALLOW_SCATTER_CQE)))
        // Not with 128-byte CQEs: libmlx5 looks for such data one byte before the CQE
        // (mlx5_parse_cqe subtracts from a void pointer), so it finds the data only in memory.
        qp.scatter_send = parts.send_cq->cqe_size == 128 ? 0 : 32;
}

int share_queues(Command& command, const CreateRequest& request, QueuePair& qp,
                 QueueExtents& extents) noexcept {
    const mlx5_ib_create_qp& driver = request.driver;
    const std::uint64_t receive = engine::entry_at(qp.rq_count, qp.rq_shift);
    const std::uint64_t bytes = receive + std::uint64_t{qp.sq_count} * 64;
    qp.sq_offset = static_cast<std::uint32_t>(receive);
    if (const int error = share_queue(command, driver.buf_addr, bytes, &qp.buffer, &extents.buffer))
        return error;
    if (!bytes) return 0;
    if (driver.db_addr & 7) return EINVAL;
    return share_record(command, driver.db_addr, &qp.record, &extents.record);
}

void take_references(Parts& parts) noexcept {
    if (parts.pd) parts.pd->users.fetch_add(1);
    if (parts.send_cq) parts.send_cq->users.fetch_add(1);
    if (parts.recv_cq) parts.recv_cq->users.fetch_add(1);
    if (parts.srq) parts.srq->users.fetch_add(1);
    if (parts.xrcd) parts.xrcd->users.fetch_add(1);
}

void fill(const CreateRequest& request, const Parts& parts, QueuePair& qp) noexcept {
    const ib_uverbs_create_qp& core = request.core;
    SOFTHCA_ASSERT(parts.pd || parts.xrcd);
    qp.type = core.qp_type;
    qp.alias_of = kNone;
    qp.pd = parts.pd ? core.pd_handle : kNone;
    qp.send_cq = parts.send_cq ? core.send_cq_handle : kNone;
    qp.recv_cq = parts.recv_cq ? core.recv_cq_handle : kNone;
    qp.srq = parts.srq ? core.srq_handle : kNone;
    qp.xrcd = parts.xrcd ? parts.xrcd->domain : kNone;
    qp.xrcd_handle = parts.xrcd ? core.pd_handle : kNone;
    qp.uidx = request.driver.uidx & 0xffffff;
    qp.signal_all = core.sq_sig_all;
    qp.create_flags = request.create_flags;
    qp.max_send_wr = core.max_send_wr;
    qp.max_recv_wr = core.max_recv_wr;
    qp.max_send_sge = core.max_send_sge;
    qp.max_recv_sge = core.max_recv_sge;
    qp.max_inline = core.max_inline_data;
    qp.user_handle = core.user_handle;
    if (core.qp_type == kDctType) qp.access_key = request.driver.access_key;
    if (has_send_queue(core.qp_type)) qp.sq_count = request.driver.sq_wqe_count;
    if (has_receive_queue(core) && core.max_recv_wr) {
        qp.rq_count = request.driver.rq_wqe_count;
        qp.rq_shift = request.driver.rq_wqe_shift;
    }
    qp.state.store(IBV_QPS_RESET);
    qp.references.store(1);
    set_scatter(request, parts, qp);
}

int respond(Command& command, const QueuePair& qp, std::uint32_t index,
            std::uint32_t bfreg_answer) noexcept {
    mlx5_ib_create_qp_resp driver{};
    driver.bfreg_index = bfreg_answer;
    if (const int error = command.driver_respond(driver)) return error;
    ib_uverbs_create_qp_resp core{};
    core.qp_handle = index;
    // A DCT's number comes with the change to RTR (modify_qp.cc).
    core.qpn = qp.type == kDctType ? 0 : qp.number;
    core.max_send_wr = qp.max_send_wr;
    core.max_recv_wr = qp.max_recv_wr;
    core.max_send_sge = qp.max_send_sge;
    core.max_recv_sge = qp.max_recv_sge;
    core.max_inline_data = qp.max_inline;
    if (!command.extended) return command.respond(core);
    ib_uverbs_ex_create_qp_resp extended{};
    extended.base = core;
    extended.response_length = sizeof extended;
    return command.respond(extended);
}

}  // namespace

int create_qp(Command& command) noexcept {
    CreateRequest request;
    if (const int error = read_create_request(command, request)) return error;
    if (request.core.qp_type == kDciType || request.core.qp_type == kDctType) return EINVAL;
    if (request.core.qp_type == IB_UVERBS_QPT_DRIVER)
        if (const std::uint8_t type = dc_type(request.driver.flags)) request.core.qp_type = type;
    if (const int error = check_type(request.core.qp_type)) return error;
    if (request.create_flags & ~std::uint32_t{IBV_QP_CREATE_BLOCK_SELF_MCAST_LB})
        return missing(EOPNOTSUPP,
                       "queue pairs with creation flags but IBV_QP_CREATE_BLOCK_SELF_MCAST_LB");
    if (const int error = check_sizes(request)) return error;
    Parts parts;
    if (const int error = find_parts(command, request.core, parts)) return error;
    // A QP without a send queue has no register. libmlx5 still looks up the register of the
    // response when it destroys the QP, so that register must exist.
    Placement placement{kNone, 0, 0, kNone, false};
    if (has_send_queue(request.core.qp_type))
        if (const int error = place_qp(command.context, request.driver.flags,
                                       request.driver.bfreg_index, &placement))
            return error;
    auto& table = command.segment().qps;
    std::uint32_t index;
    QueuePair* qp = device::reserve(table, command.fabric(), command.context.record,
                                    device::kFirstQp, &index, number_search());
    if (!qp) {
        unplace_qp(command.context, placement.bfreg);
        return ENOMEM;
    }
    SOFTHCA_ASSERT(index >= device::kFirstQp && index < device::kMaxQps);
    SOFTHCA_ASSERT((placement.page == kNone) == !has_send_queue(request.core.qp_type));
    fill(request, parts, *qp);
    qp->number = number_of(qp->head, index);
    qp->uar_page = placement.page;
    qp->uuar = placement.uuar;
    qp->blueflame = placement.blueflame;
    qp->blueflame_use = command.context.blueflame_use;
    QueueExtents extents;
    int error = share_queues(command, request, *qp, extents);
    if (!error && qp->record.length) {  // for the reason that create_cq() gives
        engine::record_write(command.fabric(), command.fabric().slot(), qp->record, 0, 0);
        engine::record_write(command.fabric(), command.fabric().slot(), qp->record, 1, 0);
    }
    engine::LocalQp* local = error ? nullptr : engine::add_local_qp(command.fabric(), index);
    if (!local) {
        unpin_queue(command.context, qp->buffer, qp->record);
        release_extents(extents);
        unplace_qp(command.context, placement.bfreg);
        device::free_item(table, *qp);
        return error ? error : ENOMEM;
    }
    if (placement.bfreg != kNone)
        engine::note_static_uuar(*local, placement.bfreg, command.context.total_bfregs,
                                 command.context.low_latency_bfregs);
    else if (request.driver.flags & MLX5_QP_FLAG_BFREG_INDEX)
        engine::note_thread_domain(*local);
    if (request.driver.flags & MLX5_QP_FLAG_DCI_STREAM)
        local->streams.begin(1u << request.driver.dci_streams.log_num_errored);
    keep_extents(ObjectKind::kQp, index, std::move(extents));
    remember_bfreg(index, placement.bfreg);
    take_references(parts);
    if (placement.page != kNone)
        command.segment().uars[placement.page].users[placement.uuar].fetch_add(1);
    device::publish(qp->head);
    if (qp->sq_count &&
        is_user_object(command.context, request.core.user_handle, sizeof(ibv_qp_ex)))
        engine::hook_qp(*local, request.core.user_handle);
    else if (qp->sq_count)
        engine::mark_direct(command.fabric(), *local);  // only polling can find its posts
    return respond(command, *qp, index, placement.answer);
}

int open_qp(Command& command) noexcept {
    ib_uverbs_open_qp request;
    if (const int error = command.request(request)) return error;
    auto& segment = command.segment();
    device::XrcdHandle* xrcd = device::find_own(segment.xrcd_handles, command.fabric(),
                                                command.context.record, request.pd_handle);
    if (!xrcd || request.qp_type != IB_UVERBS_QPT_XRC_TGT) return EINVAL;
    const std::uint32_t number = request.qpn;
    const std::uint32_t target = number & (device::kMaxQps - 1);
    QueuePair& real = segment.qps[target];
    std::uint32_t index;
    QueuePair* alias = device::reserve(segment.qps, command.fabric(), command.context.record,
                                       device::kFirstQp, &index);
    if (!alias) return ENOMEM;
    // The last reference on the target may be dropped at this moment.
    std::uint32_t references = real.references.load();
    const auto fits = [&] {
        return real.head.live() && real.number == number && real.type == IB_UVERBS_QPT_XRC_TGT &&
               real.alias_of == kNone && real.xrcd == xrcd->domain;
    };
    bool taken = false;
    while (fits() && references && !taken)
        taken = real.references.compare_exchange_weak(references, references + 1);
    if (taken && !fits()) {  // it was freed and its slot reused before the reference was taken
        real.references.fetch_sub(1);
        taken = false;
    }
    if (!taken) {
        device::free_item(segment.qps, *alias);
        return EINVAL;
    }
    alias->number = real.number;
    alias->type = real.type;
    alias->alias_of = target;
    alias->pd = alias->send_cq = alias->recv_cq = alias->srq = kNone;
    alias->xrcd = real.xrcd;
    alias->xrcd_handle = request.pd_handle;
    alias->uar_page = kNone;
    alias->user_handle = request.user_handle;
    remember_bfreg(index, kNone);  // a QP of the parent may have left one before a fork
    xrcd->users.fetch_add(1);
    device::publish(alias->head);
    ib_uverbs_create_qp_resp response{};
    response.qp_handle = index;
    response.qpn = real.number;
    return command.respond(response);
}

EventsSent free_qp(DeviceContext& context, std::uint32_t index) noexcept {
    device::Fabric& fabric = *context.fabric;
    device::Segment& segment = fabric.segment();
    SOFTHCA_ASSERT(index < device::kMaxQps && context.record != kNone);
    QueuePair& qp = segment.qps[index];
    std::uint32_t live = device::kLive;
    const bool shared_target = qp.type == IB_UVERBS_QPT_XRC_TGT && qp.alias_of == kNone;
    const auto leave_domain = [&] {
        if (qp.xrcd_handle < device::kMaxXrcdHandles)
            segment.xrcd_handles[qp.xrcd_handle].users.fetch_sub(1);
    };
    if (shared_target && qp.references.fetch_sub(1) > 1) {
        leave_domain();
        engine::remove_local_qp(index);
        qp.head.set_owner(kNone);  // other processes have it open, so it lives on without an owner
        qp.head.context = kNone;
        return {0, qp.async_events_sent.load()};
    }
    if (!qp.head.state.compare_exchange_strong(live, device::kDying)) return {};
    leave_domain();
    engine::remove_local_qp(index);
    const bool has_left = device::leave_multicast(segment, qp);
    const bool quiet = device::epoch::synchronize() && has_left;
    device::drop_qp_references(fabric, qp);
    if (record::on()) engine::record_end_of_qp(fabric, index);
    retire_counters(segment.contexts[context.record], qp);
    unplace_qp(context, recall_bfreg(index));
    const EventsSent sent{0, qp.async_events_sent.load()};
    unpin_queue(context, qp.buffer, qp.record);
    if (!quiet) return sent;
    release_extents(take_extents(ObjectKind::kQp, index));
    device::free_item(segment.qps, qp);
    return sent;
}

int destroy_qp(Command& command) noexcept {
    ib_uverbs_destroy_qp request;
    if (const int error = command.request(request)) return error;
    QueuePair* qp = device::find_own(command.segment().qps, command.fabric(),
                                     command.context.record, request.qp_handle);
    if (!qp) return ENOENT;
    // The program must detach it first (uverbs_free_qp of the kernel).
    if (qp->multicast_groups.load() != 0) return EBUSY;
    const std::uint64_t user_handle = qp->user_handle;
    const EventsSent sent = free_qp(command.context, request.qp_handle);
    ib_uverbs_destroy_qp_resp response{};
    response.events_reported = events_read(
        sent.async,
        engine::drain_events(command.fabric(), command.context.async_channel, user_handle));
    return command.respond(response);
}

}  // namespace softhca::uverbs
