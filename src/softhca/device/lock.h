// SPDX-License-Identifier: BSD-2-Clause
// Locks. SpinLock synchronises threads of one process. SharedLock lies in the fabric's segment, and
// any process may take it. Its word names the owner (slot and generation of the process). So a
// waiter can tell a dead owner from a live one, and takes a dead owner's lock over.
// Therefore every prefix of a critical section must leave the guarded data consistent: each
// critical section changes the visible state by one last store.
#pragma once

#include <atomic>
#include <cstdint>

#include "softhca/base/assert.h"

namespace softhca::device {

inline void cpu_relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield" ::: "memory");
#endif
}

class SpinLock {
public:
    bool try_lock() noexcept {
        return !word_.load(std::memory_order_relaxed) &&
               !word_.exchange(1, std::memory_order_acquire);
    }
    void lock() noexcept;  // yields the processor when it waits long
    void unlock() noexcept { word_.store(0, std::memory_order_release); }
    // Whether some thread holds the lock. For assertions.
    bool is_locked() const noexcept { return word_.load(std::memory_order_relaxed) != 0; }

private:
    std::atomic<std::uint32_t> word_{0};
};

// The word by which this process owns shared locks, never 0. It is set at attach, before any lock
// is used.
extern std::uint32_t g_lock_owner;

// The word of the process in `slot`. A waiter reads slot and generation back from it, without the
// generation's ten highest bits. In the last slot one generation in 2^22 gives 0, the word of a
// free lock: a process skips it.
constexpr std::uint32_t lock_word(std::uint32_t slot, std::uint32_t generation) noexcept {
    return (generation % (1u << 22) << 10 | slot) + 1;
}

class SharedLock {
public:
    bool try_lock() noexcept {
        SOFTHCA_DEBUG_ASSERT(g_lock_owner != 0);
        std::uint32_t expected = 0;
        return word_.load(std::memory_order_relaxed) == 0 &&
               word_.compare_exchange_strong(expected, g_lock_owner, std::memory_order_acquire,
                                             std::memory_order_relaxed);
    }
    // Waits briefly. Returns false if another live process keeps the lock. For the data path.
    bool try_lock_briefly() noexcept { return try_lock() || lock_slow(false); }
    // Waits for the lock, and takes it from a dead owner. For the control path. Returns false only
    // if a live owner, such as a stopped process, keeps it for three seconds.
    bool lock() noexcept { return try_lock() || lock_slow(true); }
    void unlock() noexcept { word_.store(0, std::memory_order_release); }
    void reset() noexcept { word_.store(0, std::memory_order_relaxed); }

private:
    [[gnu::cold, gnu::noinline]] bool lock_slow(bool patient) noexcept;
    std::atomic<std::uint32_t> word_;
};

struct AdoptLock {};
inline constexpr AdoptLock kAdoptLock{};

template <class Lock>
class Guard {
public:
    explicit Guard(Lock& lock) noexcept : lock_(lock) { lock_.lock(); }
    Guard(Lock& lock, AdoptLock) noexcept : lock_(lock) {}  // the caller holds the lock already
    ~Guard() { lock_.unlock(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

private:
    Lock& lock_;
};

}  // namespace softhca::device
