// SPDX-License-Identifier: BSD-2-Clause
// When a thread that polls an empty completion queue yields the processor. Such a thread may keep
// the processor from the very process that it waits for. Most MPIs yield in their progress loops
// when there are more ranks than processors. Open MPI's mtl/ofi does not while it waits for a
// blocking send; then each message that needs its receiver takes a time slice (4 ms).
//
// The CQ yields only while an operation waits for a peer. Two processes on one processor that yield
// to each other all the time look busy and cache-warm to the kernel, which then moves neither of
// them to an idle processor.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "common/give_way.h"

namespace heddle::provider {

// Several threads may use one object at once. They read and write its fields without any order: a
// lost count delays a yield by one poll.
class PollBackoff {
public:
    // The poll found an entry.
    void reset() noexcept { empty_polls_.store(0, std::memory_order_relaxed); }

    // The poll found no entry. Returns whether the thread should yield: the number of empty polls
    // in a row has reached the limit that former yields set.
    bool count_empty_poll() noexcept {
        const unsigned count = empty_polls_.load(std::memory_order_relaxed) + 1;
        const bool reached = count >= limit_.load(std::memory_order_relaxed);
        empty_polls_.store(reached ? 0 : count, std::memory_order_relaxed);
        return reached;
    }

    // Yields the processor. The caller holds no lock. If another thread ran, the next yield comes
    // as soon as possible; if none did, the limit doubles.
    void yield() noexcept {
        const unsigned limit = limit_.load(std::memory_order_relaxed);
        limit_.store(another_ran() ? kMinPolls : std::min(2 * limit, kMaxPolls),
                     std::memory_order_relaxed);
    }

    static constexpr unsigned kMinPolls = 8;      // about 0.3 us
    static constexpr unsigned kMaxPolls = 65536;  // about 2 ms: a time slice is enough to notice

private:
    // A yield that returns at once takes a third of a microsecond. A yield to another process takes
    // two context switches at least.
    static bool another_ran() noexcept {
        using Clock = std::chrono::steady_clock;
        const auto before = Clock::now();
        common::give_way();
        return Clock::now() - before > std::chrono::microseconds(2);
    }

    std::atomic<unsigned> empty_polls_{0}, limit_{1024};
};

}  // namespace heddle::provider
