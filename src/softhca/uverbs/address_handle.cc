// SPDX-License-Identifier: BSD-2-Clause
// CREATE_AH and DESTROY_AH. On an Ethernet port libmlx5 asks the driver for the MAC address of a
// GID (mlx5_create_ah of libmlx5, rdma_create_user_ah of the kernel). On InfiniBand it never asks.
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>
#include <new>

#include "softhca/base/assert.h"
#include "softhca/device/identity.h"
#include "softhca/device/port.h"
#include "softhca/device/table.h"
#include "softhca/uverbs/command.h"

namespace softhca::uverbs {

namespace {

int check(const device::Port& port, const ib_uverbs_ah_attr& attr) noexcept {
    if (attr.port_num != 1 || attr.grh.sgid_index >= device::kGidTableLength) return EINVAL;
    return port.can_send(attr.is_global, attr.grh.sgid_index) ? 0 : EINVAL;
}

}  // namespace

int create_ah(Command& command) noexcept {
    ib_uverbs_create_ah request;
    if (const int error = command.request(request)) return error;
    if (!device::find_own(command.segment().pds, command.fabric(), command.context.record,
                          request.pd_handle))
        return EINVAL;
    const device::Port port = device::port_of(command.segment());
    if (const int error = check(port, request.attr)) return error;
    ib_uverbs_create_ah_resp out{};
    {
        const std::lock_guard guard(command.context.mutex);
        out.ah_handle = ++command.context.last_address_handle;
        SOFTHCA_ASSERT(out.ah_handle != 0 &&
                       !command.context.address_handles.contains(out.ah_handle));
        try {
            command.context.address_handles.insert(out.ah_handle);
        } catch (const std::bad_alloc&) {
            return ENOMEM;
        }
    }
    int error = command.respond(out);
    if (!error) {
        mlx5_ib_create_ah_resp driver{};
        driver.response_length = sizeof driver;
        // A GID that is not on this port has no known MAC address, and the kernel would fail to
        // resolve it. Messages to it are lost.
        const auto mac = port.mac();
        std::copy(mac.begin(), mac.end(), driver.dmac);
        error = command.driver_respond(driver);
    }
    if (error) destroy_ah(command.context, out.ah_handle);
    return error;
}

int destroy_ah(Command& command) noexcept {
    ib_uverbs_destroy_ah request;
    if (const int error = command.request(request)) return error;
    return destroy_ah(command.context, request.ah_handle);
}

int destroy_ah(DeviceContext& context, std::uint32_t handle) noexcept {
    const std::lock_guard guard(context.mutex);
    return context.address_handles.erase(handle) != 0 ? 0 : EINVAL;
}

}  // namespace softhca::uverbs
