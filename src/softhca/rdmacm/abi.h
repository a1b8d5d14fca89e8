// SPDX-License-Identifier: BSD-2-Clause
// What rdma/rdma_user_cm.h lacks: numbers that the kernel has in rdma/rdma_cm.h alone, and programs
// in librdmacm's rdma/rdma_cma.h.
#pragma once

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
};

inline constexpr std::uint32_t kDefaultQkey = 0x0123'4567;  // RDMA_UDP_QKEY

}  // namespace softhca::rdmacm
