// SPDX-License-Identifier: BSD-2-Clause
// Values of include/uapi/rdma/rdma_netlink.h that headers of older kernels lack. They are part of
// the ABI.
#pragma once

#include <rdma/rdma_netlink.h>

#include <cstdint>

namespace softhca::nldev {

// Commands (enum rdma_nldev_command).
inline constexpr std::uint16_t kResCtxGet = 22;
inline constexpr std::uint16_t kResSrqGet = 23;

// Attributes (enum rdma_nldev_attr).
inline constexpr std::uint16_t kDevDim = 84;
inline constexpr std::uint16_t kResCtx = 86;
inline constexpr std::uint16_t kResCtxEntry = 87;
inline constexpr std::uint16_t kResSrq = 88;
inline constexpr std::uint16_t kResSrqEntry = 89;
inline constexpr std::uint16_t kResSrqn = 90;
inline constexpr std::uint16_t kMinRange = 91;
inline constexpr std::uint16_t kMaxRange = 92;
inline constexpr std::uint16_t kSysCopyOnFork = 93;

}  // namespace softhca::nldev
