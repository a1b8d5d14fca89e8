// SPDX-License-Identifier: BSD-2-Clause
// The limits of endpoints. fi_getinfo(3) reports them, and calls are checked against them.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>

namespace heddle::provider {

inline constexpr std::size_t kMaxIov = 8;  // entries of an I/O vector
inline constexpr std::size_t kMaxMessage = std::size_t{1} << 40;
// Operations that may be outstanding. Further ones get -FI_EAGAIN when the device's queues are
// full.
inline constexpr std::size_t kTransmitSize = 1024, kReceiveSize = 1024;
inline constexpr std::size_t kMinMultiReceive = 64;
// FI_PROV_SPECIFIC of the headers of libfabric 1. Those of libfabric 2 do not have the name.
inline constexpr std::uint32_t kProviderSpecific = std::uint32_t{1} << 31;
inline constexpr std::uint32_t kAddressFormat = kProviderSpecific | 0x4e48;  // EndpointAddress
inline constexpr std::uint32_t kProtocol = kProviderSpecific | 0x4e48, kProtocolVersion = 1;

// The two values of mr_mode before libfabric 1.5. Newer headers warn about the names.
inline constexpr int kMrBasic = 1 << 0, kMrScalable = 1 << 1;

// FI_REG_MR. The headers of libfabric 2 warn about the name; older programs may pass the flag.
inline constexpr std::uint64_t kRegisterMemory = std::uint64_t{1} << 59;

// The default flags that a program may set by fi_info's op_flags and by FI_SETOPSFLAG.
inline constexpr std::uint64_t kTransmitOpFlags =
    FI_INJECT | FI_COMPLETION | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
inline constexpr std::uint64_t kReceiveOpFlags = FI_COMPLETION | FI_MULTI_RECV;

}  // namespace heddle::provider
