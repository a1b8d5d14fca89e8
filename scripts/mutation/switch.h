// SPDX-License-Identifier: BSD-2-Clause
// Included by mutated sources (scripts/mutate): which mutation is selected, and which were reached.
// Both stand in a file that all processes of a test map: the selected number in its first four bytes,
// then a byte for each mutation, which on() sets. $HEDDLE_MUTATION_FILE names it.
#pragma once
#include <cstdint>
#include <cstdlib>

namespace heddle_mutation {

inline constexpr long kBytes = 1 << 16;

// By the instruction: softhca replaces functions of libc, and must not see these calls.
inline long system_call(long number, long a, long b, long c, long d, long e) noexcept {
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = e;
    register long r9 asm("r9") = 0;
    long result;
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return result;
}

inline unsigned char* map_file() noexcept {
    const char* name = std::getenv("HEDDLE_MUTATION_FILE");
    if (!name) name = HEDDLE_MUTATION_FILE;
    const long file = system_call(2 /* open */, reinterpret_cast<long>(name), 2 /* O_RDWR */, 0, 0, 0);
    if (file < 0) return nullptr;
    const long at = system_call(9 /* mmap */, 0, kBytes, 3 /* read, write */, 1 /* shared */, file);
    system_call(3 /* close */, file, 0, 0, 0, 0);
    return at < 0 && at > -4096 ? nullptr : reinterpret_cast<unsigned char*>(at);
}

// Whether mutation `number` is selected.
[[gnu::noinline]] inline bool on(std::uint32_t number) noexcept {
    static unsigned char* volatile mapped = nullptr;
    unsigned char* file = mapped;
    if (!file) {
        file = map_file();
        if (!file) return false;
        mapped = file;
    }
    static_cast<volatile unsigned char*>(file)[4 + number] = 1;
    return *reinterpret_cast<volatile std::uint32_t*>(file) == number;
}

}  // namespace heddle_mutation
