// SPDX-License-Identifier: BSD-2-Clause
// Private memory for tests of system calls on registered memory.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "verbs_fixture.h"

namespace softhca::test {

inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kPages = 16;
inline constexpr std::size_t kBytes = kPages * kPage;
inline constexpr int kReadWrite = PROT_READ | PROT_WRITE, kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;

// kPages of private memory, and address space around them that nobody else gets: `before` and
// `behind`. The space before them is too large for the guard of a thread's stack.
class Plot {
public:
    Plot() {
        whole_ = static_cast<std::uint8_t*>(
            mmap(nullptr, kWhole, PROT_NONE, kPrivate | MAP_NORESERVE, -1, 0));
        if (whole_ == MAP_FAILED ||
            mmap(data(), kBytes, kReadWrite, kPrivate | MAP_FIXED, -1, 0) != data())
            fail("mmap");
        for (std::size_t i = 0; i < kBytes; ++i)
            data()[i] = pattern(1, i);
    }
    ~Plot() { munmap(whole_, kWhole); }
    Plot(const Plot&) = delete;
    Plot& operator=(const Plot&) = delete;

    std::uint8_t* data() const { return whole_ + kAround; }
    std::uint8_t* page(std::size_t i) const { return data() + i * kPage; }
    std::uint8_t* elsewhere() const { return data() + kBytes + kAround; }
    // Makes room for memory that grows in place.
    void open_behind() const { munmap(data() + kBytes, kAround); }

private:
    static constexpr std::size_t kAround = 1 << 20;
    static constexpr std::size_t kWhole = 3 * kAround + kBytes;
    std::uint8_t* whole_;
};

}  // namespace softhca::test
