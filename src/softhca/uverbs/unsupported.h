// SPDX-License-Identifier: BSD-2-Clause
// Commands and methods that no function carries out, by what a program wants with them.
#pragma once

#include <cstdint>

namespace softhca::uverbs {

// Each says in the log what is missing (base/missing.h), and returns the errno of a kernel or
// device without it.
int unsupported_command(std::uint32_t number, bool extended) noexcept;
int unsupported_method(unsigned object, unsigned method) noexcept;

}  // namespace softhca::uverbs
