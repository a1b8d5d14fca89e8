// SPDX-License-Identifier: BSD-2-Clause
// When a large operation waits for a poll instead of the progress thread (late_wake.h). The test is
// the poster and the progress thread in turn, so both are on one processor if it has only one.
#include "softhca/engine/late_wake.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "softhca/device/epoch.h"

namespace softhca::engine {
namespace {

class LateWakes : public testing::Test {
protected:
    void SetUp() override {
        char name[] = "/tmp/softhca-late-wake-test-XXXXXX";
        directory_ = mkdtemp(name);
        // The options are read once: another test of this process may have set it.
        setenv("SOFTHCA_DIRECTORY", directory_.c_str(), 0);
        fabric_ = device::Fabric::attach("late-wake");
        ASSERT_NE(fabric_, nullptr);
        LateWake::forget_after_fork();
        ASSERT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
        run_on(sched_getcpu());
        large_.waiting = WaitReason::kDeferred;
        large_.engine = EnginePolicy::kHybrid;
    }
    void TearDown() override {
        sched_setaffinity(0, sizeof before_, &before_);
        LateWake::forget_after_fork();
        if (fabric_ != nullptr) fabric_->leave();
        std::filesystem::remove_all(directory_);
    }
    static void run_on(int processor) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<unsigned>(processor), &one);
        ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    }
    void run_on_another() {
        const int here = sched_getcpu();
        int other = 0;
        while (other == here || !CPU_ISSET(static_cast<unsigned>(other), &before_))
            ++other;
        run_on(other);
    }
    bool may_wait(const LocalQp& local) {
        const device::epoch::Section section;
        return LateWake::may_wait(*fabric_, local);
    }
    // What the progress thread does at its end, so many ns from now. nullopt: it looks once more.
    static std::optional<std::uint64_t> sleeps_for(std::uint64_t later = 0) {
        const std::uint64_t now = device::now_ns() + later;
        std::uint64_t deadline = now + kLong;
        if (!LateWake::may_sleep(now, deadline)) return std::nullopt;
        return deadline - now;
    }

    static constexpr std::uint64_t kLong = 1'000'000'000;
    device::Fabric* fabric_ = nullptr;
    LocalQp large_{};
    cpu_set_t before_{};
    std::string directory_;
};

TEST_F(LateWakes, BeginWithAnOperationThatWakes) {
    EXPECT_EQ(sleeps_for(), kLong) << "there was no large operation";
    EXPECT_FALSE(may_wait(large_)) << "the thread sleeps";
    EXPECT_EQ(sleeps_for(), LateWake::kWatch);
    EXPECT_TRUE(may_wait(large_));
    EXPECT_TRUE(may_wait(large_));
}

TEST_F(LateWakes, EndWithOneMoreLook) {
    EXPECT_FALSE(may_wait(large_));
    EXPECT_EQ(sleeps_for(LateWake::kWatchFor / 2), LateWake::kWatch);
    EXPECT_TRUE(may_wait(large_));
    EXPECT_EQ(sleeps_for(LateWake::kWatchFor + LateWake::kWatch), std::nullopt)
        << "an operation that waits may have come after the last look";
    EXPECT_FALSE(may_wait(large_)) << "the thread does not watch any more";
    LateWake::forget_after_fork();
    EXPECT_EQ(sleeps_for(), kLong);
}

// Each of its wakes disturbs the program: see late_wake.h.
TEST_F(LateWakes, AreLookedForSeldomWherePollsTakeThem) {
    EXPECT_FALSE(may_wait(large_));
    for (std::uint64_t sleep = LateWake::kWatch; sleep < LateWake::kLongestWatch; sleep *= 2)
        EXPECT_EQ(sleeps_for(), sleep);
    EXPECT_EQ(sleeps_for(), LateWake::kLongestWatch);
    EXPECT_EQ(sleeps_for(), LateWake::kLongestWatch);
    LateWake::taken_by_thread();
    EXPECT_EQ(sleeps_for(), LateWake::kWatch);
}

TEST_F(LateWakes, AreOfLargeOperationsAlone) {
    EXPECT_FALSE(may_wait(large_));
    EXPECT_EQ(sleeps_for(), LateWake::kWatch);
    for (const WaitReason reason :
         {WaitReason::kNo, WaitReason::kRnr, WaitReason::kNoResponse, WaitReason::kBusy}) {
        LocalQp other{};
        other.engine = EnginePolicy::kHybrid;
        other.waiting = reason;
        EXPECT_FALSE(may_wait(other));
    }
    LocalQp other{};
    other.waiting = WaitReason::kDeferred;
    for (const EnginePolicy engine :
         {EnginePolicy::kInline, EnginePolicy::kThread, EnginePolicy::kDedicated}) {
        other.engine = engine;
        EXPECT_FALSE(may_wait(other));
    }
}

TEST_F(LateWakes, NeedTheThreadsProcessor) {
    if (CPU_COUNT(&before_) < 2) GTEST_SKIP() << "there is one processor";
    const int here = sched_getcpu();
    EXPECT_FALSE(may_wait(large_));
    EXPECT_EQ(sleeps_for(), LateWake::kWatch);
    run_on_another();
    EXPECT_FALSE(may_wait(large_));
    run_on(here);
    EXPECT_TRUE(may_wait(large_));
}

TEST_F(LateWakes, NeedNoProcessorOfTheThreadIfPollsAreSoon) {
    if (CPU_COUNT(&before_) < 2) GTEST_SKIP() << "there is one processor";
    const std::uint64_t begin =
        device::now_ns();  // a poll at that time is soon, however slow this is
    EXPECT_FALSE(may_wait(large_));
    EXPECT_EQ(sleeps_for(), LateWake::kWatch);
    run_on_another();
    for (int polls = 0; polls < LateWake::kMostly; ++polls) {
        EXPECT_FALSE(may_wait(large_)) << "after " << polls << " polls";
        LateWake::taken_by_poll(begin);
    }
    EXPECT_TRUE(may_wait(large_));
    LateWake::taken_by_thread();
    EXPECT_FALSE(may_wait(large_)) << "the thread had to take one";
    for (int polls = 0; polls < LateWake::kLate; ++polls)
        LateWake::taken_by_poll(begin);
    EXPECT_TRUE(may_wait(large_));
    LateWake::taken_by_poll(device::now_ns() + LateWake::kSoon + 1);
    EXPECT_FALSE(may_wait(large_)) << "that poll was late";
}

}  // namespace
}  // namespace softhca::engine
