// SPDX-License-Identifier: BSD-2-Clause
// Is memory part of the frames that called us? Those are there, whatever a program may do wrong, so
// that a command in them - libibverbs builds all of its commands there - need not be fetched by a
// system call that can tell EFAULT.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca::uverbs {

// Where this thread's stack began (its highest address); 0: not known.
std::uintptr_t stack_begin() noexcept;

[[gnu::always_inline]] inline bool in_callers_frames(std::uint64_t at, std::size_t bytes) noexcept {
    const auto lowest = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    const std::uintptr_t end = stack_begin();
    return at >= lowest && at < end && bytes <= end - at;
}

}  // namespace softhca::uverbs
