// SPDX-License-Identifier: BSD-2-Clause
// Memory that tests map, and unmap, at places they choose.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>

namespace heddle::test {

inline void* try_to_map(void* at, std::size_t bytes, int flags) {
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

inline std::byte* map(void* at, std::size_t bytes, int flags = 0) {
    void* const memory = try_to_map(at, bytes, flags);
    EXPECT_NE(memory, MAP_FAILED);
    return static_cast<std::byte*>(memory);
}

// Maps memory where nothing is, if possible where something was that has gone. The address is far
// below those that the kernel chooses for a caller without a preference. So memory that a test
// unmaps here does not become another thread's before the test maps it again.
inline std::byte* map_some(std::size_t bytes) {
    constexpr std::size_t kApart = std::size_t{16} << 30;
    static std::byte* const theirs = map(nullptr, bytes);
    for (std::size_t i = 1; i < 64; ++i) {
        void* const memory = try_to_map(theirs - i * kApart, bytes, MAP_FIXED_NOREPLACE);
        if (memory != MAP_FAILED) return static_cast<std::byte*>(memory);
    }
    ADD_FAILURE() << "no address left for " << bytes << " bytes";
    std::abort();
}

}  // namespace heddle::test
