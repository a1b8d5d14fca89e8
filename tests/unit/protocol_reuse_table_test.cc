// SPDX-License-Identifier: BSD-2-Clause
// The table of buffers: counts, eviction, growth, rest, and ageing.
#include "memory/reuse_table.h"

#include <gtest/gtest.h>

#include <random>

namespace heddle::memory {
namespace {

constexpr std::uintptr_t kBase = 0x7f00'0000'0000;

const void* place(std::uint64_t number) {
    return reinterpret_cast<const void*>(kBase + number * 4096);
}

TEST(ReuseTable, CountsByAddressAndLength) {
    ReuseTable table;
    for (std::uint32_t i = 1; i <= 100; ++i) {
        ASSERT_EQ(table.use(place(1), 1000)->uses(), i);
        ASSERT_EQ(table.use(place(1), 1001)->uses(), i);
        ASSERT_EQ(table.use(place(2), 1000)->uses(), i);
    }
    table.forget(place(1), 1000);
    EXPECT_EQ(table.use(place(1), 1000)->uses(), 1u);
    EXPECT_EQ(table.use(place(1), 1001)->uses(), 101u);
}

TEST(ReuseTable, CountsNoFurtherThanItCan) {
    ReuseTable table;
    const ReuseTable::Entry* entry = nullptr;
    for (std::uint32_t i = 0; i < 70'000; ++i)
        entry = table.use(place(1), 500);
    EXPECT_EQ(entry->uses(), ReuseTable::kMostUses);
}

// A buffer that was last used many epochs ago counts little.
TEST(ReuseTable, Forgets) {
    ReuseTable table;
    for (int i = 0; i < 512; ++i)
        table.use(place(1), 500);
    const std::uint32_t then = table.epoch();
    while (table.epoch() - then < 4)
        table.use(place(2), 500);
    EXPECT_EQ(table.use(place(1), 500)->uses(), 512u / 8 + 1);
    while (table.epoch() - then < 30)
        table.use(place(2), 500);
    EXPECT_EQ(table.use(place(1), 500)->uses(), 1u);
}

// A million buffers that are used once: the table stays small and is at rest most of the time.
TEST(ReuseTable, RestsWhereNothingIsReused) {
    ReuseTable table;
    for (std::uint64_t i = 0; i < 1'000'000; ++i)
        table.use(place(i), 1024);
    const ReuseTable::State state = table.state();
    EXPECT_LE(state.entries, ReuseTable::kFreely);
    EXPECT_GT(state.rests, 0u);
    EXPECT_LT(state.misses, state.uses / 4);
    EXPECT_EQ(state.frequent, 0u);
}

// Each buffer that was not found has taken a free entry or one of another buffer.
TEST(ReuseTable, CountsWhatHadNoFreeEntry) {
    ReuseTable table;
    std::uint64_t next = 0;
    const auto use_new_ones = [&](int count) {
        for (int i = 0; i < count; ++i)
            table.use(place(next++), 512);
    };
    const auto expect_sum = [&] {
        const ReuseTable::State state = table.state();
        EXPECT_EQ(state.misses, next);
        EXPECT_EQ(state.overflows, state.misses - state.used);
    };
    use_new_ones(1200);
    EXPECT_EQ(table.state().entries, ReuseTable::kFewest);
    EXPECT_GE(table.state().overflows, 1200 - ReuseTable::kFewest);
    expect_sum();
    for (int epochs = 1; epochs <= 3; ++epochs) {
        const std::uint32_t then = table.epoch();
        while (table.epoch() == then)
            table.use(place(next - 1), 512);
        expect_sum();
        use_new_ones(300);
        expect_sum();
    }
}

// The table wakes up again.
TEST(ReuseTable, WakesFromRest) {
    ReuseTable table;
    for (std::uint64_t i = 0; table.state().rests == 0; ++i)
        table.use(place(i), 1024);
    std::uint32_t most = 0;
    for (int i = 0; i < 2'000'000 && most < 1000; ++i)
        if (const ReuseTable::Entry* const entry = table.use(place(7), 1024))
            most = std::max(most, entry->uses());
    EXPECT_EQ(most, 1000u);
}

// Many buffers that are used repeatedly: the table grows until it has all of them.
TEST(ReuseTable, GrowsForWhatIsReused) {
    constexpr std::uint64_t kBuffers = 5000;
    ReuseTable table;
    std::uint32_t least = 0;
    for (int round = 0; round < 60; ++round) {
        least = ~0u;
        for (std::uint64_t i = 0; i < kBuffers; ++i)
            if (ReuseTable::Entry* const entry = table.use(place(i), 256)) {
                least = std::min(least, entry->uses());
                if (entry->uses() > 8) entry->value = 1;
            } else {
                least = 0;
            }
    }
    EXPECT_GT(table.state().frequent, kBuffers * 9 / 10);
    EXPECT_GE(table.state().entries, kBuffers);
    EXPECT_LE(table.state().entries, ReuseTable::kMost);
}

// Frequently used buffers stay, whatever other buffers are used.
TEST(ReuseTable, KeepsWhatIsFrequent) {
    ReuseTable table;
    table.use(place(3), 2048)->value = 42;
    std::mt19937_64 random(1);
    for (int i = 0; i < 300'000; ++i)
        table.use(place(random() % 1'000'000), 2048);
    for (int i = 0; i < 1'000'000; ++i)  // it may be at rest
        if (const ReuseTable::Entry* const entry = table.use(place(3), 2048)) {
            EXPECT_EQ(entry->value, 42u);
            return;
        }
    FAIL() << "at rest for ever";
}

}  // namespace
}  // namespace heddle::memory
