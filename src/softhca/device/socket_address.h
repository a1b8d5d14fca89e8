// SPDX-License-Identifier: BSD-2-Clause
// Addresses of rdma_cm as the kernel's interfaces have them: sockaddr_in, sockaddr_in6, and
// sockaddr_ib, whose header (rdma/ib.h) programs do not have.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "softhca/device/connections.h"

namespace softhca::device {

// An address of AF_IB: struct sockaddr_ib of rdma/ib.h. All but the scope in network byte order.
struct GidSockaddr {
    std::uint16_t family, pkey;
    std::uint32_t flow;
    std::uint8_t gid[16];
    std::uint64_t service, service_mask, scope;
};
static_assert(sizeof(GidSockaddr) == 48);

// Writes an address to `sockaddr`, which has room for any (sockaddr_storage). Returns its length; 0
// if it has no family.
std::size_t write_address(const CmAddress& address, void* sockaddr) noexcept;

}  // namespace softhca::device
