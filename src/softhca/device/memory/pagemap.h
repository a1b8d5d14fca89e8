// SPDX-License-Identifier: BSD-2-Clause
// What the kernel says of this process's pages: Documentation/admin-guide/mm/pagemap.rst.
#pragma once

#include <cstdint>
#include <span>

#include <sys/types.h>

#include "softhca/base/libc.h"
#include "softhca/device/memory/arena_internal.h"

namespace softhca::device::memory {

// An entry for each page from `address` on. fd: /proc/PID/pagemap, or -1. False: nothing is known.
inline bool read_pagemap(int fd, std::uint64_t address, std::span<std::uint64_t> entries) noexcept {
    return fd >= 0 && libc::pread(fd, entries.data(), entries.size_bytes(),
                                  static_cast<off_t>(address / page_bytes() * sizeof entries[0])) ==
                          static_cast<ssize_t>(entries.size_bytes());
}

// The page is in memory, or swapped out.
constexpr bool has_content(std::uint64_t entry) noexcept { return entry >> 62 != 0; }

}  // namespace softhca::device::memory
