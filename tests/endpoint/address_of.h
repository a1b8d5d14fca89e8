// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

// An address in the form of work requests.
inline std::uint64_t address_of(const std::byte* at) { return reinterpret_cast<std::uint64_t>(at); }

}  // namespace heddle
