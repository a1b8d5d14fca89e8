// SPDX-License-Identifier: BSD-2-Clause
// Stores that a device sees, and their order: WQEs, then the doorbell record, then the register.
// WQEs and records are in ordinary memory, registers in write-combining memory.
//
// x86-64: stores to ordinary memory stay in order; sfence orders write-combining ones (Intel SDM 3,
// 11.3). aarch64: dmb oshst orders stores as a device sees them; dsb st also ends the gathering of
// stores to a register (Arm ARM B2.3). rdma-core's util/udma_barrier.h documents the same choices.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "heddle/detail/assert.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_release(void* at);
extern "C" void __tsan_acquire(void* at);
#endif

namespace heddle::post::detail {

// The device sees all earlier stores to ordinary memory before any later one.
inline void order_memory_stores() noexcept {
#if defined(__x86_64__)
    asm volatile("" ::: "memory");
#elif defined(__aarch64__)
    asm volatile("dmb oshst" ::: "memory");
#else
#error "neither x86-64 nor aarch64"
#endif
}

// Called before the first store to a register. The device sees all earlier stores to memory and to
// registers before any store to this register.
inline void begin_register_stores() noexcept {
#if defined(__x86_64__)
    _mm_sfence();
#else
    asm volatile("dsb st" ::: "memory");
#endif
}

// Called after the last store to a register: the stores leave the processor now.
inline void end_register_stores() noexcept { begin_register_stores(); }

// Later loads see everything that the device wrote before it wrote the value just loaded.
inline void order_device_loads() noexcept {
#if defined(__x86_64__)
    asm volatile("" ::: "memory");
#else
    asm volatile("dmb oshld" ::: "memory");
#endif
}

// A thread that polls a completion sees everything that the posting thread wrote before it rang the
// doorbell: the store to the register, the device and the load of the CQE order the two threads.
// ThreadSanitizer cannot see a device, so these two functions declare that order to it. In other
// builds they are empty. `queue`: any address that stands for the queue.
inline void release_to_device([[maybe_unused]] void* queue) noexcept {
#if defined(__SANITIZE_THREAD__)
    __tsan_release(queue);
#endif
}
inline void acquire_from_device([[maybe_unused]] void* queue) noexcept {
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(queue);
#endif
}

// A word that the device may read or write at any time; with softhca another thread does.
inline void store_record(std::uint32_t* record, std::uint32_t value) noexcept {
    std::atomic_ref(*record).store(value, std::memory_order_release);
}
inline std::uint32_t load_word(const void* at) noexcept {
    auto* word = static_cast<std::uint32_t*>(const_cast<void*>(at));
    return std::atomic_ref(*word).load(std::memory_order_acquire);
}

// A store of eight bytes to a register, never split.
inline void store_register(void* to, std::uint64_t value) noexcept {
    HEDDLE_DEBUG_ASSERT(reinterpret_cast<std::uintptr_t>(to) % sizeof value == 0);
    *static_cast<volatile std::uint64_t*>(to) = value;
}

// Copies 64 bytes to a register, in ascending order. Both addresses are multiples of 64.
inline void store_register64(void* to, const void* from) noexcept {
    HEDDLE_DEBUG_ASSERT(reinterpret_cast<std::uintptr_t>(to) % 64 == 0);
    HEDDLE_DEBUG_ASSERT(reinterpret_cast<std::uintptr_t>(from) % 64 == 0);
#if defined(__x86_64__)
    // 16 bytes a store: the widest that every x86-64 processor has.
    const auto* source = static_cast<const __m128i*>(from);
    auto* target = static_cast<__m128i*>(to);
    const __m128i a = _mm_load_si128(source), b = _mm_load_si128(source + 1);
    const __m128i c = _mm_load_si128(source + 2), d = _mm_load_si128(source + 3);
    _mm_store_si128(target, a);
    _mm_store_si128(target + 1, b);
    _mm_store_si128(target + 2, c);
    _mm_store_si128(target + 3, d);
    asm volatile("" ::: "memory");
#else
    std::uint64_t a, b;
    const auto* source = static_cast<const std::uint8_t*>(from);
    auto* target = static_cast<std::uint8_t*>(to);
    for (int at = 0; at < 64; at += 16)
        asm volatile("ldp %0, %1, [%2]\n\tstp %0, %1, [%3]"
                     : "=&r"(a), "=&r"(b)
                     : "r"(source + at), "r"(target + at)
                     : "memory");
#endif
}

}  // namespace heddle::post::detail
