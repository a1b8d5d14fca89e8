// SPDX-License-Identifier: BSD-2-Clause
// heddle's assertions: each kind can fail, and the second costs nothing where it is off. What the
// compiler makes of them is in tests/structure/assertions_test.py.
#include "heddle/detail/assert.h"

#include <csignal>

#include <gtest/gtest.h>

#ifndef EXPECTED_DEBUG_ASSERTIONS  // scripts/test-aarch64 compiles release code
#define EXPECTED_DEBUG_ASSERTIONS 0
#endif

namespace {

static_assert(HEDDLE_DEBUG_ASSERTIONS == EXPECTED_DEBUG_ASSERTIONS,
              "debug assertions are on in debug and sanitizer builds, and off in release builds");

constexpr int heddle_half(int number) {
    HEDDLE_ASSERT(number >= 0);
    HEDDLE_DEBUG_ASSERT(number % 2 == 0, "an odd number has no half");
    return number / 2;
}
static_assert(heddle_half(4) == 2, "a constant expression may contain assertions");

void fail_heddle_assertion_in_handler(int) { HEDDLE_ASSERT(false, "in a signal handler"); }

TEST(HeddleAssertDeathTest, PrintsPlaceConditionAndMessage) {
    EXPECT_EXIT(HEDDLE_ASSERT(1 + 1 == 3), testing::KilledBySignal(SIGABRT),
                "heddle_assert_test\\.cc:[0-9]+: assertion failed: 1 \\+ 1 == 3\n");
    EXPECT_EXIT(HEDDLE_ASSERT(1 + 1 == 3, "arithmetic"), testing::KilledBySignal(SIGABRT),
                "assertion failed: 1 \\+ 1 == 3: arithmetic\n");
}

TEST(HeddleAssertDeathTest, WorksInASignalHandler) {
    EXPECT_EXIT(
        {
            std::signal(SIGUSR1, fail_heddle_assertion_in_handler);
            std::raise(SIGUSR1);
        },
        testing::KilledBySignal(SIGABRT), "assertion failed: false: in a signal handler\n");
}

TEST(HeddleAssertDeathTest, DebugAssertionFailsWhereItIsOn) {
    int evaluated = 0;
    const auto holds = [&](bool outcome) {
        ++evaluated;
        return outcome;
    };
    HEDDLE_DEBUG_ASSERT(holds(true));
    EXPECT_EQ(evaluated, HEDDLE_DEBUG_ASSERTIONS);
#if HEDDLE_DEBUG_ASSERTIONS
    EXPECT_EXIT(HEDDLE_DEBUG_ASSERT(holds(false), "a reason"), testing::KilledBySignal(SIGABRT),
                "assertion failed: holds\\(false\\): a reason\n");
#else
    HEDDLE_DEBUG_ASSERT(holds(false), "a reason");
    EXPECT_EQ(evaluated, 0);
#endif
}

TEST(HeddleAssert, EvaluatesItsConditionOnce) {
    int evaluated = 0;
    HEDDLE_ASSERT(++evaluated == 1);
    EXPECT_EQ(evaluated, 1);
}

}  // namespace
