// SPDX-License-Identifier: BSD-2-Clause
// Compresses a thread's events. Equal events in a row become one run. Runs that repeat in the same
// order, at most kMostInCycle of them, become one cycle: a program that posts 32 lists and then
// polls once repeats these two runs. Memory is bounded, and nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "softhca/record/event.h"

namespace softhca::record {

inline constexpr std::size_t kMostInCycle = 16;

class RunLength {
public:
    // Takes what is complete: `runs` in this order, `times` times. A single run comes with times 1.
    using Emit = void (*)(void* to, std::span<const EventRun> runs, std::uint64_t times);

    // Appends an event. Up to kWindow runs wait until it is clear which of them repeat.
    void add(const Event& event, Emit emit, void* to) noexcept;
    // Emits all that waits. Events of before and after are not joined.
    void flush(Emit emit, void* to) noexcept;

private:
    // Two rounds of the longest cycle. A short cycle may be a part of it, so the window is full
    // before one is chosen.
    static constexpr std::size_t kWindow = 2 * kMostInCycle;

    void complete(const EventRun& run, Emit emit, void* to) noexcept;
    void make_room(Emit emit, void* to) noexcept;
    void end_cycle(Emit emit, void* to) noexcept;

    EventRun current_;  // times 0: there is none
    EventRun window_[kWindow];
    std::size_t count_ = 0;  // of runs in the window
    // A cycle has been seen `rounds_` times, and then `at_` runs of it. The window is empty then.
    EventRun cycle_[kMostInCycle];
    std::size_t period_ = 0;  // 0: no cycle
    std::size_t at_ = 0;
    std::uint64_t rounds_ = 0;
};

}  // namespace softhca::record
