// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/paired_times.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "experiments/common/measure.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

// How many of `rounds` sorted ratios the interval may leave out at each end: the largest k with
// 2 P(Binomial(rounds, 1/2) < k) <= kRisk. 0: not even the interval of all ratios is sure enough.
std::size_t order_of_interval(std::size_t rounds) {
    double tail = 0, term = std::pow(0.5, static_cast<double>(rounds));
    std::size_t k = 0;
    while (k < rounds / 2) {
        tail += term;
        if (2 * tail > PairedTimes::kRisk) break;
        term *= static_cast<double>(rounds - k) / static_cast<double>(k + 1);
        ++k;
    }
    HEDDLE_ASSERT(k <= rounds / 2, "the interval has its two ends in order");
    return k;
}

}  // namespace

int fewest_rounds() {
    std::size_t rounds = 1;
    while (order_of_interval(rounds) == 0)
        ++rounds;
    HEDDLE_ASSERT(std::pow(0.5, static_cast<double>(rounds - 1)) <= PairedTimes::kRisk,
                  "all ratios on one side are rarely chance");
    return static_cast<int>(rounds);
}

PairedTimes paired_times(const std::vector<double>& times, const std::vector<double>& baseline) {
    HEDDLE_ASSERT(times.size() <= baseline.size(), "each time is beside one of its round");
    std::vector<double> ratios;
    for (std::size_t i = 0; i < std::min(times.size(), baseline.size()); ++i)
        if (baseline[i] > 0) ratios.push_back(times[i] / baseline[i]);
    PairedTimes result;
    result.ratio = bench::median(ratios);
    const std::size_t k = order_of_interval(ratios.size());
    if (k == 0) return result;
    std::sort(ratios.begin(), ratios.end());
    const PairedTimes::Interval interval{ratios[k - 1], ratios[ratios.size() - k]};
    HEDDLE_ASSERT(interval.low <= result.ratio && result.ratio <= interval.high,
                  "the median lies in its interval");
    result.interval = interval;
    result.verdict = Verdict::kNoDifference;
    if (interval.high < 1 && result.ratio <= 1 - PairedTimes::kLeastDifference)
        result.verdict = Verdict::kFaster;
    if (interval.low > 1 && result.ratio >= 1 + PairedTimes::kLeastDifference)
        result.verdict = Verdict::kSlower;
    return result;
}

}  // namespace heddle::cli
