// SPDX-License-Identifier: BSD-2-Clause
// Which processes may be able to share memory: those that the same kernel runs for the same user,
// and that see each other's numbers. What is found to be equal is only the reason to try.
#pragma once

#include <cstdint>

namespace heddle::protocol {

// A number of 48 bits that such processes have in common: a hash of the kernel's boot id, the user
// and the namespace of process numbers. 0: it cannot be found out.
std::uint64_t host_number() noexcept;
inline constexpr std::uint64_t kMostHostNumber = (std::uint64_t{1} << 48) - 1;

}  // namespace heddle::protocol
