// SPDX-License-Identifier: BSD-2-Clause
// payload_copy: what a copy of payload takes by the C library's memcpy() and by copy_payload(), by
// its size and by how far the target begins behind the source within a page. They take turns; the
// shortest of their rounds is printed. Memory is warm.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "common/copy.h"

namespace {

using Clock = std::chrono::steady_clock;
using Copy = void (*)(void*, const void*, std::size_t) noexcept;

constexpr std::size_t kMemory = 4u << 20;
constexpr int kRounds = 15, kCopies = 40;

std::byte* memory() {
    void* const at =
        mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        std::perror("payload_copy: mmap");
        std::exit(1);
    }
    std::memset(at, 1, kMemory);
    return static_cast<std::byte*>(at);
}

void by_library(void* to, const void* from, std::size_t bytes) noexcept {
    std::memcpy(to, from, bytes);
}

double nanoseconds(Copy copy, std::byte* to, const std::byte* from, std::size_t bytes) {
    const auto begin = Clock::now();
    for (int i = 0; i < kCopies; ++i) {
        copy(to, from, bytes);
        asm volatile("" ::: "memory");
    }
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kCopies;
}

}  // namespace

int main() {
    const std::byte* const source = memory() + 16;  // as malloc() has it
    std::byte* const target = memory() + 16;
    std::printf(
        "# of %d rounds of %d copies each; source 16 bytes behind a page's begin\n"
        "%8s %12s %14s %18s\n",
        kRounds, kCopies, "bytes", "behind by", "memcpy, ns", "copy_payload, ns");
    for (const std::size_t bytes : {1024u, 2048u, 4096u, 8192u, 16384u, 65536u, 1u << 20})
        for (const std::size_t behind :
             {0u, 8u, 16u, 31u, 32u, 48u, 64u, 72u, 136u, 248u, 264u, 2048u, 4080u}) {
            double library = std::numeric_limits<double>::max(), ours = library;
            for (int round = 0; round < kRounds; ++round) {
                library =
                    std::min(library, nanoseconds(by_library, target + behind, source, bytes));
                ours = std::min(ours,
                                nanoseconds(common::copy_payload, target + behind, source, bytes));
            }
            std::printf("%8zu %12zu %14.0f %18.0f\n", bytes, behind, library, ours);
        }
}
