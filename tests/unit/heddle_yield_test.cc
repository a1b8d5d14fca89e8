// SPDX-License-Identifier: BSD-2-Clause
// Which calls of sched_yield() reach the kernel. Lives by a thread that never gives its processor
// to another task, or that goes on skipping calls where tasks share the processor.
#include "yield/yield_policy.h"

#include <gtest/gtest.h>

namespace heddle::yield {
namespace {

// How many of so many calls go to the kernel, each of which takes `took` there.
unsigned kernel_calls(YieldPolicy& policy, unsigned calls, std::uint64_t took) {
    unsigned found = 0;
    for (unsigned i = 0; i < calls; ++i) {
        if (policy.may_skip()) continue;
        ++found;
        policy.note(took);
    }
    return found;
}

constexpr std::uint64_t kShort = YieldPolicy::kUsedNs - 1, kLong = YieldPolicy::kUsedNs;
constexpr unsigned kRound = YieldPolicy::kSkipped + 1;

TEST(YieldPolicy, SkipsMostCallsOfAThreadThatIsAlone) {
    YieldPolicy policy;
    EXPECT_FALSE(policy.may_skip()) << "nothing is known yet";
    policy.note(kShort);
    EXPECT_EQ(kernel_calls(policy, 10 * kRound, kShort), 10u);
}

TEST(YieldPolicy, SkipsNoneWhereAnotherTaskRuns) {
    YieldPolicy policy;
    EXPECT_EQ(kernel_calls(policy, 1000, kLong), 1000u);
}

TEST(YieldPolicy, SkipsAgainAfterManyShortOnes) {
    YieldPolicy policy;
    kernel_calls(policy, 10, kLong);
    EXPECT_EQ(kernel_calls(policy, YieldPolicy::kShortInARow, kShort), YieldPolicy::kShortInARow);
    EXPECT_EQ(kernel_calls(policy, 10 * kRound, kShort), 10u);
}

TEST(YieldPolicy, BeginsAnewWithEachLongOne) {
    YieldPolicy policy;
    kernel_calls(policy, 1, kLong);
    kernel_calls(policy, YieldPolicy::kShortInARow - 1, kShort);
    kernel_calls(policy, 1, kLong);
    EXPECT_EQ(kernel_calls(policy, YieldPolicy::kShortInARow, kShort), YieldPolicy::kShortInARow);
    EXPECT_TRUE(policy.may_skip());
}

}  // namespace
}  // namespace heddle::yield
