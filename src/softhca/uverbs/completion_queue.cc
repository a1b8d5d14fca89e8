// SPDX-License-Identifier: BSD-2-Clause
// Completion channels and queues (kernel: drivers/infiniband/hw/mlx5/cq.c).
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>

#include "softhca/base/assert.h"
#include "softhca/base/missing.h"
#include "softhca/device/epoch.h"
#include "softhca/device/table.h"
#include "softhca/engine/completion.h"
#include "softhca/engine/direct_polling.h"
#include "softhca/engine/events.h"
#include "softhca/engine/hooks.h"
#include "softhca/engine/queue_memory.h"
#include "softhca/engine/recording.h"
#include "softhca/uverbs/command.h"
#include "softhca/uverbs/extents.h"
#include "softhca/uverbs/pinned.h"
#include "softhca/uverbs/user_object.h"

namespace softhca::uverbs {

using device::CompletionQueue;
using device::kNone;

namespace {

struct Request {
    std::uint64_t user_handle;
    std::uint32_t cqe, flags;
    std::int32_t channel;
};

int read_request(Command& command, Request& out) noexcept {
    if (command.extended) {
        ib_uverbs_ex_create_cq request;
        if (const int error = command.request(request)) return error;
        if (request.comp_mask || request.reserved) return EINVAL;
        out = {request.user_handle, request.cqe, request.flags, request.comp_channel};
        return request.comp_vector < device::kCompVectors ? 0 : EINVAL;
    }
    ib_uverbs_create_cq request;
    if (const int error = command.request(request)) return error;
    out = {request.user_handle, request.cqe, 0, request.comp_channel};
    return request.comp_vector < device::kCompVectors ? 0 : EINVAL;
}

int check_driver_request(const mlx5_ib_create_cq& request) noexcept {
    if (request.cqe_size != 64 && request.cqe_size != 128) return EINVAL;
    if (request.cqe_comp_en) return missing(EOPNOTSUPP, "compressed completions");
    if (request.reserved0 || request.reserved1) return EOPNOTSUPP;
    constexpr std::uint16_t kFlags =
        MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX | MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD;
    if (request.flags & ~kFlags) return EOPNOTSUPP;
    if ((request.flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD) && request.cqe_size != 128)
        return EOPNOTSUPP;
    return (request.db_addr & 7) || (request.buf_addr & 63) ? EINVAL : 0;
}

// The kernel hands an unused CQ to the device with every CQE owned by hardware. libmlx5 does the
// same for the buffers that it allocates.
std::uint32_t entries_for(std::uint32_t cqe) noexcept {
    SOFTHCA_ASSERT(cqe > 0 && cqe <= device::kMaxCqe);
    return std::bit_ceil(cqe + 1);
}

}  // namespace

int create_comp_channel(Command& command) noexcept {
    int fd = -1;
    if (engine::open_channel(command.fabric(), command.context.record,
                             device::ChannelKind::kCompletion, &fd) == kNone)
        return errno;
    ib_uverbs_create_comp_channel_resp response{};
    response.fd = static_cast<std::uint32_t>(fd);
    return command.respond(response);
}

int create_cq(Command& command) noexcept {
    Request request;
    if (const int error = read_request(command, request)) return error;
    if (request.cqe > device::kMaxCqe || !request.cqe) return EINVAL;
    constexpr std::uint32_t kKnownFlags =
        IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
    if (request.flags & ~kKnownFlags) return EOPNOTSUPP;
    mlx5_ib_create_cq driver;
    if (const int error = command.driver_request(driver)) return error;
    if (const int error = check_driver_request(driver)) return error;
    std::uint32_t channel = kNone;
    if (request.channel >= 0) {
        channel = engine::find_channel(request.channel);
        if (!engine::is_channel(command.segment(), channel, device::ChannelKind::kCompletion))
            return EBADF;
    }
    std::uint32_t index;
    auto& table = command.segment().cqs;
    CompletionQueue* cq =
        device::reserve(table, command.fabric(), command.context.record, device::kFirstCq, &index);
    if (!cq) return ENOMEM;
    SOFTHCA_ASSERT(index >= device::kFirstCq && index < device::kMaxCqs);
    cq->number = index;
    cq->cqe_size = driver.cqe_size;
    cq->cqe_count = entries_for(request.cqe);
    cq->channel = channel;
    if (channel != kNone)
        cq->channel_generation = command.segment().channels[channel].head.generation;
    cq->ignore_overrun = request.flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
    cq->timestamps = 1;
    cq->user_handle = request.user_handle;
    QueueExtents extents;
    int error = share_queue(command, driver.buf_addr, std::uint64_t{cq->cqe_count} * cq->cqe_size,
                            &cq->buffer, &extents.buffer);
    if (!error) error = share_record(command, driver.db_addr, &cq->record, &extents.record);
    if (error) {
        unpin_queue(command.context, cq->buffer, cq->record);
        release_extents(extents);
        device::free_item(table, *cq);
        return error;
    }
    // Another thread may have created a CQ with its record on the same page while that page became
    // shared. So the values that libmlx5 stored there before the command are stored again.
    engine::record_write(command.fabric(), command.fabric().slot(), cq->record, 0, 0);
    engine::disarm(command.fabric(), *cq);
    keep_extents(ObjectKind::kCq, index, extents);
    device::publish(cq->head);
    engine::PolledBy polled = engine::PolledBy::kUnseen;
    if (is_user_object(command.context, request.user_handle, sizeof(ibv_cq_ex)))
        polled = engine::hook_cq(index, request.user_handle, true);
    if (record::on()) engine::record_cq(command.fabric(), index, polled);
    if (channel != kNone) engine::watch_channel_cq(index);
    const std::uint32_t cqn = cq->number;  // struct mlx5_ib_create_cq_resp
    if ((error = command.driver_respond(cqn))) return error;
    ib_uverbs_create_cq_resp response{};
    response.cq_handle = index;
    response.cqe = cq->cqe_count - 1;
    if (!command.extended) return command.respond(response);
    ib_uverbs_ex_create_cq_resp extended{};
    extended.base = response;
    extended.response_length = sizeof extended;
    return command.respond(extended);
}

// The CQEs in the old buffer stay there, and a RESIZE_CQ CQE follows them. libmlx5 copies them to
// the new buffer (mlx5_cq_resize_copy_cqes). Later CQEs are written to the new buffer.
int resize_cq(Command& command) noexcept {
    ib_uverbs_resize_cq request;
    mlx5_ib_resize_cq driver;
    if (const int error = command.request(request)) return error;
    if (const int error = command.driver_request(driver)) return error;
    CompletionQueue* cq = device::find_own(command.segment().cqs, command.fabric(),
                                           command.context.record, request.cq_handle);
    if (!cq) return EINVAL;
    if (!request.cqe || request.cqe > device::kMaxCqe || driver.reserved0 || driver.reserved1)
        return EINVAL;
    if (driver.cqe_size != cq->cqe_size || (driver.buf_addr & 63)) return EINVAL;
    const std::uint32_t entries = entries_for(request.cqe);
    SOFTHCA_ASSERT(std::has_single_bit(entries) && entries > request.cqe);
    if (entries == cq->cqe_count) {  // unchanged, so there is no RESIZE_CQ CQE either
        ib_uverbs_resize_cq_resp same{};
        same.cqe = entries - 1;
        return command.respond(same);
    }
    device::QueueMemory buffer{};
    device::memory::Extents extents{};
    if (const int error = share_queue(command, driver.buf_addr,
                                      std::uint64_t{entries} * cq->cqe_size, &buffer, &extents))
        return error;
    if (!cq->lock.lock()) {
        unpin_queue(command.context, buffer, {});
        release_queue(extents);
        return EAGAIN;
    }
    std::uint32_t consumer = 0;
    engine::record_read(command.fabric(), command.fabric().slot(), cq->record, 0, &consumer);
    const std::uint32_t held = (cq->producer - consumer) & 0xffffff;
    // Either the CQEs would not fit, or the old buffer has no room for the RESIZE_CQ CQE.
    if (held >= entries || held >= cq->cqe_count) {
        cq->lock.unlock();
        unpin_queue(command.context, buffer, {});
        release_queue(extents);
        return EINVAL;
    }
    mlx5_cqe64 mark{};
    mark.op_own =
        static_cast<std::uint8_t>(MLX5_CQE_RESIZE_CQ << 4 | (cq->producer & cq->cqe_count ? 1 : 0));
    const std::uint64_t at =
        std::uint64_t{cq->producer & (cq->cqe_count - 1)} * cq->cqe_size + cq->cqe_size - 64;
    engine::queue_write(command.fabric(), command.fabric().slot(), cq->buffer, at, &mark,
                        sizeof mark);
    ++cq->producer;
    const device::QueueMemory old = cq->buffer;
    cq->buffer = buffer;
    cq->cqe_count = entries;
    cq->lock.unlock();
    unpin_queue(command.context, old, {});  // at the same time as in the kernel
    // libmlx5 reads the old buffer until it has copied the CQEs, so its extent is released with the
    // CQ.
    keep_more_extents(ObjectKind::kCq, request.cq_handle, extents);
    ib_uverbs_resize_cq_resp response{};
    response.cqe = entries - 1;
    return command.respond(response);
}

int modify_cq(Command&) noexcept {
    // max_cq_moderation_count is 0
    return missing(EOPNOTSUPP, "moderation of completion events");
}

EventsSent free_cq(DeviceContext& context, std::uint32_t index) noexcept {
    SOFTHCA_ASSERT(index < device::kMaxCqs && context.record != kNone);
    CompletionQueue& cq = context.fabric->segment().cqs[index];
    std::uint32_t live = device::kLive;
    if (!cq.head.state.compare_exchange_strong(live, device::kDying)) return {};
    engine::unwatch_channel_cq(index);
    engine::unhook_cq(index);
    const bool quiet = device::epoch::synchronize();
    if (record::on()) engine::record_end_of_cq(*context.fabric, index);
    device::Context& record = context.fabric->segment().contexts[context.record];
    device::count(record.retired_cq.dma_write_cqe, cq.counters.dma_write_cqe.load());
    const EventsSent sent{cq.events_sent, cq.async_events_sent};
    unpin_queue(context, cq.buffer, cq.record);
    if (!quiet) return sent;
    release_extents(take_extents(ObjectKind::kCq, index));
    device::free_item(context.fabric->segment().cqs, cq);
    return sent;
}

int destroy_cq(Command& command) noexcept {
    ib_uverbs_destroy_cq request;
    if (const int error = command.request(request)) return error;
    CompletionQueue* cq = device::find_own(command.segment().cqs, command.fabric(),
                                           command.context.record, request.cq_handle);
    if (!cq) return ENOENT;
    if (cq->users.load()) return EBUSY;
    const std::uint64_t user_handle = cq->user_handle;
    const std::uint32_t channel = cq->channel;
    const EventsSent sent = free_cq(command.context, request.cq_handle);
    // The application waits until it has acknowledged as many events as this response reports, so
    // it reports those that were read.
    ib_uverbs_destroy_cq_resp response{};
    response.comp_events_reported =
        events_read(sent.completion, engine::drain_events(command.fabric(), channel, user_handle));
    response.async_events_reported = events_read(
        sent.async,
        engine::drain_events(command.fabric(), command.context.async_channel, user_handle));
    return command.respond(response);
}

}  // namespace softhca::uverbs
