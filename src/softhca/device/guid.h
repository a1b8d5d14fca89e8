// SPDX-License-Identifier: BSD-2-Clause
// The device's GUID, which the GID of its port ends with: another one for each fabric, so that
// programs can tell ports apart that cannot reach each other. All fabrics have LID 1.
#pragma once

#include <cstdint>
#include <string_view>

namespace softhca::device {

// The top 24 bits of every GUID of softhca, locally administered; the other 40 are a hash.
inline constexpr std::uint64_t kGuidPrefix = 0x02504fULL << 40;

// The GUID of the fabric of that name in the file system `filesystem` (st_dev of its segment), of
// this user on this host. The same until the host is started again.
std::uint64_t node_guid(std::string_view fabric, std::uint64_t filesystem) noexcept;

}  // namespace softhca::device
