// SPDX-License-Identifier: BSD-2-Clause
// Whether one way of running a program takes longer than another, from times that were measured in
// rounds: both once in each round, so that what disturbs the machine disturbs both.
#pragma once

#include <optional>
#include <vector>

namespace heddle::cli {

enum class Verdict { kTooFewRounds, kNoDifference, kFaster, kSlower };

struct PairedTimes {
    // Less than that is no reason to choose, however sure it is.
    static constexpr double kLeastDifference = 0.02;
    static constexpr double kRisk = 0.05;  // of an interval that does not hold the true median
    struct Interval {
        double low = 0, high = 0;
    };

    double ratio = 0;  // median over the rounds, of time / baseline
    // The interval of the median ratio by the sign test, which assumes nothing of how times are
    // distributed. nullopt: with so few rounds all ratios may be on one side by chance.
    std::optional<Interval> interval;
    Verdict verdict = Verdict::kTooFewRounds;
};

// The fewest rounds that have an interval.
int fewest_rounds();

// times[i] and baseline[i] are seconds of the same round.
PairedTimes paired_times(const std::vector<double>& times, const std::vector<double>& baseline);

}  // namespace heddle::cli
