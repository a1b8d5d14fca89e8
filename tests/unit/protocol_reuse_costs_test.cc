// SPDX-License-Identifier: BSD-2-Clause
// Break-even counts, and the file with them, whatever its content is.
#include "protocol/reuse/reuse_costs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "protocol/reuse/reuse.h"

namespace heddle::protocol {
namespace {

ReuseCosts some() {
    ReuseCosts costs;
    for (std::size_t i = 0; i < 7; ++i) {
        ReuseCosts::Cost& cost = costs.costs[i];
        cost.registration = 10'000;
        cost.copy = 50;
        cost.lookup = 4;
        cost.copied = {500, 400, 300};
        // The saved times are negative, 46 and 96.
        cost.gathered = {520, 350, 200};
    }
    return costs;
}

TEST(ReuseCosts, BreakEven) {
    const ReuseCosts costs = some();
    EXPECT_EQ(costs.uses_for(4096, ReuseCosts::kSend, 100), ReuseCosts::kNever);
    EXPECT_EQ(costs.uses_for(4096, ReuseCosts::kRing, 100), 218u);  // 10000 / 46
    EXPECT_EQ(costs.uses_for(4096, ReuseCosts::kRing, 25), 55u);
    EXPECT_EQ(costs.uses_for(4096, ReuseCosts::kOneSided, 100), 105u);
    EXPECT_EQ(costs.uses_for(4096, ReuseCosts::kOneSided, 1), ReuseCosts::kFewestUses);
    EXPECT_EQ(costs.uses_for(1 << 20, ReuseCosts::kRing, 100), ReuseCosts::kNever)
        << "not measured";
    EXPECT_EQ(costs.fewest_uses(100), 105u);
    EXPECT_EQ(ReuseCosts{}.fewest_uses(100), ReuseCosts::kNever);
    EXPECT_EQ(costs.smallest(ReuseCosts::kRing), 128u);
    EXPECT_EQ(costs.smallest(ReuseCosts::kSend), ~std::size_t{0});
    EXPECT_EQ(ReuseCosts{}.uses_for(4096, ReuseCosts::kRing, 25), ReuseCosts::kNever);
}

TEST(ReuseCosts, WhatSavesNextToNothingIsNotLookedFor) {
    ReuseCosts costs = some();
    for (ReuseCosts::Cost& cost : costs.costs)
        cost.gathered[ReuseCosts::kRing] = 377;  // 19 of 400
    EXPECT_EQ(costs.uses_for(4096, ReuseCosts::kRing, 100), ReuseCosts::kNever);
    EXPECT_EQ(costs.smallest(ReuseCosts::kRing), ~std::size_t{0});
    for (ReuseCosts::Cost& cost : costs.costs)
        cost.gathered[ReuseCosts::kRing] = 376;
    EXPECT_EQ(costs.uses_for(4096, ReuseCosts::kRing, 100), 500u);  // 10000 / 20
}

TEST(ReuseCosts, SizesBelow) {
    EXPECT_EQ(ReuseCosts::index_of(128), 0u);
    EXPECT_EQ(ReuseCosts::index_of(255), 0u);
    EXPECT_EQ(ReuseCosts::index_of(256), 1u);
    EXPECT_EQ(ReuseCosts::index_of(8191), 5u);
    EXPECT_EQ(ReuseCosts::index_of(8192), 6u);
    EXPECT_EQ(ReuseCosts::index_of(std::size_t{1} << 40), ReuseCosts::kSizes - 1);
    EXPECT_EQ(ReuseCosts::index_of(1), 0u);
}

TEST(ReuseCosts, FileAndBack) {
    const std::filesystem::path file =
        std::filesystem::path(testing::TempDir()) / ("costs-" + std::to_string(::getpid())) / "x";
    EXPECT_FALSE(ReuseCosts::load(file));
    ASSERT_TRUE(some().save(file));
    const auto back = ReuseCosts::load(file);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->text(), some().text());
    std::filesystem::remove_all(file.parent_path());
    EXPECT_FALSE(some().save("/proc/nowhere/x"));
}

TEST(ReuseCosts, OtherTextIsNotTaken) {
    const std::string good = some().text();
    ASSERT_TRUE(ReuseCosts::parse(good));
    for (const char* text :
         {"", "\n", "heddle reuse costs 1\n", "heddle reuse costs 2\n128 1 1 1 1 1 1 1 1 1\n",
          "heddle reuse costs 1\n100 1 1 1 1 1 1 1 1 1\n", "heddle reuse costs 1\n128 1 1 1\n",
          "heddle reuse costs 1\n128 -1 1 1 1 1 1 1 1 1\n",
          "heddle reuse costs 1\n128 nan 1 1 1 1 1 1 1 1\n",
          "heddle reuse costs 1\n128 1e30 1 1 1 1 1 1 1 1\n",
          "heddle reuse costs 1\n128 1 1 1 1 1 1 1 1 1 1\n",
          "heddle reuse costs 1\n99999999999999999999999 1 1 1 1 1 1 1 1 1\n"})
        EXPECT_FALSE(ReuseCosts::parse(text)) << text;
    std::mt19937 random(1);
    for (int i = 0; i < 20'000; ++i) {  // bytes changed: a value, or nothing
        std::string text = good;
        for (unsigned n = 1 + random() % 4; n != 0; --n)
            text[random() % text.size()] = static_cast<char>(random());
        if (const auto costs = ReuseCosts::parse(text)) {
            for (std::size_t bytes = 1; bytes < 100'000; bytes *= 2)
                for (const auto way : {ReuseCosts::kSend, ReuseCosts::kRing, ReuseCosts::kOneSided})
                    ASSERT_GE(costs->uses_for(bytes, way, 25), ReuseCosts::kFewestUses);
        }
    }
}

// The counts of a process are the sums of its endpoints'.
TEST(ReuseCounts, AddUp) {
    ReuseCounts one;
    one.uses = 1, one.frequent = 2, one.promoted = 3, one.refused = 4, one.gone = 5, one.aged = 6;
    one.entries = 7, one.used = 8, one.rests = 9;
    for (std::size_t i = 0; i < one.by_uses.size(); ++i)
        one.by_uses[i] = 10 + i;
    ReuseCounts sum = one;
    sum += one;
    EXPECT_EQ(sum.uses, 2u);
    EXPECT_EQ(sum.frequent, 4u);
    EXPECT_EQ(sum.promoted, 6u);
    EXPECT_EQ(sum.refused, 8u);
    EXPECT_EQ(sum.gone, 10u);
    EXPECT_EQ(sum.aged, 12u);
    EXPECT_EQ(sum.entries, 14u);
    EXPECT_EQ(sum.used, 16u);
    EXPECT_EQ(sum.rests, 18u);
    for (std::size_t i = 0; i < sum.by_uses.size(); ++i)
        EXPECT_EQ(sum.by_uses[i], 2 * (10 + i)) << i;
}

}  // namespace
}  // namespace heddle::protocol
