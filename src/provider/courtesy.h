// SPDX-License-Identifier: BSD-2-Clause
// Giving way: a program that reads an empty queue over and over may keep the processor from the
// very process that it waits for. Most MPIs yield in their progress loops where there are more
// ranks than processors; Open MPI's mtl/ofi does not while it waits for a blocking send, and then
// each message that needs its receiver lasts a time slice (4 ms).
//
// Only for who waits for such an operation: two processes on one processor that yield to each other
// all the time look busy and warm to the kernel, which then moves neither to one that is idle.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>

namespace heddle::provider {

// Threads may use one at once: fields are read and written without order, and a lost count means a
// yield somewhat later.
class Courtesy {
public:
    void found() noexcept { in_vain_.store(0, std::memory_order_relaxed); }

    // Nothing was there. True: time to give way, after so many of these in a row as the last yields
    // were worth it.
    bool in_vain() noexcept {
        const unsigned count = in_vain_.load(std::memory_order_relaxed) + 1;
        const bool enough = count >= patience_.load(std::memory_order_relaxed);
        in_vain_.store(enough ? 0 : count, std::memory_order_relaxed);
        return enough;
    }

    // Yields; where no lock is held. Where another ran, sooner the next time; where nobody wanted
    // the processor, ever later.
    void give_way() noexcept {
        const unsigned patience = patience_.load(std::memory_order_relaxed);
        patience_.store(another_ran() ? kLeast : std::min(2 * patience, kMost),
                        std::memory_order_relaxed);
    }

    static constexpr unsigned kLeast = 8;     // about 1 us
    static constexpr unsigned kMost = 65536;  // about 5 ms, so that crowding is seen in a slice

private:
    // A yield that returns at once takes a third of a microsecond, one to another process at least
    // two switches.
    static bool another_ran() noexcept {
        using Clock = std::chrono::steady_clock;
        const auto before = Clock::now();
        ::sched_yield();
        return Clock::now() - before > std::chrono::microseconds(2);
    }

    std::atomic<unsigned> in_vain_{0}, patience_{1024};
};

}  // namespace heddle::provider
