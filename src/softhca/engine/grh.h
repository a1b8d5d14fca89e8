// SPDX-License-Identifier: BSD-2-Clause
// The header that a receiver of datagrams finds before the payload: the global route header of
// InfiniBand (IBTA 8.3) and RoCE v1, or the IP header of RoCE v2.
#pragma once

#include <cstddef>

#include "softhca/device/fabric.h"
#include "softhca/engine/request.h"

namespace softhca::engine {

inline constexpr std::size_t kGrhBytes = 40;

// Writes all kGrhBytes of it.
void build_grh(device::Fabric& fabric, const device::QueuePair& requester, const Request& request,
               std::byte* grh) noexcept;

}  // namespace softhca::engine
