// SPDX-License-Identifier: BSD-2-Clause
// The clocks of the experiments where threads are more than cores: no rate is above what one core
// does, times the cores.
#include "experiments/common/clock.h"

#include <gtest/gtest.h>

#include "experiments/common/team.h"
#include "experiments/common/workers.h"
#include "experiments/message_rate.h"

namespace heddle::bench {
namespace {

TEST(Clock, CoversWhatAnyThreadWorked) {
    EXPECT_DOUBLE_EQ(covered_seconds({{1, 3}}), 2);
    EXPECT_DOUBLE_EQ(covered_seconds({{1, 3}, {2, 5}}), 4);
    EXPECT_DOUBLE_EQ(covered_seconds({{2, 5}, {1, 9}, {3, 4}}), 8) << "one within another";
    EXPECT_DOUBLE_EQ(covered_seconds({{7, 8}, {1, 2}}), 2) << "nobody worked in between";
    EXPECT_DOUBLE_EQ(covered_seconds({{-3, -1}, {-2, 0}}), 3) << "where a clock begins is open";
    EXPECT_DOUBLE_EQ(covered_seconds({}), 0);
}

TEST(Clock, IsOneForTheProcessesOfAMachine) {
    // Each took 10, one after the other: together they took 22.
    EXPECT_DOUBLE_EQ(seconds_of({{{0, 10}, 0, 1}, {{12, 22}, 0, 1}}), 22);
    // Clocks of two machines do not compare.
    EXPECT_DOUBLE_EQ(seconds_of({{{0, 10}, 0, 1}, {{812, 823}, 0, 2}}), 11);
}

TEST(Clock, RefusesWhatTheCoresCannotDo) {
    EXPECT_NO_THROW(require_possible(72, 36, 2));
    EXPECT_NO_THROW(require_possible(10, 36, 2));
    // 16 threads on 2 cores that do 36 million each.
    EXPECT_THROW(require_possible(115, 36, 2), ImpossibleRate);
    EXPECT_EQ(cores_of({0, 1, 0, 1}, 2, 4), 2u);
    EXPECT_EQ(cores_of({0, 1}, 2, 1), 1u);
    EXPECT_EQ(cores_of({}, 4, 16), 4u);
}

// All threads are on one core, and so is the thread that made them: it gets the core when it has
// its turn. Short repetitions, so that what it misses is much of each.
TEST(MessageRateClock, IsTheWorkersOwn) {
    const int core = allowed_cores().front();
    MessageRate rate;
    rate.threads = 24;
    rate.sharing = sharing_of(Category::kDynamic, rate.threads);
    rate.path = Path::kDirect;
    rate.seconds = 0.01;
    rate.processors = {core};
    MessageRateRun run(rate);
    std::thread measuring([&] {
        pin_to(core);
        for (int i = 0; i < 50; ++i)
            EXPECT_NO_THROW({
                const Rate measured = run.repeat();
                EXPECT_LE(measured.per_second, measured.per_cpu_second * 1.05);
            });
    });
    measuring.join();
}

// Each thread computes for as long as the others, one after the other.
TEST(WorkersClock, IsFromTheFirstBeginToTheLastEnd) {
    constexpr std::uint32_t kThreads = 8;
    constexpr double kWork = 0.02;  // seconds of processor time
    const int core = allowed_cores().front();
    TeamOptions options;
    const int status = run_team(options, [&](Team& team) {
        Workers workers(team, {core});
        const Stretch stretch = workers.run(kThreads, [](std::uint32_t) {
            const double begin = thread_cpu_seconds();
            while (thread_cpu_seconds() - begin < kWork) {
            }
        });
        EXPECT_EQ(workers.cores(kThreads), 1u);
        EXPECT_GE(seconds_of({stretch}), kThreads * kWork * 0.98);
        EXPECT_GE(stretch.cpu_seconds, kThreads * kWork);
        return 0;
    });
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace heddle::bench
