// SPDX-License-Identifier: BSD-2-Clause
// Memory as a statically linked program has it: taken and given back by system calls of its own,
// and by an allocator of its own on top of them. Not one of them goes through a symbol that a
// library could interpose. C11 and C++20; one thread; x86-64 and aarch64.
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static inline long raw_call(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result = number;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
#else
#error "which instruction enters the kernel here?"
#endif
}

// As libc's functions of these names: -1, or MAP_FAILED, and errno.
static inline long raw_result(long result) {
    if (result < 0 && result >= -4095) {
        errno = (int)-result;
        return -1;
    }
    return result;
}
static inline void* raw_mmap(void* at, size_t bytes, int prot, int flags, int fd, long offset) {
    return (void*)raw_result(raw_call(SYS_mmap, (long)at, (long)bytes, prot, flags, fd, offset));
}
static inline int raw_munmap(void* at, size_t bytes) {
    return (int)raw_result(raw_call(SYS_munmap, (long)at, (long)bytes, 0, 0, 0, 0));
}
static inline void* raw_mremap(void* at, size_t from, size_t to, int flags, void* target) {
    return (void*)raw_result(
        raw_call(SYS_mremap, (long)at, (long)from, (long)to, flags, (long)target, 0));
}
static inline int raw_madvise(void* at, size_t bytes, int advice) {
    return (int)raw_result(raw_call(SYS_madvise, (long)at, (long)bytes, advice, 0, 0, 0));
}

// The allocator: each block has pages of its own, two at least (docs/reference/softhca.md, "Known
// faults", has the reason), behind a line that says how many, and those of blocks that are freed
// are unmapped at once. The next block of that many takes their addresses again, with other pages,
// as heaps do.
enum { kRawPage = 4096, kRawLine = 64, kRawHoles = 64 };
static void* raw_holes[kRawHoles];
static size_t raw_hole_bytes[kRawHoles];

static inline size_t raw_pages(size_t bytes) {
    const size_t all = (bytes + kRawLine + kRawPage - 1) / kRawPage * kRawPage;
    return all > 2 * kRawPage ? all : 2 * kRawPage;
}
static inline void* raw_malloc(size_t bytes) {
    const size_t all = raw_pages(bytes);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char* at = (char*)MAP_FAILED;
    for (int i = 0; i < kRawHoles && at == (char*)MAP_FAILED; ++i) {
        if (raw_hole_bytes[i] != all) continue;
        raw_hole_bytes[i] = 0;
        at = (char*)raw_mmap(raw_holes[i], all, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE,
                             -1, 0);
    }
    if (at == (char*)MAP_FAILED)
        at = (char*)raw_mmap(NULL, all, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at == (char*)MAP_FAILED) return NULL;
    memcpy(at, &all, sizeof all);
    return at + kRawLine;
}
static inline void raw_free(void* block) {
    if (block == NULL) return;
    char* const at = (char*)block - kRawLine;
    size_t all;
    memcpy(&all, at, sizeof all);
    raw_munmap(at, all);
    for (int i = 0; i < kRawHoles; ++i)
        if (raw_hole_bytes[i] == 0) {
            raw_holes[i] = at;
            raw_hole_bytes[i] = all;
            return;
        }
}
// Moves pages where it can. The software HCA may have made more than one mapping of them, or memory
// that is watched ends inside: then, as in libc, by a copy.
static inline void* raw_realloc(void* block, size_t bytes) {
    if (block == NULL) return raw_malloc(bytes);
    char* const at = (char*)block - kRawLine;
    size_t all;
    memcpy(&all, at, sizeof all);
    const size_t wanted = raw_pages(bytes);
    if (wanted == all) return block;
    char* const to = (char*)raw_mremap(at, all, wanted, MREMAP_MAYMOVE, NULL);
    if (to != (char*)MAP_FAILED) {
        memcpy(to, &wanted, sizeof wanted);
        return to + kRawLine;
    }
    void* const fresh = raw_malloc(bytes);
    if (fresh == NULL) return NULL;
    memcpy(fresh, block, (all < wanted ? all : wanted) - kRawLine);
    raw_free(block);
    return fresh;
}
