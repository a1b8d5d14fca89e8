// SPDX-License-Identifier: BSD-2-Clause
// Whether memory lies in the stack frames of our callers. Those frames are mapped whatever a
// program does wrong. libibverbs builds all of its commands there, so such a command need not be
// copied by a system call, which could report EFAULT.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca::uverbs {

// Where this thread's stack began (its highest address), or 1 if that is unknown.
std::uintptr_t stack_begin() noexcept;

[[gnu::always_inline]] inline bool in_callers_frames(std::uint64_t at, std::size_t bytes) noexcept {
    const auto lowest = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    const std::uintptr_t end = stack_begin();
    return at >= lowest && at < end && bytes <= end - at;
}

}  // namespace softhca::uverbs
