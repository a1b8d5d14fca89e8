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

inline constexpr std::size_t kMostInCycle = 8;

class RunLength {
public:
    // Takes what is complete: `runs` in this order, `times` times. A single run comes with times 1.
    using Emit = void (*)(void* to, std::span<const EventRun> runs, std::uint64_t times);

    // Appends an event. Up to 2 * kMostInCycle runs wait until it is clear whether they repeat.
    void add(const Event& event, Emit emit, void* to) noexcept;
    // Emits all that waits. Events of before and after are not joined.
    void flush(Emit emit, void* to) noexcept;

private:
    void complete(const EventRun& run, Emit emit, void* to) noexcept;
    void append(const EventRun& run, Emit emit, void* to) noexcept;
    void emit_pending(std::size_t count, Emit emit, void* to) noexcept;
    void end_cycle(Emit emit, void* to) noexcept;

    EventRun current_;  // times 0: there is none
    EventRun pending_[2 * kMostInCycle];
    std::size_t pending_count_ = 0;
    // A cycle has been seen `rounds_` times, and then `at_` runs of it. Nothing is pending then.
    EventRun cycle_[kMostInCycle];
    std::size_t period_ = 0;  // 0: no cycle
    std::size_t at_ = 0;
    std::uint64_t rounds_ = 0;
};

}  // namespace softhca::record
