// SPDX-License-Identifier: BSD-2-Clause
// Shared receive queues, plain and XRC, and XRC domains (kernel: drivers/infiniband/hw/mlx5/srq.c,
// ib_uverbs_open_xrcd).
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/missing.h"
#include "softhca/base/options.h"
#include "softhca/device/epoch.h"
#include "softhca/device/reclaim.h"
#include "softhca/device/table.h"
#include "softhca/engine/events.h"
#include "softhca/engine/queue_memory.h"
#include "softhca/uverbs/command.h"
#include "softhca/uverbs/extents.h"
#include "softhca/uverbs/most_sges.h"
#include "softhca/uverbs/object_number.h"
#include "softhca/uverbs/pinned.h"

namespace softhca::uverbs {

using device::kNone;
using device::SharedReceiveQueue;
using device::XrcDomain;

namespace {

constexpr std::uint32_t kSegment = 16;  // mlx5_wqe_srq_next_seg and mlx5_wqe_data_seg

int read_request(Command& command, ib_uverbs_create_xsrq& out) noexcept {
    if (command.number == IB_USER_VERBS_CMD_CREATE_XSRQ) return command.request(out);
    ib_uverbs_create_srq request;
    if (const int error = command.request(request)) return error;
    out = {};
    out.user_handle = request.user_handle;
    out.srq_type = IBV_SRQT_BASIC;
    out.pd_handle = request.pd_handle;
    out.max_wr = request.max_wr;
    out.max_sge = request.max_sge;
    out.srq_limit = request.srq_limit;
    return 0;
}

int open_domain(Command& command, const ib_uverbs_open_xrcd& request, std::uint64_t file_device,
                std::uint64_t inode, std::uint32_t* domain) noexcept {
    auto& table = command.segment().xrcds;
    // One lock covers search and creation, because all ranks of a job open the same file at once.
    if (!table.lock.lock()) return EAGAIN;
    device::Guard<device::SharedLock> unlock_at_end(table.lock, device::kAdoptLock);
    if (inode) {
        for (std::uint32_t i = 0; i < device::used(table); ++i) {
            XrcDomain& known = table[i];
            if (!known.head.live() || known.inode != inode || known.device != file_device ||
                known.of_device != command.context.device)
                continue;
            if (request.oflags & O_EXCL) return EINVAL;
            known.references.fetch_add(1);
            *domain = i;
            return 0;
        }
        if (!(request.oflags & O_CREAT)) return EAGAIN;
    }
    XrcDomain* fresh = device::reserve_locked(table, command.fabric(), kNone, 1, domain);
    if (!fresh) return ENOMEM;
    fresh->head.set_owner(kNone);  // it belongs to all processes that have it open
    fresh->of_device = command.context.device;
    fresh->device = file_device;
    fresh->inode = inode;
    fresh->references.store(1);
    device::publish(fresh->head);
    return 0;
}

}  // namespace

int create_srq(Command& command) noexcept {
    ib_uverbs_create_xsrq request;
    if (const int error = read_request(command, request)) return error;
    if (request.srq_type == IBV_SRQT_TM)
        return missing(EOPNOTSUPP, "tag-matching shared receive queues");
    if (request.srq_type != IBV_SRQT_BASIC && request.srq_type != IBV_SRQT_XRC) return EOPNOTSUPP;
    if (request.max_wr > device::kMaxSrqWr || request.max_sge > most_srq_sges()) return EINVAL;
    mlx5_ib_create_srq driver;
    if (const int error = command.driver_request(driver)) return error;
    if (driver.flags || driver.reserved0 || driver.reserved1 || (driver.db_addr & 7)) return EINVAL;
    auto& segment = command.segment();
    const auto find = [&](auto& table, std::uint32_t index) {
        return device::find_own(table, command.fabric(), command.context.record, index);
    };
    device::ProtectionDomain* pd = find(segment.pds, request.pd_handle);
    device::CompletionQueue* cq = nullptr;
    device::XrcdHandle* xrcd = nullptr;
    if (!pd) return EINVAL;
    if (request.srq_type == IBV_SRQT_XRC) {
        cq = find(segment.cqs, request.cq_handle);
        xrcd = find(segment.xrcd_handles, request.xrcd_handle);
        if (!cq || !xrcd) return EINVAL;
    }
    std::uint32_t index;
    SharedReceiveQueue* srq =
        device::reserve(segment.srqs, command.fabric(), command.context.record, device::kFirstSrq,
                        &index, number_search());
    if (!srq) return ENOMEM;
    SOFTHCA_ASSERT(index >= device::kFirstSrq && index < device::kMaxSrqs);
    srq->number = number_of(srq->head, index);
    srq->type = request.srq_type;
    srq->pd = request.pd_handle;
    srq->cq = cq ? request.cq_handle : kNone;
    srq->xrcd = xrcd ? xrcd->domain : kNone;
    srq->xrcd_handle = xrcd ? request.xrcd_handle : kNone;
    srq->wqe_count = std::bit_ceil(request.max_wr + 1);
    srq->wqe_shift = static_cast<std::uint32_t>(
        std::bit_width(std::bit_ceil(std::max(32u, kSegment + request.max_sge * kSegment))) - 1);
    srq->max_wr = request.max_wr;
    srq->max_sge = request.max_sge;
    srq->uidx = driver.uidx & 0xffffff;
    srq->user_handle = request.user_handle;
    QueueExtents extents;
    int error =
        share_queue(command, driver.buf_addr, engine::entry_at(srq->wqe_count, srq->wqe_shift),
                    &srq->buffer, &extents.buffer);
    if (!error) error = share_record(command, driver.db_addr, &srq->record, &extents.record);
    if (error) {
        unpin_queue(command.context, srq->buffer, srq->record);
        release_extents(extents);
        device::free_item(segment.srqs, *srq);
        return error;
    }
    engine::record_write(command.fabric(), command.fabric().slot(), srq->record, 0, 0);
    keep_extents(ObjectKind::kSrq, index, std::move(extents));
    pd->users.fetch_add(1);
    if (cq) cq->users.fetch_add(1);
    if (xrcd) xrcd->users.fetch_add(1);
    device::publish(srq->head);
    const std::uint32_t srqn = srq->number;  // struct mlx5_ib_create_srq_resp
    if ((error = command.driver_respond(srqn))) return error;
    ib_uverbs_create_srq_resp response{};
    response.srq_handle = index;
    response.max_wr = srq->wqe_count - 1;
    response.max_sge =
        static_cast<std::uint32_t>(engine::entry_bytes(srq->wqe_shift)) / kSegment - 1;
    response.srqn = srq->number;
    return command.respond(response);
}

int modify_srq(Command& command) noexcept {
    ib_uverbs_modify_srq request;
    if (const int error = command.request(request)) return error;
    SharedReceiveQueue* srq = device::find_own(command.segment().srqs, command.fabric(),
                                               command.context.record, request.srq_handle);
    if (!srq) return EINVAL;
    if (request.attr_mask & ~static_cast<std::uint32_t>(IBV_SRQ_LIMIT)) return EINVAL;  // no resize
    if (!(request.attr_mask & IBV_SRQ_LIMIT)) return 0;
    if (request.srq_limit >= srq->wqe_count) return EINVAL;
    if (!srq->lock.lock()) return EAGAIN;
    srq->limit = request.srq_limit;
    std::uint32_t posted = 0;
    const bool known =
        engine::record_read(command.fabric(), command.fabric().slot(), srq->record, 0, &posted);
    const bool below = known && srq->limit && ((posted - srq->consumed) & 0xffff) < srq->limit;
    if (below) srq->limit = 0;
    srq->lock.unlock();
    if (!below) return 0;
    device::epoch::Section section;  // armed below the limit, so the event is sent at once
    engine::send_async_event(command.fabric(), srq->head.context, IBV_EVENT_SRQ_LIMIT_REACHED,
                             srq->user_handle, &srq->async_events_sent);
    return 0;
}

int query_srq(Command& command) noexcept {
    ib_uverbs_query_srq request;
    if (const int error = command.request(request)) return error;
    const SharedReceiveQueue* srq = device::find_own(command.segment().srqs, command.fabric(),
                                                     command.context.record, request.srq_handle);
    if (!srq) return EINVAL;
    ib_uverbs_query_srq_resp response{};
    response.max_wr = srq->wqe_count - 1;
    response.max_sge =
        static_cast<std::uint32_t>(engine::entry_bytes(srq->wqe_shift)) / kSegment - 1;
    response.srq_limit = srq->limit;
    return command.respond(response);
}

EventsSent free_srq(DeviceContext& context, std::uint32_t index) noexcept {
    device::Segment& segment = context.fabric->segment();
    SOFTHCA_ASSERT(index < device::kMaxSrqs && context.record != kNone);
    SharedReceiveQueue& srq = segment.srqs[index];
    std::uint32_t live = device::kLive;
    if (!srq.head.state.compare_exchange_strong(live, device::kDying)) return {};
    const bool quiet = device::epoch::synchronize();
    if (srq.pd < device::kMaxPds) segment.pds[srq.pd].users.fetch_sub(1);
    if (srq.cq < device::kMaxCqs) segment.cqs[srq.cq].users.fetch_sub(1);
    if (srq.xrcd_handle < device::kMaxXrcdHandles)
        segment.xrcd_handles[srq.xrcd_handle].users.fetch_sub(1);
    const EventsSent sent{0, srq.async_events_sent.load()};
    unpin_queue(context, srq.buffer, srq.record);
    if (!quiet) return sent;
    release_extents(take_extents(ObjectKind::kSrq, index));
    device::free_item(segment.srqs, srq);
    return sent;
}

int destroy_srq(Command& command) noexcept {
    ib_uverbs_destroy_srq request;
    if (const int error = command.request(request)) return error;
    SharedReceiveQueue* srq = device::find_own(command.segment().srqs, command.fabric(),
                                               command.context.record, request.srq_handle);
    if (!srq) return ENOENT;
    if (srq->users.load()) return EBUSY;
    const std::uint64_t user_handle = srq->user_handle;
    const EventsSent sent = free_srq(command.context, request.srq_handle);
    ib_uverbs_destroy_srq_resp response{};
    response.events_reported = events_read(
        sent.async,
        engine::drain_events(command.fabric(), command.context.async_channel, user_handle));
    return command.respond(response);
}

int open_xrcd(Command& command) noexcept {
    ib_uverbs_open_xrcd request;
    if (const int error = command.request(request)) return error;
    if (options().device.has(DeviceTrait::kNoXrc)) return EOPNOTSUPP;
    struct stat st {};
    const auto fd = static_cast<std::int32_t>(request.fd);
    if (fd != -1 && libc::fstat(fd, &st) != 0) return EBADF;
    std::uint32_t domain;
    if (const int error = open_domain(command, request, fd == -1 ? 0 : st.st_dev,
                                      fd == -1 ? 0 : st.st_ino, &domain))
        return error;
    std::uint32_t index;
    auto& table = command.segment().xrcd_handles;
    device::XrcdHandle* handle =
        device::reserve(table, command.fabric(), command.context.record, 0, &index);
    if (!handle) {
        device::drop_xrc_domain(command.fabric(), domain);
        return ENOMEM;
    }
    SOFTHCA_ASSERT(domain < device::kMaxXrcds);
    handle->domain = domain;
    device::publish(handle->head);
    ib_uverbs_open_xrcd_resp response{};
    response.xrcd_handle = index;
    return command.respond(response);
}

int close_xrcd(Command& command) noexcept {
    ib_uverbs_close_xrcd request;
    if (const int error = command.request(request)) return error;
    auto& table = command.segment().xrcd_handles;
    device::XrcdHandle* handle =
        device::find_own(table, command.fabric(), command.context.record, request.xrcd_handle);
    if (!handle) return ENOENT;
    if (handle->users.load()) return EBUSY;
    const std::uint32_t domain = handle->domain;
    device::free_item(table, *handle);
    device::drop_xrc_domain(command.fabric(), domain);
    return 0;
}

}  // namespace softhca::uverbs
