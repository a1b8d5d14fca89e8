// SPDX-License-Identifier: BSD-2-Clause
// Whether the limit of locked memory holds for this process, on a device that is not there.
#include "verbs/memlock.h"

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>

#include <gtest/gtest.h>

#include "tests/unit/protocol_fake_verbs.h"

namespace heddle::protocol::test {
namespace {

TEST(HeldToMemlock, IsFoundByARegistrationThatIsTooLarge) {
    ibv_pd pd{};
    const std::size_t before = fake_verbs::regions();
    EXPECT_FALSE(verbs::is_held_to_memlock(&pd, std::size_t{1} << 20));
    EXPECT_EQ(fake_verbs::regions(), before) << "it was only a question";
    fake_verbs::fail_registrations(ENOMEM);
    EXPECT_TRUE(verbs::is_held_to_memlock(&pd, std::size_t{1} << 20));
    fake_verbs::fail_registrations(0);
}

// It would take long, and address space.
TEST(HeldToMemlock, ALargeLimitIsNotTried) {
    ibv_pd pd{};
    EXPECT_TRUE(verbs::is_held_to_memlock(&pd, std::size_t{65} << 20));
}

}  // namespace
}  // namespace heddle::protocol::test
