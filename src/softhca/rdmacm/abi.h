// SPDX-License-Identifier: BSD-2-Clause
// What rdma/rdma_user_cm.h lacks: numbers that the kernel has in rdma/rdma_cm.h alone, and programs
// in librdmacm's rdma/rdma_cma.h.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>

namespace softhca::rdmacm {

enum class Event : std::uint32_t {  // enum rdma_cm_event_type
    kAddressResolved,
    kAddressError,
    kRouteResolved,
    kRouteError,
    kConnectRequest,
    kConnectResponse,
    kConnectError,
    kUnreachable,
    kRejected,
    kEstablished,
    kDisconnected,
    kDeviceRemoval,
    kMulticastJoin,
    kMulticastError,
    kAddressChange,
    kTimeWaitExit,
    kAddressInfoResolved,
    kAddressInfoError,
    kUser,
    kInternal,
};

// RDMA_USER_CM_CMD_WRITE_CM_EVENT of newer kernels: a program queues an event of its own.
inline constexpr std::uint32_t kWriteEventCommand = 24;
struct WriteEvent {  // rdma_ucm_write_cm_event
    std::uint32_t id, reserved, event, status;
    union {
        rdma_ucm_conn_param connection;
        rdma_ucm_ud_param datagram;
        std::uint64_t argument;
    };
};

inline constexpr std::uint32_t kDefaultQkey = 0x0123'4567;  // RDMA_UDP_QKEY

}  // namespace softhca::rdmacm
