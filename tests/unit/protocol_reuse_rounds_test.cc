// SPDX-License-Identifier: BSD-2-Clause
// What is kept of several measurements, of which some decide otherwise than others.
#include "protocol/reuse/reuse_rounds.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace heddle::protocol {
namespace {

constexpr std::size_t kSize = 5;  // its index: 4096 bytes

// Sending one size saves so many ns of 400; the other ways save nothing.
ReuseCosts saving(double nanoseconds, double registration = 6'000) {
    ReuseCosts costs;
    costs.costs[kSize] = {.registration = registration,
                          .copy = 50,
                          .lookup = 0,
                          .copied = {400, 400, 400},
                          .gathered = {400 - nanoseconds, 420, 420}};
    return costs;
}

ReuseRounds rounds(std::initializer_list<double> saved) {
    ReuseRounds all;
    for (const double each : saved)
        all.rounds.push_back(saving(each));
    return all;
}

std::uint32_t uses(const ReuseCosts& costs) { return costs.uses_for(4096, ReuseCosts::kSend, 100); }

TEST(ReuseRounds, Medians) {
    const ReuseRounds all = rounds({10, 200, 40, 30, -500});
    EXPECT_EQ(all.median().costs[kSize].gathered[ReuseCosts::kSend], 370);
    EXPECT_EQ(all.median().costs[kSize].registration, 6'000);
    EXPECT_EQ(all.median().costs[kSize - 1].registration, 0) << "not measured";
    EXPECT_EQ(all.paying(kSize, ReuseCosts::kSend), 3u) << "20 ns are the least that pays";
    EXPECT_EQ(all.paying(kSize, ReuseCosts::kRing), 0u);
}

TEST(ReuseRounds, WithoutAnythingKeptTheMediansDecide) {
    EXPECT_EQ(uses(rounds({30, 10, 30}).settled({})), 200u);
    EXPECT_EQ(uses(rounds({10, 10, 30}).settled({})), ReuseCosts::kNever);
}

// The costs are about those at which a registration pays: each run's median is on another side.
TEST(ReuseRounds, AnUnclearMeasurementKeepsTheDecision) {
    const ReuseRounds just_pays = rounds({19, 21, 21, 19, 21}),
                      just_not = rounds({19, 21, 19, 19, 21});
    ASSERT_NE(uses(just_pays.median()), ReuseCosts::kNever);
    ASSERT_EQ(uses(just_not.median()), ReuseCosts::kNever);
    ReuseCosts kept = saving(0);
    for (int run = 0; run < 4; ++run) {
        kept = (run % 2 == 0 ? just_pays : just_not).settled(kept);
        EXPECT_EQ(uses(kept), ReuseCosts::kNever) << run;
    }
    kept = saving(30);
    for (int run = 0; run < 4; ++run) {
        kept = (run % 2 == 0 ? just_not : just_pays).settled(kept);
        EXPECT_NE(uses(kept), ReuseCosts::kNever) << run;
    }
}

TEST(ReuseRounds, AClearMeasurementChangesTheDecision) {
    EXPECT_EQ(uses(rounds({30, 30, 30, 10}).settled(saving(0))), 200u);
    EXPECT_EQ(uses(rounds({10, 10, 10, 30}).settled(saving(30))), ReuseCosts::kNever);
    // One of two: not clear.
    EXPECT_EQ(uses(rounds({30, 10}).settled(saving(0))), ReuseCosts::kNever);
}

// Hysteresis is for decisions; the numbers follow the measurement.
TEST(ReuseRounds, TheNumberIsThatOfTheMedians) {
    EXPECT_EQ(uses(rounds({60, 60, 60}).settled(saving(30))), 100u);
    ReuseRounds cheaper = rounds({60, 60, 60});
    for (ReuseCosts& each : cheaper.rounds)
        each.costs[kSize].registration = 3'000;
    EXPECT_EQ(uses(cheaper.settled(saving(60))), 50u);
}

TEST(ReuseRounds, ASizeThatWasNotMeasuredIsNotKept) {
    EXPECT_EQ(uses(rounds({30, 10, 30}).settled(ReuseCosts{})), 200u);
    ReuseRounds nothing;
    nothing.rounds.emplace_back();
    EXPECT_EQ(uses(nothing.settled(saving(30))), ReuseCosts::kNever);
}

}  // namespace
}  // namespace heddle::protocol
