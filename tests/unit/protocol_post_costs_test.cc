// SPDX-License-Identifier: BSD-2-Clause
// Which path posts faster, and the file with the result, whatever its content is.
#include "protocol/reuse/post_costs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

namespace heddle::protocol {
namespace {

PostCosts costs(double verbs, double direct) {
    PostCosts costs;
    costs.costs.fill({verbs, direct});
    return costs;
}

TEST(PostCosts, Choice) {
    EXPECT_TRUE(PostCosts{}.direct_pays()) << "nothing is known";
    EXPECT_TRUE(costs(500, 300).direct_pays());
    EXPECT_TRUE(costs(500, 500).direct_pays());
    EXPECT_FALSE(costs(500, 600).direct_pays());
    PostCosts mixed = costs(500, 400);
    mixed.costs[4] = mixed.costs[9] = {500, 1000};
    EXPECT_TRUE(mixed.direct_pays());
    mixed.costs[3] = mixed.costs[8] = {500, 1000};
    EXPECT_FALSE(mixed.direct_pays());
    // Where a process has many peers counts as much.
    PostCosts scale = costs(500, 400);
    for (std::size_t i = 0; i < scale.costs.size(); ++i)
        if (PostCosts::queue_pairs_of(i) > 1) scale.costs[i] = {500, 700};
    EXPECT_FALSE(scale.direct_pays());
}

TEST(PostCosts, FileAndBack) {
    const std::filesystem::path file =
        std::filesystem::path(testing::TempDir()) / ("posts-" + std::to_string(::getpid())) / "x";
    EXPECT_FALSE(PostCosts::load(file));
    ASSERT_TRUE(costs(510.0625, 100.0 / 3).save(file));
    const auto back = PostCosts::load(file);
    ASSERT_TRUE(back);
    for (const PostCosts::Cost& cost : back->costs) {
        EXPECT_EQ(cost.verbs, 510.0625);
        EXPECT_EQ(cost.direct, 100.0 / 3);
    }
    EXPECT_FALSE(costs(1, 1).save("/proc/nowhere/x"));
    std::filesystem::remove_all(file.parent_path());
}

// In a folder that other users may write to, the target of a link is not written.
TEST(PostCosts, LinksAreNotFollowed) {
    const std::filesystem::path folder =
        std::filesystem::path(testing::TempDir()) / ("links-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    const std::filesystem::path file = folder / "x", victim = folder / "victim";
    std::ofstream(victim) << "untouched";
    std::filesystem::create_symlink(victim, file);
    std::filesystem::create_symlink(victim, file.string() + "." + std::to_string(::getpid()));
    ASSERT_TRUE(costs(510, 400).save(file));
    EXPECT_TRUE(PostCosts::load(file));
    EXPECT_FALSE(std::filesystem::is_symlink(file)) << "it was replaced, not followed";
    std::string text;
    std::ifstream(victim) >> text;
    EXPECT_EQ(text, "untouched");
    EXPECT_EQ(std::filesystem::status(file).permissions() & std::filesystem::perms::others_write,
              std::filesystem::perms::none);
    std::filesystem::remove_all(folder);
}

TEST(PostCosts, InvalidFiles) {
    const std::string good = costs(500, 400).text();
    for (const char* bad : {"", "heddle post costs 3\n", "heddle post costs 2\n",
                            "heddle post costs 2\n1 8 500 400\n", "heddle reuse costs 2\n"})
        EXPECT_FALSE(PostCosts::parse(bad)) << bad;
    for (const char* line : {"1 8 500", "1 8 500 -1", "1 8 500 nan", "1 9 500 400", "2 8 500 400",
                             "1 8 500 400 300", "1 8 0 400"})
        EXPECT_FALSE(PostCosts::parse("heddle post costs 2\n" + std::string(line) +
                                      good.substr(good.find('\n', good.find('\n') + 1))))
            << line;
    EXPECT_FALSE(PostCosts::parse(good + "64 16384 500 400\n"));
    ASSERT_TRUE(PostCosts::parse(good));
    EXPECT_FALSE(PostCosts::parse("heddle post costs 1\n" + good.substr(good.find('\n') + 1)));
    std::mt19937 random(1);
    for (int i = 0; i < 20'000; ++i) {
        std::string text = good;
        for (unsigned n = 1 + random() % 4; n != 0; --n)
            text[random() % text.size()] = static_cast<char>(random());
        const auto parsed = PostCosts::parse(text);
        if (!parsed) continue;
        for (const PostCosts::Cost& cost : parsed->costs)
            ASSERT_TRUE(cost.verbs > 0 && cost.direct > 0) << text;
    }
}

}  // namespace
}  // namespace heddle::protocol
