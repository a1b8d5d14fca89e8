// SPDX-License-Identifier: BSD-2-Clause
// The supported write commands (rdma/ib_user_verbs.h). Other commands get the errno of a device
// that lacks the feature.
#include <rdma/ib_user_verbs.h>

#include "softhca/base/assert.h"
#include "softhca/base/log.h"
#include "softhca/device/table.h"
#include "softhca/uverbs/command.h"
#include "softhca/uverbs/unsupported.h"

namespace softhca::uverbs {
namespace {

using Function = int (*)(Command&) noexcept;

Function plain(std::uint32_t number) noexcept {
    switch (number) {
        case IB_USER_VERBS_CMD_GET_CONTEXT:
            return get_context;
        case IB_USER_VERBS_CMD_QUERY_DEVICE:
            return query_device;
        case IB_USER_VERBS_CMD_QUERY_PORT:
            return query_port;
        case IB_USER_VERBS_CMD_ALLOC_PD:
            return alloc_pd;
        case IB_USER_VERBS_CMD_DEALLOC_PD:
            return dealloc_pd;
        case IB_USER_VERBS_CMD_REG_MR:
            return reg_mr;
        case IB_USER_VERBS_CMD_REREG_MR:
            return rereg_mr;
        case IB_USER_VERBS_CMD_DEREG_MR:
            return dereg_mr;
        case IB_USER_VERBS_CMD_ALLOC_MW:
            return alloc_mw;
        case IB_USER_VERBS_CMD_DEALLOC_MW:
            return dealloc_mw;
        case IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL:
            return create_comp_channel;
        case IB_USER_VERBS_CMD_CREATE_CQ:
            return create_cq;
        case IB_USER_VERBS_CMD_RESIZE_CQ:
            return resize_cq;
        case IB_USER_VERBS_CMD_DESTROY_CQ:
            return destroy_cq;
        case IB_USER_VERBS_CMD_CREATE_QP:
            return create_qp;
        case IB_USER_VERBS_CMD_OPEN_QP:
            return open_qp;
        case IB_USER_VERBS_CMD_MODIFY_QP:
            return modify_qp;
        case IB_USER_VERBS_CMD_QUERY_QP:
            return query_qp;
        case IB_USER_VERBS_CMD_DESTROY_QP:
            return destroy_qp;
        case IB_USER_VERBS_CMD_CREATE_SRQ:
        case IB_USER_VERBS_CMD_CREATE_XSRQ:
            return create_srq;
        case IB_USER_VERBS_CMD_MODIFY_SRQ:
            return modify_srq;
        case IB_USER_VERBS_CMD_QUERY_SRQ:
            return query_srq;
        case IB_USER_VERBS_CMD_DESTROY_SRQ:
            return destroy_srq;
        case IB_USER_VERBS_CMD_OPEN_XRCD:
            return open_xrcd;
        case IB_USER_VERBS_CMD_CLOSE_XRCD:
            return close_xrcd;
        case IB_USER_VERBS_CMD_ATTACH_MCAST:
            return attach_mcast;
        case IB_USER_VERBS_CMD_DETACH_MCAST:
            return detach_mcast;
        case IB_USER_VERBS_CMD_CREATE_AH:
            return create_ah;
        case IB_USER_VERBS_CMD_DESTROY_AH:
            return destroy_ah;
        default:
            return nullptr;
    }
}

Function extended(std::uint32_t number) noexcept {
    switch (number) {
        case IB_USER_VERBS_EX_CMD_QUERY_DEVICE:
            return query_device;
        case IB_USER_VERBS_EX_CMD_CREATE_CQ:
            return create_cq;
        case IB_USER_VERBS_EX_CMD_MODIFY_CQ:
            return modify_cq;
        case IB_USER_VERBS_EX_CMD_CREATE_QP:
            return create_qp;
        case IB_USER_VERBS_EX_CMD_MODIFY_QP:
            return modify_qp;
        default:
            return nullptr;
    }
}

}  // namespace

int run_command(Command& command) noexcept {
    const Function function = command.extended ? extended(command.number) : plain(command.number);
    if (!function) return unsupported_command(command.number, command.extended);
    if (command.context.record == device::kNone && function != get_context) return EINVAL;
    SOFTHCA_ASSERT(command.context.fabric != nullptr);
    const int error = function(command);
    SOFTHCA_ASSERT(error >= 0, "an errno, not a kernel's negative one");
    LOG_DEBUG("command %u%s: %d", command.number, command.extended ? " (extended)" : "", error);
    return error;
}

int alloc_pd(Command& command) noexcept {
    std::uint32_t index;
    device::ProtectionDomain* pd = device::reserve(
        command.segment().pds, command.fabric(), command.context.record, device::kFirstPd, &index);
    if (!pd) return ENOMEM;
    device::publish(pd->head);
    ib_uverbs_alloc_pd_resp core{};
    core.pd_handle = index;
    if (const int error = command.respond(core)) return error;
    const std::uint32_t pdn = index;  // struct mlx5_ib_alloc_pd_resp
    return command.driver_respond(pdn);
}

int dealloc_pd(Command& command) noexcept {
    ib_uverbs_dealloc_pd request;
    if (const int error = command.request(request)) return error;
    auto& table = command.segment().pds;
    device::ProtectionDomain* pd =
        device::find_own(table, command.fabric(), command.context.record, request.pd_handle);
    if (!pd) return ENOENT;
    if (pd->users.load()) return EBUSY;
    device::free_item(table, *pd);
    return 0;
}

}  // namespace softhca::uverbs
