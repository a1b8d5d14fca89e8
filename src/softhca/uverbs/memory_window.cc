// SPDX-License-Identifier: BSD-2-Clause
// Memory windows (kernel: ib_uverbs_alloc_mw, mlx5_ib_alloc_mw). Binding them is the device's work:
// engine/windows.h.
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/base/assert.h"
#include "softhca/device/fabric.h"
#include "softhca/device/table.h"
#include "softhca/uverbs/command.h"
#include "softhca/uverbs/free_key.h"

namespace softhca::uverbs {

using device::MemoryWindow;

int alloc_mw(Command& command) noexcept {
    ib_uverbs_alloc_mw request;
    if (const int error = command.request(request)) return error;
    if (request.mw_type != IBV_MW_TYPE_1 && request.mw_type != IBV_MW_TYPE_2) return EINVAL;
    device::Segment& segment = command.segment();
    device::ProtectionDomain* const pd =
        device::find_own(segment.pds, command.fabric(), command.context.record, request.pd_handle);
    if (!pd) return EINVAL;
    std::uint32_t index;
    MemoryWindow* const window =
        device::reserve(segment.mws, command.fabric(), command.context.record, 0, &index);
    if (!window) return ENOMEM;
    SOFTHCA_ASSERT(index < device::kMaxMws);
    window->type = request.mw_type;
    window->pd = request.pd_handle;
    window->changes.store(0, std::memory_order_relaxed);
    window->is_bound.store(0, std::memory_order_relaxed);
    window->key.store((device::kMaxMrs + index) << 8 | (window->head.generation & 0xff),
                      std::memory_order_relaxed);
    pd->users.fetch_add(1);
    device::publish(window->head);
    ib_uverbs_alloc_mw_resp response{};
    response.mw_handle = index;
    response.rkey = window->key.load(std::memory_order_relaxed);
    return command.respond(response);
}

void free_mw(DeviceContext& context, std::uint32_t index) noexcept {
    free_key(context, context.fabric->segment().mws, index);
}

int dealloc_mw(Command& command) noexcept {
    ib_uverbs_dealloc_mw request;
    if (const int error = command.request(request)) return error;
    if (!device::find_own(command.segment().mws, command.fabric(), command.context.record,
                          request.mw_handle))
        return ENOENT;
    free_mw(command.context, request.mw_handle);
    return 0;
}

}  // namespace softhca::uverbs
