// SPDX-License-Identifier: BSD-2-Clause
// Which memory is registered for one operation at a time.
#include "softhca/uverbs/brief_regions.h"

#include <gtest/gtest.h>

namespace softhca::uverbs {
namespace {

using device::memory::Purpose;

constexpr std::uint64_t kHere = 0x7f00'1234'5000, kThere = kHere + 0x10'0000;
constexpr std::uint64_t kShort = 1'000, kLong = BriefRegions::kBriefNs;

TEST(BriefRegions, AreTheNinthInARow) {
    BriefRegions regions;
    for (unsigned i = 0; i < BriefRegions::kEnough; ++i) {
        EXPECT_EQ(regions.purpose(kHere), Purpose::kApplication) << i;
        regions.ended(kHere + i, kShort);  // anywhere in the first page
    }
    EXPECT_EQ(regions.purpose(kHere), Purpose::kBrief);
    EXPECT_EQ(regions.purpose(kHere + 4095), Purpose::kBrief);
    for (unsigned i = 0; i < 10'000; ++i)
        regions.ended(kHere, kShort);
    EXPECT_EQ(regions.purpose(kHere), Purpose::kBrief);
}

TEST(BriefRegions, SayNothingOfOtherMemory) {
    BriefRegions regions;
    for (unsigned i = 0; i < 2 * BriefRegions::kEnough; ++i)
        regions.ended(kHere, kShort);
    EXPECT_EQ(regions.purpose(kThere), Purpose::kApplication);
    EXPECT_EQ(regions.purpose(kHere + 4096), Purpose::kApplication);
    EXPECT_EQ(regions.purpose(kHere - 1), Purpose::kApplication);
}

TEST(BriefRegions, EndWithOneThatLives) {
    BriefRegions regions;
    for (unsigned i = 0; i < BriefRegions::kEnough; ++i)
        regions.ended(kHere, kShort);
    regions.ended(kHere, kLong);
    EXPECT_EQ(regions.purpose(kHere), Purpose::kApplication);
    for (unsigned i = 0; i + 1 < BriefRegions::kEnough; ++i)
        regions.ended(kHere, kShort);
    EXPECT_EQ(regions.purpose(kHere), Purpose::kApplication);
}

// A program that uses a great many addresses once leaves no trace that says something.
TEST(BriefRegions, ForgetWhatAnotherPageHasReplaced) {
    BriefRegions regions;
    for (std::uint64_t i = 0; i < 100'000; ++i) {
        EXPECT_EQ(regions.purpose(kHere + i * 4096), Purpose::kApplication);
        regions.ended(kHere + i * 4096, kShort);
    }
}

}  // namespace
}  // namespace softhca::uverbs
