// SPDX-License-Identifier: BSD-2-Clause
// The record of a register that queues ring: one for all of its queues, and shared between threads
// as soon as one of them says so.
#include "heddle/post/uuar.h"

#include <gtest/gtest.h>

namespace heddle::post::detail {
namespace {

class UuarOf : public testing::Test {
protected:
    alignas(64) std::byte here[512] = {}, there[512] = {};
};

TEST_F(UuarOf, OneRegisterIsOneObjectWhileItLives) {
    auto first = uuar_at(here, 256, false);
    EXPECT_EQ(first->address, here);
    EXPECT_EQ(first->half_bytes, 256u);
    EXPECT_EQ(uuar_at(here, 256, false), first);
    EXPECT_NE(uuar_at(there, 256, false), first);
    first->offset = 256;
    first.reset();
    EXPECT_EQ(uuar_at(here, 0, false)->offset, 0u) << "the register of another queue by now";
}

TEST_F(UuarOf, IsSharedOnceAQueueSaysSo) {
    const auto alone = uuar_at(here, 256, false);
    EXPECT_FALSE(alone->shared);
    static_cast<void>(uuar_at(here, 256, true));
    EXPECT_TRUE(alone->shared) << "by a later queue";
    static_cast<void>(uuar_at(here, 256, false));
    EXPECT_TRUE(alone->shared) << "the queue before may still be there";
    EXPECT_TRUE(uuar_at(there, 256, true)->shared) << "by the first queue";
}

TEST_F(UuarOf, LocksAreCountedWhileItLivesAndAfterwards) {
    const std::uint64_t before = register_locks_taken();
    auto one = uuar_at(here, 256, true);
    const auto other = uuar_at(there, 256, true);
    one->locks_taken = 3;
    other->locks_taken = 5;
    EXPECT_EQ(register_locks_taken() - before, 8u);
    one.reset();
    EXPECT_EQ(register_locks_taken() - before, 8u) << "a queue that is gone took its locks, too";
    one = uuar_at(here, 256, true);
    EXPECT_EQ(register_locks_taken() - before, 8u) << "a new queue has taken none";
}

}  // namespace
}  // namespace heddle::post::detail
