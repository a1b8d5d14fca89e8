// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/engine/late_wake.h"

#include <sched.h>

#include <algorithm>

namespace softhca::engine {

// glibc 2.35 and later read it from memory (rseq).
bool LateWake::is_on_threads_processor() noexcept {
    return ::sched_getcpu() == g_threads_processor.load(std::memory_order_relaxed);
}

bool LateWake::may_sleep(std::uint64_t now, std::uint64_t& deadline) noexcept {
    if (now < g_deferred_at.load(std::memory_order_relaxed) + kWatchFor) {
        g_threads_processor.store(::sched_getcpu(), std::memory_order_relaxed);
        g_watches.store(true, std::memory_order_seq_cst);
        deadline = std::min(deadline, now + kWatch);
        return true;
    }
    if (!g_watches.load(std::memory_order_relaxed)) return true;
    g_watches.store(false, std::memory_order_seq_cst);
    return false;
}

void LateWake::forget_after_fork() noexcept {
    g_watches.store(false, std::memory_order_relaxed);
    g_deferred_at.store(0, std::memory_order_relaxed);
}

}  // namespace softhca::engine
