// SPDX-License-Identifier: BSD-2-Clause
// The GUID of a fabric's first device, which is the lower half of its first port's GID. Those of
// the other devices and ports follow it (port.h). Each fabric has others, so programs can tell
// apart ports that cannot reach each other. All fabrics have the same LIDs.
#pragma once

#include <cstdint>
#include <string_view>

namespace softhca::device {

// The top 24 bits of every GUID of softhca, locally administered. The other 40 are a hash.
inline constexpr std::uint64_t kGuidPrefix = 0x02504fULL << 40;

// The first GUID of the fabric of that name, for this user and host. `filesystem` is st_dev of its
// segment. It stays the same until the host reboots.
std::uint64_t node_guid(std::string_view fabric, std::uint64_t filesystem) noexcept;

}  // namespace softhca::device
