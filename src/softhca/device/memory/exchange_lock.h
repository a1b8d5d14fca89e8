// SPDX-License-Identifier: BSD-2-Clause
// The lock between those who exchange pages and softhca's own threads (SharingPause), which take it
// over and over: whoever exchanges goes first.
#pragma once

#include <atomic>
#include <mutex>

namespace softhca::device::memory {

class ExchangeLock {
public:
    // By whoever exchanges pages, or forks; all of these hold the sharing mutex, so that nobody
    // else is counted in wanted_ when a process forks.
    void lock() noexcept {
        wanted_.fetch_add(1, std::memory_order_relaxed);
        mutex_.lock();
        if (wanted_.fetch_sub(1, std::memory_order_relaxed) == 1) wanted_.notify_all();
    }
    void unlock() noexcept { mutex_.unlock(); }

    // By SharingPause.
    void lock_shyly() noexcept {
        for (;;) {
            mutex_.lock();
            const int wanted = wanted_.load(std::memory_order_relaxed);
            if (wanted == 0) return;
            mutex_.unlock();
            wanted_.wait(wanted, std::memory_order_relaxed);
        }
    }

private:
    std::mutex mutex_;
    std::atomic<int> wanted_{0};  // how many wait in lock()
};

}  // namespace softhca::device::memory
