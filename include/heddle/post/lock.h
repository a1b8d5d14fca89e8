// SPDX-License-Identifier: BSD-2-Clause
// The lock policies of the direct path, a template parameter of its queues: a queue that one thread
// uses has no lock.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "heddle/detail/assert.h"

namespace heddle::post {

/// A spin lock, for queues that several threads use.
///
///     heddle::post::Mlx5SendQueue<heddle::post::SpinLock> queue(qp, false, 60, true);
///
/// It meets BasicLockable. Not recursive, not fair.
class SpinLock {
public:
    /// Waits, spinning, until no other thread holds the lock, and takes it. Any thread.
    void lock() noexcept {
        while (word_.exchange(true, std::memory_order_acquire))
            while (word_.load(std::memory_order_relaxed))
                pause();
    }
    /// Releases the lock. The calling thread holds it.
    void unlock() noexcept {
        HEDDLE_DEBUG_ASSERT(word_.load(std::memory_order_relaxed), "unlocked while not locked");
        word_.store(false, std::memory_order_release);
    }

private:
    static void pause() noexcept {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#else
        asm volatile("yield" ::: "memory");
#endif
    }
    std::atomic<bool> word_{false};
};

/// No lock, for queues that one thread at a time uses.
///
///     heddle::post::Mlx5SendQueue<heddle::post::SingleThreaded> queue(qp, false, 60, false);
///
/// A program that defines HEDDLE_CHECK_THREADS, as the library's debug build does, is ended with a
/// message when two threads use one object at once. The layout is the same with and without.
class SingleThreaded {
public:
    /// Takes nothing. With HEDDLE_CHECK_THREADS: ends the program if another thread is inside.
    void lock() noexcept {
#ifdef HEDDLE_CHECK_THREADS
        if (busy_.exchange(true, std::memory_order_acquire)) {
            std::fputs("heddle: two threads in an endpoint for one (docs/concepts/endpoints.md)\n",
                       stderr);
            std::abort();
        }
#endif
    }
    /// Releases nothing. The calling thread called lock().
    void unlock() noexcept {
#ifdef HEDDLE_CHECK_THREADS
        busy_.store(false, std::memory_order_release);
#endif
    }

private:
    [[maybe_unused]] std::atomic<bool> busy_{false};
};

}  // namespace heddle::post
