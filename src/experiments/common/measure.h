// SPDX-License-Identifier: BSD-2-Clause
// What measuring programs share: pinning to a core, monotonic and processor time, medians, and the
// end of a program that cannot go on.
#pragma once

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "heddle/detail/assert.h"

namespace heddle::bench {

[[noreturn]] inline void give_up(const char* what) {
    std::fprintf(stderr, "%s: %m\n", what);
    std::exit(1);
}

template <typename T>
T* need(T* object, const char* what) {
    if (object == nullptr) give_up(what);
    return object;
}

inline double now_us() {
    timespec t = {};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

inline double thread_cpu_seconds() noexcept {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// The cores this process may run on.
inline std::vector<int> allowed_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> cores;
    if (sched_getaffinity(0, sizeof set, &set) != 0) give_up("sched_getaffinity");
    for (int core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(core, &set)) cores.push_back(core);
    HEDDLE_ASSERT(!cores.empty(), "this thread runs on a core");
    return cores;
}

inline void pin_to(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) give_up("sched_setaffinity");
}

// 1, 2: the median, 3.
inline double quartile(std::vector<double> values, int which) {
    HEDDLE_ASSERT(which >= 1 && which <= 3, "there are three quartiles");
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    // between the two values that are nearest
    const double at = static_cast<double>(values.size() - 1) * which / 4;
    const auto below = static_cast<std::size_t>(std::floor(at));
    const std::size_t above = std::min(below + 1, values.size() - 1);
    HEDDLE_ASSERT(below <= above && above < values.size(), "a quartile lies between two values");
    return values[below] + (values[above] - values[below]) * (at - std::floor(at));
}
inline double median(std::vector<double> values) { return quartile(std::move(values), 2); }

// Median of the ratios of what was measured in the same repetition: slow drifts cancel out.
inline double median_ratio(const std::vector<double>& above, const std::vector<double>& below) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < std::min(above.size(), below.size()); ++i)
        if (below[i] > 0) ratios.push_back(above[i] / below[i]);
    return median(ratios);
}

}  // namespace heddle::bench
