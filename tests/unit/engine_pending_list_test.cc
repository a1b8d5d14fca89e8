// SPDX-License-Identifier: BSD-2-Clause
// The list of send queues that wait, as threads that poll empty CQs use it while the progress
// thread has no turn.
#include "softhca/engine/pending_list.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "softhca/device/epoch.h"

namespace softhca::engine {
namespace {

// A directory for the fabrics of this process, or empty. The options are read once.
const std::string& base() {
    static const std::string path = [] {
        char name[] = "/tmp/softhca-pending-test-XXXXXX";
        const char* const made = mkdtemp(name);
        setenv("SOFTHCA_DIRECTORY", made != nullptr ? made : "/nowhere", 1);
        return std::string(made != nullptr ? made : "");
    }();
    return path;
}

class PendingList : public testing::Test {
protected:
    void SetUp() override {
        ASSERT_FALSE(base().empty());
        fabric_ = device::Fabric::attach("pending");
        ASSERT_NE(fabric_, nullptr);
    }
    void TearDown() override {
        for (LocalQp& local : qps_)
            remove_pending(local);
        if (fabric_ != nullptr) fabric_->leave();
        for (const auto& each : std::filesystem::directory_iterator(base()))
            std::filesystem::remove_all(each.path());
    }
    // A thread that polls an empty CQ gives one QP a turn.
    void poll() {
        const device::epoch::Section section;
        run_pending(*fabric_, Runner::kPoller, 1);
    }

    device::Fabric* fabric_ = nullptr;
    std::array<LocalQp, 3> qps_{};  // without a send queue: a turn of theirs does nothing
};

TEST_F(PendingList, GivesEachATurnInOrder) {
    for (LocalQp& local : qps_) {
        add_pending(*fabric_, local);
        add_pending(*fabric_, local);  // it is on the list already
    }
    EXPECT_EQ(g_pending.load(), qps_.size());
    for (std::size_t i = 0; i < qps_.size(); ++i) {
        EXPECT_TRUE(qps_[i].pending.load());
        poll();
        EXPECT_FALSE(qps_[i].pending.load());
    }
    EXPECT_EQ(g_pending.load(), 0u);
}

// One QP waits for a timer. Behind it another is listed and run more often than the ring has
// places.
TEST_F(PendingList, KeepsOneThatWaitsWhileOthersComeAndGo) {
    LocalQp &waits = qps_[0], &runs = qps_[1], &last = qps_[2];
    waits.waiting = WaitReason::kRnr;
    waits.wait_until = waits.look_at = ~std::uint64_t{0};
    add_pending(*fabric_, waits);
    for (std::uint32_t i = 0; i < 2 * device::kMaxQps + 10; ++i) {
        add_pending(*fabric_, runs);
        {
            const device::epoch::Section section;
            run_pending(*fabric_, Runner::kPoller, 2);
        }
        ASSERT_FALSE(runs.pending.load()) << i;
        ASSERT_EQ(g_pending.load(), 1u) << i;
    }
    add_pending(*fabric_, last);
    EXPECT_TRUE(waits.pending.load());
    waits.waiting = WaitReason::kNo;
    poll();
    EXPECT_FALSE(waits.pending.load()) << "it was lost";
    EXPECT_TRUE(last.pending.load()) << "the order has changed";
    poll();
    EXPECT_EQ(g_pending.load(), 0u);
}

}  // namespace
}  // namespace softhca::engine
