// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/uverbs/unsupported.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include "softhca/base/missing.h"

namespace softhca::uverbs {
namespace {

const char* wanted_by_command(std::uint32_t number, bool extended) noexcept {
    if (!extended) return nullptr;
    switch (number) {
        case IB_USER_VERBS_EX_CMD_CREATE_FLOW:
        case IB_USER_VERBS_EX_CMD_DESTROY_FLOW:
            return "flow steering";
        case IB_USER_VERBS_EX_CMD_CREATE_WQ:
        case IB_USER_VERBS_EX_CMD_MODIFY_WQ:
        case IB_USER_VERBS_EX_CMD_DESTROY_WQ:
        case IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL:
        case IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL:
            return "work queues of raw packets";
        default:
            return nullptr;
    }
}

struct Wanted {
    const char* what = nullptr;
    LogLevel level = LogLevel::kWarn;
};

Wanted wanted_by_object(unsigned object, unsigned method) noexcept {
    switch (object) {
        case UVERBS_OBJECT_DEVICE:
            // Other methods are asked for in vain first, as older kernels have commands only.
            if (method == UVERBS_METHOD_QUERY_CONTEXT) return {"importing a device"};
            return {};
        case UVERBS_OBJECT_MR:
            if (method == UVERBS_METHOD_REG_DMABUF_MR)
                return {"memory regions on dma-bufs", LogLevel::kInfo};  // UCX and libfabric probe
            return {};
        case UVERBS_OBJECT_FLOW:
        case UVERBS_OBJECT_FLOW_ACTION:
        case MLX5_IB_OBJECT_FLOW_MATCHER:
        case MLX5_IB_OBJECT_STEERING_ANCHOR:
            return {"flow steering"};
        case UVERBS_OBJECT_WQ:
        case UVERBS_OBJECT_RWQ_IND_TBL:
            return {"work queues of raw packets"};
        case UVERBS_OBJECT_COUNTERS:
            return {"counters of flows"};
        case MLX5_IB_OBJECT_DEVX_UMEM:
            return {"user memory of DEVX"};
        case MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD:
        case MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD:
            return {"event channels of DEVX", LogLevel::kInfo};  // UCX goes on without
        case MLX5_IB_OBJECT_DEVX:
        case MLX5_IB_OBJECT_DEVX_OBJ:
            return {"more of DEVX than firmware commands"};
        case MLX5_IB_OBJECT_VAR:
            return {"doorbells for virtio (VAR)"};
        case MLX5_IB_OBJECT_PP:
            return {"packet pacing"};
        default:
            return {};
    }
}

}  // namespace

int unsupported_command(std::uint32_t number, bool extended) noexcept {
    const char* const what = wanted_by_command(number, extended);
    if (what != nullptr) return missing(EOPNOTSUPP, what);
    LOG_DEBUG("command %u%s is not supported", number, extended ? " (extended)" : "");
    return EOPNOTSUPP;
}

int unsupported_method(unsigned object, unsigned method) noexcept {
    const Wanted wanted = wanted_by_object(object, method);
    if (wanted.what != nullptr) return missing(EPROTONOSUPPORT, wanted.what, wanted.level);
    LOG_TRACE("ioctl: object 0x%x method 0x%x is not supported", object, method);
    return EPROTONOSUPPORT;
}

}  // namespace softhca::uverbs
