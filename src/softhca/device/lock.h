// SPDX-License-Identifier: BSD-2-Clause
// Locks. SpinLock is for the threads of one process. SharedLock lies in the fabric segment and is
// taken by any process: its word names the owner (slot and generation of the process), so that a
// lock whose owner died can be told from one that is merely held, and taken over. What it guards
// must therefore be left consistent by every prefix of the critical section: all users change their
// state by one last store.
#pragma once

#include <atomic>
#include <cstdint>

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
    void lock() noexcept;  // yields when it takes long
    void unlock() noexcept { word_.store(0, std::memory_order_release); }

private:
    std::atomic<std::uint32_t> word_{0};
};

// The word by which this process owns shared locks: never 0. Set at attach, before any lock is
// used.
extern std::uint32_t g_lock_owner;

class SharedLock {
public:
    bool try_lock() noexcept {
        std::uint32_t expected = 0;
        return word_.load(std::memory_order_relaxed) == 0 &&
               word_.compare_exchange_strong(expected, g_lock_owner, std::memory_order_acquire,
                                             std::memory_order_relaxed);
    }
    // A short, bounded wait: false when another live process holds on to it. For the data path.
    bool try_lock_briefly() noexcept { return try_lock() || lock_slow(false); }
    // Waits until it has the lock; takes it from a dead owner. For the control path. False only if
    // a live owner (a stopped process, say) has not let go for seconds.
    bool lock() noexcept { return try_lock() || lock_slow(true); }
    void unlock() noexcept { word_.store(0, std::memory_order_release); }
    void reset() noexcept { word_.store(0, std::memory_order_relaxed); }

private:
    [[gnu::cold, gnu::noinline]] bool lock_slow(bool patient) noexcept;
    std::atomic<std::uint32_t> word_;
};

struct AdoptLock {};
inline constexpr AdoptLock adopt_lock{};

template <class Lock>
class Guard {
public:
    explicit Guard(Lock& lock) noexcept : lock_(lock) { lock_.lock(); }
    Guard(Lock& lock, AdoptLock) noexcept : lock_(lock) {}  // held already
    ~Guard() { lock_.unlock(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

private:
    Lock& lock_;
};

}  // namespace softhca::device
