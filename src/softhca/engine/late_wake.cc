// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/engine/late_wake.h"

#include <sched.h>

#include <algorithm>

namespace softhca::engine {

// glibc 2.35 and later read it from memory (rseq).
bool LateWake::is_on_threads_processor() noexcept {
    return ::sched_getcpu() == threads_processor_.load(std::memory_order_relaxed);
}

bool LateWake::may_sleep(std::uint64_t now, std::uint64_t& deadline) noexcept {
    if (now < deferred_at_.load(std::memory_order_relaxed) + kWatchFor) {
        threads_processor_.store(::sched_getcpu(), std::memory_order_relaxed);
        watches_.store(true, std::memory_order_seq_cst);
        deadline = std::min(deadline, now + watch_);
        watch_ = std::min(2 * watch_, kLongestWatch);
        return true;
    }
    if (!watches_.load(std::memory_order_relaxed)) return true;
    watches_.store(false, std::memory_order_seq_cst);
    return false;
}

void LateWake::taken_by_poll(std::uint64_t now) noexcept {
    if (now > deferred_at_.load(std::memory_order_relaxed) + kSoon) {
        count_late();
        return;
    }
    const int before = polls_soon_.load(std::memory_order_relaxed);
    if (before < kMost) polls_soon_.store(before + 1, std::memory_order_relaxed);
}

void LateWake::taken_by_thread() noexcept {
    watch_ = kWatch;
    count_late();
}

void LateWake::count_late() noexcept {
    const int before = polls_soon_.load(std::memory_order_relaxed);
    if (before != 0) polls_soon_.store(std::max(0, before - kLate), std::memory_order_relaxed);
}

void LateWake::forget_after_fork() noexcept {
    watch_ = kWatch;
    polls_soon_.store(0, std::memory_order_relaxed);
    watches_.store(false, std::memory_order_relaxed);
    deferred_at_.store(0, std::memory_order_relaxed);
}

}  // namespace softhca::engine
