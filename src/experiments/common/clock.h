// SPDX-License-Identifier: BSD-2-Clause
// The clock of experiments whose threads or processes may be more than the cores. Each thread notes
// by itself when it began and ended, after it has passed the barrier: a thread that only watches
// the others may get its core long after they have begun, and its stamps would be too late.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "heddle/detail/assert.h"

namespace heddle::bench {

// Seconds of CLOCK_MONOTONIC, which is one clock for all processes of a machine.
inline double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// The time in which one thread worked.
struct Interval {
    double begin = 0, end = 0;
};

// Seconds in which at least one of the threads worked: the length of the union.
inline double covered_seconds(std::vector<Interval> intervals) {
    std::sort(intervals.begin(), intervals.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    double seconds = 0, reached = 0;
    bool first = true;
    for (const Interval& each : intervals) {
        HEDDLE_ASSERT(each.begin <= each.end, "a thread ends after it has begun");
        if (first || each.begin > reached)
            seconds += each.end - each.begin;
        else if (each.end > reached)
            seconds += each.end - reached;
        reached = first ? each.end : std::max(reached, each.end);
        first = false;
    }
    return seconds;
}

// From the first begin to the last end.
inline Interval whole_of(const std::vector<Interval>& intervals) {
    HEDDLE_ASSERT(!intervals.empty(), "some thread worked");
    Interval whole = intervals.front();
    for (const Interval& each : intervals) {
        whole.begin = std::min(whole.begin, each.begin);
        whole.end = std::max(whole.end, each.end);
    }
    return whole;
}

// How many of the threads can run at a time: the distinct processors that they are pinned to.
inline std::size_t cores_of(std::vector<int> processors, std::size_t allowed, std::size_t threads) {
    std::sort(processors.begin(), processors.end());
    const auto distinct = static_cast<std::size_t>(
        std::unique(processors.begin(), processors.end()) - processors.begin());
    return std::min(processors.empty() ? allowed : distinct, threads);
}

// What the threads of one process did in one repetition.
struct Stretch {
    Interval time;              // from the first begin to the last end
    double cpu_seconds = 0;     // of all threads, within it
    std::uint64_t machine = 0;  // processes of one machine have one clock
};

// The time of a repetition by several processes: the longest of any machine.
inline double seconds_of(const std::vector<Stretch>& processes) {
    double longest = 0;
    for (const Stretch& first : processes) {
        std::vector<Interval> here;
        for (const Stretch& each : processes)
            if (each.machine == first.machine) here.push_back(each.time);
        const Interval whole = whole_of(here);
        longest = std::max(longest, whole.end - whole.begin);
    }
    return longest;
}

// A number of this machine, until it is started anew.
inline std::uint64_t machine_number() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string text;
    std::getline(file, text);
    return std::hash<std::string>{}(text);
}

// A rate that no machine can have: its clock is wrong.
class ImpossibleRate : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// Throws ImpossibleRate if `rate` is above what `cores` cores do together. `one_core`: the rate of
// one core, in the same unit, by the processor time of the threads that did the work.
inline void require_possible(double rate, double one_core, std::size_t cores) {
    constexpr double kTolerance = 1.05;  // the clocks of time and of processor time may drift
    if (rate <= one_core * static_cast<double>(cores) * kTolerance) return;
    throw ImpossibleRate("the clock is wrong: a rate of " + std::to_string(rate) +
                         ", where one core does " + std::to_string(one_core) + " and there are " +
                         std::to_string(cores));
}

}  // namespace heddle::bench
