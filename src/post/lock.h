// SPDX-License-Identifier: BSD-2-Clause
// Lock policies of the post path, chosen when it is compiled: a queue that one thread uses has
// none.
#pragma once

#include <atomic>
#include <cassert>

namespace heddle::post {

class SpinLock {
public:
    void lock() noexcept {
        while (word_.exchange(true, std::memory_order_acquire))
            while (word_.load(std::memory_order_relaxed))
                pause();
    }
    void unlock() noexcept { word_.store(false, std::memory_order_release); }

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

// No lock. In debug builds two threads at once end the program: the promise was broken.
class SingleThreaded {
public:
    void lock() noexcept {
#ifndef NDEBUG
        assert(!busy_.exchange(true, std::memory_order_relaxed) &&
               "two threads in an endpoint for one");
#endif
    }
    void unlock() noexcept {
#ifndef NDEBUG
        busy_.store(false, std::memory_order_relaxed);
#endif
    }

private:
#ifndef NDEBUG
    std::atomic<bool> busy_{false};
#endif
};

}  // namespace heddle::post
