// SPDX-License-Identifier: BSD-2-Clause
// GET_CONTEXT, and the end of a context (kernel: mlx5_ib_alloc_ucontext, uverbs_destroy_ufile_hw).
#include "softhca/uverbs/context.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/base/options.h"
#include "softhca/device/epoch.h"
#include "softhca/device/port.h"
#include "softhca/device/reclaim.h"
#include "softhca/device/table.h"
#include "softhca/engine/driver_locks.h"
#include "softhca/engine/events.h"
#include "softhca/engine/port_events.h"
#include "softhca/engine/progress.h"
#include "softhca/uverbs/attributes.h"
#include "softhca/uverbs/command.h"
#include "softhca/uverbs/device_memory.h"
#include "softhca/uverbs/devx.h"
#include "softhca/uverbs/uar.h"

namespace softhca::uverbs {

using device::kNone;

namespace {

constexpr std::uint32_t kMaxBfregs = 512;

// Checks total_num_bfregs and num_low_latency_bfregs as the kernel does (calc_total_bfregs).
int check_bfregs(const mlx5_ib_alloc_ucontext_req_v2& request) noexcept {
    if (!request.total_num_bfregs) return EINVAL;
    if (request.total_num_bfregs > kMaxBfregs) return ENOMEM;
    if (request.num_low_latency_bfregs > request.total_num_bfregs - 1) return EINVAL;
    return 0;
}

}  // namespace

void fill_context_response(const DeviceContext& context,
                           mlx5_ib_alloc_ucontext_resp* out) noexcept {
    const bool dynamic = !context.is_static;
    const DeviceTraits& traits = options().device;
    mlx5_ib_alloc_ucontext_resp& driver = *out;
    driver = {};
    driver.qp_tab_size = 1u << 18;
    driver.bf_reg_size = traits.has(DeviceTrait::kNoBlueFlame) ? 0 : device::kBfRegisterBytes;
    driver.tot_bfregs = dynamic ? 0 : context.total_bfregs;
    driver.cache_line_size = 64;
    driver.max_sq_desc_sz = traits.has(DeviceTrait::kSmallInline)
                                ? device::kSmallSqDescriptorBytes
                                : device::kMaxSqDescriptorBytes + 16;
    driver.max_rq_desc_sz = device::kMaxRqDescriptorBytes;
    driver.max_send_wqebb = device::kMaxSendWqebb;
    driver.max_recv_wr = device::kMaxQpWr;
    driver.max_srq_recv_wr = device::kMaxSrqWr;
    driver.num_ports =
        static_cast<std::uint16_t>(device::ports_of_device(context.fabric->segment()));
    driver.response_length = sizeof driver;
    driver.cqe_version = context.cqe_version;
    driver.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
    driver.eth_min_inline = MLX5_USER_INLINE_MODE_NONE;
    driver.clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1;
    driver.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY |
                       MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_MKEY_UPDATE_TAG;
    driver.dump_fill_mkey = device::kNullKey;
    driver.log_uar_size = 12;
    driver.num_uars_per_page = 1;
    driver.num_dyn_bfregs = dynamic || traits.has(DeviceTrait::kNoThreadDomains)
                                ? 0
                                : device::kMaxDynamicUars * device::kUuarsPerUar;
}

int get_context(Command& command) noexcept {
    DeviceContext& context = command.context;
    mlx5_ib_alloc_ucontext_req_v2 request;
    if (const int error = command.driver_request(request)) return error;
    if (context.record != kNone) return EINVAL;
    SOFTHCA_ASSERT(context.async_channel == kNone && context.static_pages.empty());
    if (command.driver_in.length < 8) return EINVAL;
    const bool commands = request.flags & MLX5_IB_ALLOC_UCTX_DEVX;
    // libmlx5 then opens the device without.
    if (commands && options().device.has(DeviceTrait::kNoDevx)) return EINVAL;
    if ((request.flags & ~std::uint32_t{MLX5_IB_ALLOC_UCTX_DEVX}) || request.comp_mask ||
        request.reserved0 || request.reserved1 || request.reserved2)
        return EOPNOTSUPP;
    request.total_num_bfregs = (request.total_num_bfregs + 1) & ~1u;
    if (const int error = check_bfregs(request)) return error;

    std::uint32_t index;
    device::Context* record =
        device::reserve(command.segment().contexts, command.fabric(), kNone, 0, &index);
    if (!record) return ENOMEM;
    SOFTHCA_ASSERT(index < device::kMaxContexts);
    int async_fd = -1;
    const std::uint32_t channel = engine::open_channel(
        command.fabric(), index, device::ChannelKind::kAsynchronous, &async_fd);
    if (channel == kNone) {
        device::free_item(command.segment().contexts, *record);
        return ENOMEM;
    }
    record->head.context = index;
    record->device = context.device;
    engine::note_ports(command.segment(), *record);
    record->async_channel = channel;
    record->async_generation = command.segment().channels[channel].head.generation;
    context.record = index;
    context.async_channel = channel;
    const bool dynamic = options().uar == UarPolicy::kDynamic &&
                         (request.lib_caps & MLX5_LIB_CAP_DYN_UAR) &&
                         !options().device.has(DeviceTrait::kNoThreadDomains);
    context.is_static = !dynamic;
    context.takes_commands = commands;
    context.blueflame_use = engine::blueflame_use();
    engine::read_single_threaded();
    context.cqe_version = request.max_cqe_version >= 1 ? 1 : 0;
    context.total_bfregs = request.total_num_bfregs;
    context.low_latency_bfregs = request.num_low_latency_bfregs;
    record->low_latency_uuars = request.num_low_latency_bfregs;
    if (!dynamic) {
        if (const int error = alloc_static_uars(context)) {
            context.record = kNone;
            context.async_channel = kNone;
            engine::close_channel(command.fabric(), channel);
            libc::close(async_fd);
            device::free_item(command.segment().contexts, *record);
            return error;
        }
        SOFTHCA_ASSERT(context.static_pages.size() * device::kUuarsPerUar == context.total_bfregs);
        record->static_uars = static_cast<std::uint32_t>(context.static_pages.size());
    }
    device::publish(record->head);
    engine::start_progress(command.fabric());
    engine::watch_ports(command.fabric());

    ib_uverbs_get_context_resp core{};
    core.async_fd = static_cast<std::uint32_t>(async_fd);
    core.num_comp_vectors = device::kCompVectors;
    mlx5_ib_alloc_ucontext_resp driver;
    fill_context_response(context, &driver);
    if (command.core_out.present()) {
        if (const int error = command.respond(core)) return error;
    } else {
        context.async_fd = async_fd;
    }
    return command.driver_respond(driver);
}

// get_context() by its method (kernel: UVERBS_METHOD_GET_CONTEXT). The method also reports what the
// core supports, and leaves the descriptor for events to ASYNC_EVENT_ALLOC.
int get_context_by_method(DeviceContext& context, const Attributes& attributes) noexcept {
    int error = attributes.put(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, device::kCompVectors);
    if (!error)
        error = attributes.put(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT,
                               std::uint64_t{IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS});
    if (error) return error;
    Command command{context,
                    IB_USER_VERBS_CMD_GET_CONTEXT,
                    false,
                    {},
                    {},
                    attributes.input(UVERBS_ATTR_UHW_IN),
                    attributes.output(UVERBS_ATTR_UHW_OUT)};
    return get_context(command);
}

// Succeeds once for each context. A second queue of events, which a program that imports a device
// has, is not supported.
int alloc_async_fd(DeviceContext& context, const Attributes& attributes) noexcept {
    if (context.async_fd < 0) return EPROTONOSUPPORT;
    const int error = attributes.put_handle(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE,
                                            static_cast<std::uint64_t>(context.async_fd));
    if (!error) context.async_fd = -1;
    return error;
}

int give_record(DeviceContext& context) noexcept {
    device::Fabric* fabric = device::Fabric::attach();
    if (!fabric) return ENODEV;
    std::lock_guard<std::mutex> guard(context.mutex);
    if (context.record != kNone) return 0;
    context.fabric = fabric;
    std::uint32_t index;
    device::Context* record =
        device::reserve(fabric->segment().contexts, *fabric, kNone, 0, &index);
    if (!record) return ENOMEM;
    SOFTHCA_ASSERT(context.inherited && index < device::kMaxContexts);
    record->head.context = index;
    record->device = context.device;
    record->async_channel = kNone;  // it has no objects that could raise events
    context.record = index;
    device::publish(record->head);
    return 0;
}

void destroy_context(DeviceContext& context) noexcept {
    // If the process has left the fabric at exit, the objects are gone and another process may have
    // the slot.
    if (context.record == kNone || !device::Fabric::current()) return;
    SOFTHCA_ASSERT(context.record < device::kMaxContexts);
    device::Fabric& fabric = *context.fabric;
    device::Segment& segment = fabric.segment();
    const auto each = [&](auto& table, auto&& action) {
        const std::uint32_t used = device::used(table);
        for (std::uint32_t i = 0; i < used; ++i)
            if (device::find_own(table, fabric, context.record, i)) action(i);
    };
    each(segment.qps, [&](std::uint32_t i) { free_qp(context, i); });
    each(segment.srqs, [&](std::uint32_t i) { free_srq(context, i); });
    each(segment.cqs, [&](std::uint32_t i) { free_cq(context, i); });
    each(segment.mws, [&](std::uint32_t i) { free_mw(context, i); });
    free_firmware_objects(context);
    each(segment.mrs, [&](std::uint32_t i) { free_mr(context, i); });
    each(segment.dms, [&](std::uint32_t i) {
        // EBUSY: a stopped process may still use a region on it. It is reclaimed with this process.
        if (free_device_memory(context, i) == EBUSY)
            segment.dms[i].head.state.store(device::kDying, std::memory_order_release);
    });
    each(segment.xrcd_handles, [&](std::uint32_t i) {
        device::drop_xrc_domain(fabric, segment.xrcd_handles[i].domain);
        device::free_item(segment.xrcd_handles, segment.xrcd_handles[i]);
    });
    each(segment.pds, [&](std::uint32_t i) { device::free_item(segment.pds, segment.pds[i]); });
    // The application closes the async descriptor; libibverbs does so after the command descriptor.
    if (context.async_channel != kNone) engine::close_channel(fabric, context.async_channel);
    context.async_channel = kNone;
    if (context.async_fd >= 0) libc::close(context.async_fd);
    context.async_fd = -1;
    each(segment.uars, [&](std::uint32_t i) { device::free_item(segment.uars, segment.uars[i]); });
    device::Context& record = segment.contexts[context.record];
    record.head.state.store(device::kDying, std::memory_order_release);
    if (device::epoch::synchronize()) device::free_item(segment.contexts, record);
    context.record = kNone;
}

}  // namespace softhca::uverbs
