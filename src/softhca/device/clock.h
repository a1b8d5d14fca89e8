// SPDX-License-Identifier: BSD-2-Clause
// The clock of completion timestamps: nanoseconds, derived from the processor's constant-rate
// counter. The factor lies in the segment. So all processes agree, although they write completions
// for each other.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace softhca::device {

inline constexpr std::uint64_t kClockKhz = 1'000'000;  // hca_core_clock

inline std::uint64_t counter() noexcept {
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    std::uint64_t t;
    asm volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#endif
}

inline std::uint64_t counter_to_ns(std::uint64_t ticks, std::uint64_t factor) noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(static_cast<Wide>(ticks) * factor >> 32);
}

// Nanoseconds per tick * 2^32. aarch64 reports the counter's rate; elsewhere it is measured against
// CLOCK_MONOTONIC for 2 ms.
std::uint64_t measure_clock_factor() noexcept;

}  // namespace softhca::device
