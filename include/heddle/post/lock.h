// SPDX-License-Identifier: BSD-2-Clause
// Lock policies of the post path, chosen when it is compiled: a queue that one thread uses has
// none.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>

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

// No lock. Where HEDDLE_CHECK_THREADS is defined (the library's debug build, and programs that
// define it) two threads at once end the program: the promise was broken. The layout is the same
// with and without.
class SingleThreaded {
public:
    void lock() noexcept {
#ifdef HEDDLE_CHECK_THREADS
        if (busy_.exchange(true, std::memory_order_acquire)) {
            std::fputs("heddle: two threads in an endpoint for one (docs/endpoints.md)\n", stderr);
            std::abort();
        }
#endif
    }
    void unlock() noexcept {
#ifdef HEDDLE_CHECK_THREADS
        busy_.store(false, std::memory_order_release);
#endif
    }

private:
    [[maybe_unused]] std::atomic<bool> busy_{false};
};

}  // namespace heddle::post
