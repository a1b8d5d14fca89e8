// SPDX-License-Identifier: BSD-2-Clause
// Stores that a device sees, and their order: entries, then the doorbell record, then the register.
// Entries and records lie in ordinary memory, registers in write-combining memory. x86-64: stores
// to ordinary memory stay in order, write-combining ones are ordered by sfence (Intel SDM 3, 11.3).
// aarch64: dmb oshst orders stores as a device sees them, dsb st also ends the gathering of a
// register's (Arm ARM B2.3; the same choices as rdma-core's util/udma_barrier.h documents).
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_release(void* at);
extern "C" void __tsan_acquire(void* at);
#endif

namespace heddle::post {

// What was stored to ordinary memory is there before what is stored to it next.
inline void order_memory_stores() noexcept {
#if defined(__x86_64__)
    asm volatile("" ::: "memory");
#elif defined(__aarch64__)
    asm volatile("dmb oshst" ::: "memory");
#else
#error "neither x86-64 nor aarch64"
#endif
}

// Before the first store to a register: memory is written, the last register's stores are out.
inline void begin_register_stores() noexcept {
#if defined(__x86_64__)
    _mm_sfence();
#else
    asm volatile("dsb st" ::: "memory");
#endif
}

// After the last: they leave the processor now.
inline void end_register_stores() noexcept { begin_register_stores(); }

// What the device wrote before the value just read is seen by later loads.
inline void order_device_loads() noexcept {
#if defined(__x86_64__)
    asm volatile("" ::: "memory");
#else
    asm volatile("dmb oshld" ::: "memory");
#endif
}

// Who polls a completion sees what the thread that rang for it had written before: the register's
// store, the device and the load of its entry order them. ThreadSanitizer cannot see a device, so
// it is told; nothing is compiled otherwise. `queue`: any address that stands for the queue.
inline void handed_to_device([[maybe_unused]] void* queue) noexcept {
#if defined(__SANITIZE_THREAD__)
    __tsan_release(queue);
#endif
}
inline void given_back_by_device([[maybe_unused]] void* queue) noexcept {
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(queue);
#endif
}

// A word that the device, or in the software HCA another thread, may read or write at any time.
inline void store_record(std::uint32_t* record, std::uint32_t value) noexcept {
    std::atomic_ref(*record).store(value, std::memory_order_release);
}
inline std::uint32_t load_word(const void* at) noexcept {
    auto* word = static_cast<std::uint32_t*>(const_cast<void*>(at));
    return std::atomic_ref(*word).load(std::memory_order_acquire);
}

// One eight-byte store.
inline void store_register(void* to, std::uint64_t value) noexcept {
    *static_cast<volatile std::uint64_t*>(to) = value;
}

// 64 bytes into a register, in ascending order; both sides aligned to 64.
inline void store_register64(void* to, const void* from) noexcept {
#if defined(__x86_64__)
    // Sixteen bytes a store: the widest that every x86-64 has.
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

}  // namespace heddle::post
