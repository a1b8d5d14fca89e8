// SPDX-License-Identifier: BSD-2-Clause
// The parts of the arena that only device/memory/ uses.
#pragma once

#include <cstddef>
#include <cstdint>

#include <unistd.h>

#include "softhca/device/memory/arena.h"

namespace softhca::device::memory {

// The size of a huge page on x86-64 and aarch64.
inline constexpr std::uint64_t kHugeBytes = 2ULL << 20;

// Pages have 4 KiB on x86-64, and 4, 16 or 64 KiB on aarch64.
inline std::uint64_t page_bytes() noexcept {
    static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    return bytes;
}
inline std::uint64_t round_down(std::uint64_t value) noexcept {
    return value & ~(page_bytes() - 1);
}
inline std::uint64_t round_up(std::uint64_t value) noexcept {
    return round_down(value + page_bytes() - 1);
}

inline void* pointer(std::uint64_t address) noexcept { return reinterpret_cast<void*>(address); }

// As arena_allocate(), for pages that will be mapped at `address`. They begin at offset `hint` if
// those pages are free; kNoOffset means no preference. A large allocation is aligned so that huge
// pages are possible in both places.
std::uint64_t arena_take(std::uint64_t length, std::uint64_t hint, std::uint64_t address) noexcept;

std::uint64_t arena_device() noexcept;  // st_dev of the arena
bool arena_fd_intact() noexcept;        // whether arena_fd() still refers to the arena

void arena_lock_for_fork() noexcept;
void arena_unlock_after_fork(bool child) noexcept;

}  // namespace softhca::device::memory
