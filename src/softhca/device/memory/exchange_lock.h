// SPDX-License-Identifier: BSD-2-Clause
// The lock between threads that exchange pages and softhca's own threads (SharingPause). The latter
// take it again and again, so a thread that exchanges pages has priority.
#pragma once

#include <atomic>
#include <mutex>

#include "softhca/base/assert.h"

namespace softhca::device::memory {

class ExchangeLock {
public:
    // Called by a thread that exchanges pages or forks. These threads hold the sharing mutex, so no
    // other thread is counted in wanted_ when a process forks.
    void lock() noexcept {
        wanted_.fetch_add(1, std::memory_order_relaxed);
        mutex_.lock();
        const int waiting = wanted_.fetch_sub(1, std::memory_order_relaxed);
        SOFTHCA_ASSERT(waiting >= 1);
        if (waiting == 1) wanted_.notify_all();
    }
    void unlock() noexcept { mutex_.unlock(); }

    // Called by SharingPause.
    void lock_shyly() noexcept {
        for (;;) {
            mutex_.lock();
            const int wanted = wanted_.load(std::memory_order_relaxed);
            SOFTHCA_DEBUG_ASSERT(wanted >= 0);
            if (wanted == 0) return;
            mutex_.unlock();
            wanted_.wait(wanted, std::memory_order_relaxed);
        }
    }

private:
    std::mutex mutex_;
    std::atomic<int> wanted_{0};  // number of threads that wait in lock()
};

}  // namespace softhca::device::memory
