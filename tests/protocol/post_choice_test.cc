// SPDX-License-Identifier: BSD-2-Clause
// FI_HEDDLE_POST=auto takes the path that was measured to be no slower, the others what they name.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "protocol/reuse/post_costs.h"
#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

class PostChoice : public ::testing::Test {
protected:
    PostChoice() {
        ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
        std::filesystem::remove_all(folder);
    }
    ~PostChoice() override { std::filesystem::remove_all(folder); }
    static bool direct(PostPath path) {
        Options options;
        options.post = path;
        End end(options);
        return end.impl().channel->direct();
    }
    static void measured(double verbs, double direct) {
        PostCosts costs;
        costs.costs.fill({verbs, direct});
        ASSERT_TRUE(costs.save(PostCosts::file(device(""))));
    }
    const std::filesystem::path folder =
        std::filesystem::path(testing::TempDir()) / ("post-choice-" + std::to_string(::getpid()));
};

TEST_F(PostChoice, IsDirectWhereNothingIsKnown) { EXPECT_TRUE(direct(PostPath::kAuto)); }

TEST_F(PostChoice, IsWhatWasMeasured) {
    measured(500, 600);
    EXPECT_FALSE(direct(PostPath::kAuto));
    EXPECT_TRUE(direct(PostPath::kDirect));
    measured(600, 500);
    EXPECT_TRUE(direct(PostPath::kAuto));
    EXPECT_FALSE(direct(PostPath::kVerbs));
}

// libmlx5 then signs all entries, and the device checks them. The direct path does not sign.
TEST_F(PostChoice, IsNotDirectWhereEntriesAreSigned) {
    ::setenv("MLX5_QP_SIGNATURE", "1", 1);
    Options options;
    EXPECT_FALSE(Process(options).direct());
    options.post = PostPath::kDirect;
    EXPECT_THROW(Process(options).direct(), VerbsError);
    ::unsetenv("MLX5_QP_SIGNATURE");
    EXPECT_TRUE(Process(options).direct());
}

TEST_F(PostChoice, IsMeasuredHere) {
    const PostCosts costs = PostCosts::measure(device("").name);
    for (const PostCosts::Cost& cost : costs.costs) {
        EXPECT_GT(cost.verbs, 0);
        EXPECT_GT(cost.direct, 0);
    }
    ASSERT_TRUE(costs.save(PostCosts::file(device(""))));
    EXPECT_EQ(direct(PostPath::kAuto), costs.direct_pays());
}

}  // namespace
}  // namespace heddle::protocol::test
