// SPDX-License-Identifier: BSD-2-Clause
// What an endpoint can do: said by fi_getinfo, held against what programs then ask for.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>

namespace heddle::provider {

inline constexpr std::size_t kMaxIov = 8;  // of an iovec
inline constexpr std::size_t kMaxMessage = std::size_t{1} << 40;
// Operations that may be under way; more get -FI_EAGAIN when the device's queues are full.
inline constexpr std::size_t kTransmitSize = 1024, kReceiveSize = 1024;
inline constexpr std::size_t kMinMultiReceive = 64;
// FI_PROV_SPECIFIC of libfabric 1's headers; libfabric 2's have the name no more.
inline constexpr std::uint32_t kProviderSpecific = std::uint32_t{1} << 31;
inline constexpr std::uint32_t kAddressFormat = kProviderSpecific | 0x4e48;  // protocol::Name
inline constexpr std::uint32_t kProtocol = kProviderSpecific | 0x4e48, kProtocolVersion = 1;

// mr_mode of before libfabric 1.5: one of two (newer headers warn of the names).
inline constexpr int kMrBasic = 1 << 0, kMrScalable = 1 << 1;

// FI_REG_MR, which the headers of libfabric 2 warn of; programs of before may pass it.
inline constexpr std::uint64_t kRegisterMemory = std::uint64_t{1} << 59;

// Defaults that fi_info's op_flags and FI_SETOPSFLAG may set.
inline constexpr std::uint64_t kTransmitOpFlags =
    FI_INJECT | FI_COMPLETION | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
inline constexpr std::uint64_t kReceiveOpFlags = FI_COMPLETION | FI_MULTI_RECV;

}  // namespace heddle::provider
