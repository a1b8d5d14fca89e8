// SPDX-License-Identifier: BSD-2-Clause
// What `heddle compare` concludes, from numbers that are known.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "cli/heddle/paired_times.h"
#include "cli/heddle/profile_advice.h"
#include "tests/unit/cli_job.h"

namespace heddle::cli {
namespace {

using Times = std::vector<double>;

Times scaled(Times times, double factor) {
    for (double& time : times)
        time *= factor;
    return times;
}

TEST(PairedTimes, IntervalIsThatOfTheSignTest) {
    EXPECT_EQ(fewest_rounds(), 6);
    // Ranks that bound the median with at least 95 %, from any table of the binomial distribution.
    const std::vector<std::pair<int, int>> ranks{{6, 1}, {8, 1}, {9, 2}, {11, 2}, {12, 3}, {20, 6}};
    for (const auto& [rounds, rank] : ranks) {
        Times times, baseline;
        for (int i = 1; i <= rounds; ++i) {
            times.push_back(i);
            baseline.push_back(1);
        }
        const PairedTimes result = paired_times(times, baseline);
        ASSERT_TRUE(result.interval.has_value()) << rounds;
        EXPECT_EQ(result.interval->low, rank) << rounds;
        EXPECT_EQ(result.interval->high, rounds + 1 - rank) << rounds;
    }
}

TEST(PairedTimes, TooFewRoundsShowNothing) {
    const Times baseline{1, 1, 1, 1, 1};
    const PairedTimes result = paired_times(scaled(baseline, 9), baseline);
    EXPECT_EQ(result.verdict, Verdict::kTooFewRounds);
    EXPECT_FALSE(result.interval.has_value());
    EXPECT_EQ(paired_times({}, {}).verdict, Verdict::kTooFewRounds);
}

TEST(PairedTimes, FindsADifferenceThroughWhatDisturbsBoth) {
    const Times baseline{1, 9, 2, 30, 1, 4, 1};  // the machine's other work
    EXPECT_EQ(paired_times(scaled(baseline, 1.05), baseline).verdict, Verdict::kSlower);
    EXPECT_EQ(paired_times(scaled(baseline, 0.95), baseline).verdict, Verdict::kFaster);
    EXPECT_DOUBLE_EQ(paired_times(scaled(baseline, 0.5), baseline).ratio, 0.5);
}

TEST(PairedTimes, ADifferenceOfNothingWorthHavingIsNone) {
    const Times baseline{1, 2, 3, 4, 5, 6, 7};
    EXPECT_EQ(paired_times(scaled(baseline, 1.01), baseline).verdict, Verdict::kNoDifference);
    EXPECT_EQ(paired_times(scaled(baseline, 0.99), baseline).verdict, Verdict::kNoDifference);
    EXPECT_EQ(paired_times(baseline, baseline).verdict, Verdict::kNoDifference);
}

// The program beside itself, many times, on a machine that drifts and is now and then disturbed.
TEST(PairedTimes, NullModelGivesNoDifference) {
    constexpr int kExperiments = 4000;
    for (const int rounds : {6, 7, 8, 9, 15, 40}) {
        std::mt19937 random(static_cast<unsigned>(rounds));
        std::lognormal_distribution<double> noise(0, 0.2);
        std::bernoulli_distribution disturbed(0.1);
        int differences = 0;
        for (int i = 0; i < kExperiments; ++i) {
            Times one, other;
            for (int round = 0; round < rounds; ++round) {
                const double drift = 1 + 0.5 * std::sin(round);
                for (Times* times : {&one, &other})
                    times->push_back(drift * noise(random) * (disturbed(random) ? 3 : 1));
            }
            const Verdict verdict = paired_times(one, other).verdict;
            differences += verdict != Verdict::kNoDifference;
        }
        EXPECT_LE(differences, kExperiments * PairedTimes::kRisk * 1.1) << rounds << " rounds";
    }
}

TEST(ProfileAdvice, SuggestsByTheMessages) {
    EXPECT_TRUE(advice_of(job_of(idle_process(1)), 1).empty());
    Json line = copying_process();
    EXPECT_EQ(advice_of(job_of(line), 1).command(), "FI_HEDDLE_REUSE=64 heddle run");
    line["buffers_by_uses"] = {0, 900, 0};
    EXPECT_EQ(advice_of(job_of(line), 1).command(), "FI_HEDDLE_REUSE=off heddle run");
    line["reuse_registered"] = 3;  // reuse is at work
    EXPECT_TRUE(advice_of(job_of(line), 1).empty());
    EXPECT_EQ(advice_of(job_of(line), 4).command(), "heddle run --threads 4");
    line["endpoints"] = 4;  // they have theirs
    EXPECT_TRUE(advice_of(job_of(line), 4).empty());
    line["inlined"] = 90000;
    line["connections"] = 7;
    EXPECT_EQ(advice_of(job_of(line), 1).command(), "FI_HEDDLE_RINGS=7 heddle run");
    line["connections"] = 700;
    EXPECT_TRUE(advice_of(job_of(line), 1).empty());
    line["rendezvous"] = 3000;
    EXPECT_EQ(advice_of(job_of(line), 1).command(), "heddle run --rndv auto");
    line["unexpected"] = 3000;
    const ProfileAdvice late = advice_of(job_of(line), 1);
    EXPECT_TRUE(late.empty());
    ASSERT_EQ(late.notes.size(), 1u);
    EXPECT_NE(late.notes[0].find("75 % of the messages come before"), std::string::npos);
}

}  // namespace
}  // namespace heddle::cli
