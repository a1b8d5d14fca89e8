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

int check(const Command& command, const ib_uverbs_ah_attr& attr) noexcept {
    if (!device::has_port(command.segment(), attr.port_num) ||
        attr.grh.sgid_index >= device::kGidTableLength)
        return EINVAL;
    return device::port_of(command.segment(), command.context.device, attr.port_num)
                   .can_send(attr.is_global, attr.grh.sgid_index)
               ? 0
               : EINVAL;
}

// The MAC address of a GID. One that is on no port has none, and the kernel would fail to resolve
// it. It gets the sender's own, and messages to it are lost.
std::array<std::uint8_t, 6> mac_of(const Command& command, const ib_uverbs_ah_attr& attr) noexcept {
    const device::Segment& segment = command.segment();
    const device::Port own = device::port_of(segment, command.context.device, attr.port_num);
    const std::uint16_t path =
        device::path_to_gid(segment, own.gid(attr.grh.sgid_index), attr.grh.dgid);
    return path == 0 ? own.mac()
                     : device::port_at(segment, path - unsigned{device::kFirstLid}).mac();
}

}  // namespace

int create_ah(Command& command) noexcept {
    ib_uverbs_create_ah request;
    if (const int error = command.request(request)) return error;
    if (!device::find_own(command.segment().pds, command.fabric(), command.context.record,
                          request.pd_handle))
        return EINVAL;
    if (const int error = check(command, request.attr)) return error;
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
        const auto mac = mac_of(command, request.attr);
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
