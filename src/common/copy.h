// SPDX-License-Identifier: BSD-2-Clause
// Copies of payload, from and to any address. glibc's memcpy() makes a copy of more than 2 KiB by
// one REP MOVSB. Before glibc 2.40 it does so on AMD's Zen 3 and 4, too. There the instruction
// takes 15 to 25 times as long if the target begins 1 to 31 bytes behind the source within a page
// (bench/payload_copy.cc; glibc bug 30994). Payload often does: malloc() has all large buffers 16
// bytes behind the begin of a page, and a header before the payload moves it by some more.
#pragma once

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace common {

// By REP MOVSB from here on, if the vectors have 32 bytes.
inline constexpr std::size_t kRepeatedMove = 2112;

// Whether the target begins a little behind the source within a page.
inline bool is_little_behind(const void* to, const void* from) noexcept {
    constexpr std::uintptr_t kPage = 4096, kLittle = 32;
    const std::uintptr_t behind =
        (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % kPage;
    return behind != 0 && behind < kLittle;
}

#if defined(__x86_64__)
// memcpy() by the processor's vectors. The ranges do not overlap.
[[gnu::noinline]] inline void copy_by_vectors(std::byte* to, const std::byte* from,
                                              std::size_t bytes) noexcept {
    constexpr std::size_t kStep = 128;
    for (; bytes >= kStep; bytes -= kStep, from += kStep, to += kStep) {
        const auto* const source = reinterpret_cast<const __m128i*>(from);
        auto* const target = reinterpret_cast<__m128i*>(to);
        // All are loaded before any is stored: a load that follows a store of the same place
        // within a page waits for it.
        const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1),
                      c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3),
                      e = _mm_loadu_si128(source + 4), f = _mm_loadu_si128(source + 5),
                      g = _mm_loadu_si128(source + 6), h = _mm_loadu_si128(source + 7);
        _mm_storeu_si128(target, a), _mm_storeu_si128(target + 1, b);
        _mm_storeu_si128(target + 2, c), _mm_storeu_si128(target + 3, d);
        _mm_storeu_si128(target + 4, e), _mm_storeu_si128(target + 5, f);
        _mm_storeu_si128(target + 6, g), _mm_storeu_si128(target + 7, h);
        asm volatile("");  // or the compiler makes the loop a call of memcpy()
    }
    std::memcpy(to, from, bytes);
}
#endif

// memmove(): the ranges may overlap. Threads: as memmove().
inline void copy_payload(void* to, const void* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
    if (bytes >= kRepeatedMove && is_little_behind(to, from)) [[unlikely]] {
        auto* const target = static_cast<std::byte*>(to);
        const auto* const source = static_cast<const std::byte*>(from);
        if (target + bytes <= source || source + bytes <= target) {
            copy_by_vectors(target, source, bytes);
            return;
        }
    }
#endif
    std::memmove(to, from, bytes);
}

}  // namespace common
