// SPDX-License-Identifier: BSD-2-Clause
// ATTACH_MCAST and DETACH_MCAST (kernel: ib_uverbs_attach_mcast, ib_attach_mcast,
// mlx5_ib_mcg_attach).
#include <rdma/ib_user_verbs.h>

#include "softhca/device/multicast.h"
#include "softhca/device/port.h"
#include "softhca/device/table.h"
#include "softhca/uverbs/command.h"

namespace softhca::uverbs {
namespace {

// On Ethernet the LID has no meaning (is_valid_mcast_lid of the kernel).
bool fits_port(Command& command, std::uint16_t lid) noexcept {
    return device::has_ethernet(command.segment()) || device::is_multicast_lid(lid);
}

device::QueuePair* find_qp(Command& command, std::uint32_t handle) noexcept {
    return device::find_own(command.segment().qps, command.fabric(), command.context.record,
                            handle);
}

}  // namespace

int attach_mcast(Command& command) noexcept {
    ib_uverbs_attach_mcast request;
    if (const int error = command.request(request)) return error;
    device::QueuePair* const qp = find_qp(command, request.qp_handle);
    if (!qp || qp->type != IB_UVERBS_QPT_UD || !device::is_multicast_gid(request.gid) ||
        !fits_port(command, request.mlid))
        return EINVAL;
    return device::attach_multicast(command.segment(), *qp, request.gid, request.mlid);
}

int detach_mcast(Command& command) noexcept {
    ib_uverbs_detach_mcast request;
    if (const int error = command.request(request)) return error;
    device::QueuePair* const qp = find_qp(command, request.qp_handle);
    if (!qp) return EINVAL;
    return device::detach_multicast(command.segment(), *qp, request.gid, request.mlid);
}

}  // namespace softhca::uverbs
