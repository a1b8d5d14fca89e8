// SPDX-License-Identifier: BSD-2-Clause
// IntervalMap against an array.

#include "softhca/device/memory/interval_map.h"

#include <array>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace softhca::device::memory {
namespace {

TEST(MemoryIntervalMap, IsDefaultAtFirst) {
    IntervalMap<int> map;
    EXPECT_TRUE(map.empty());
    EXPECT_EQ(map.at(0), 0);
    EXPECT_EQ(map.at(~0ULL), 0);
    const auto run = map.run_at(5);
    EXPECT_EQ(run.start, 0u);
    EXPECT_EQ(run.end, IntervalMap<int>::kEnd);
}

TEST(MemoryIntervalMap, JoinsEqualNeighbours) {
    IntervalMap<int> map;
    map.set(10, 20, 7);
    map.set(20, 30, 7);
    EXPECT_EQ(map.boundaries(), 2u);
    EXPECT_EQ(map.run_at(15).start, 10u);
    EXPECT_EQ(map.run_at(15).end, 30u);
    map.set(15, 16, 0);
    EXPECT_EQ(map.boundaries(), 4u);
    map.set(15, 16, 7);
    EXPECT_EQ(map.boundaries(), 2u);
    map.set(0, 100, 0);
    EXPECT_TRUE(map.empty());
}

TEST(MemoryIntervalMap, BehavesLikeAnArray) {
    constexpr std::size_t kSize = 64;
    std::mt19937 random(1);
    for (int round = 0; round < 200; ++round) {
        IntervalMap<int> map;
        std::array<int, kSize> model{};
        for (int step = 0; step < 60; ++step) {
            std::size_t start = random() % kSize, end = random() % kSize;
            if (start == end) continue;
            if (start > end) std::swap(start, end);
            if (random() % 2) {
                const int value = static_cast<int>(random() % 3);
                map.set(start, end, value);
                for (std::size_t i = start; i < end; ++i)
                    model[i] = value;
            } else {
                map.update(start, end, [](int& value) { value = (value + 1) % 3; });
                for (std::size_t i = start; i < end; ++i)
                    model[i] = (model[i] + 1) % 3;
            }
            std::size_t boundaries = model[0] != 0;
            for (std::size_t i = 1; i < kSize; ++i)
                boundaries += model[i] != model[i - 1];
            boundaries += model[kSize - 1] != 0;
            ASSERT_EQ(map.boundaries(), boundaries);
            std::array<int, kSize> seen{};
            map.for_each([&](const IntervalMap<int>::Run& run) {
                for (std::uint64_t i = run.start; i < run.end; ++i)
                    seen[i] = run.value;
            });
            ASSERT_EQ(seen, model);
            const std::size_t point = random() % kSize;
            const auto run = map.run_at(point);
            ASSERT_EQ(run.value, model[point]);
            ASSERT_TRUE(run.start <= point && point < run.end);
            if (run.start > 0) {
                ASSERT_NE(model[run.start - 1], run.value);
            }
            if (run.end < kSize) {
                ASSERT_NE(model[run.end], run.value);
            }
        }
    }
}

}  // namespace
}  // namespace softhca::device::memory
