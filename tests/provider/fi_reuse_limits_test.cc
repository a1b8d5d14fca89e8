// SPDX-License-Identifier: BSD-2-Clause
// Memory that is used again stays registered, but only so much of it: as FI_HEDDLE_MR_CACHE and the
// limit of locked memory allow. What arrives is what was there when it was sent.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/provider/fi_statistics.h"
#include "tests/provider/fi_support.h"
#include "tests/softhca/memlock_limit.h"
#include "tests/support/mapped_memory.h"

namespace heddle::test {
namespace {

constexpr std::size_t kRangeBytes = 96 << 10;  // above eager, of whole pages

// An evicted range is no longer watched, but a cached range that overlaps it still is.
TEST(ReuseWithLittleRoom, OfMemoryOverWhatGaveWay) {
    constexpr std::size_t kPart = 32 << 10;
    constexpr unsigned kTimes = 5;
    setenv("FI_HEDDLE_RNDV", "rget", 1);
    setenv("FI_HEDDLE_MR_CACHE", "208K",
           1);  // of two: one that is sent from, one that is received into
    const Statistics statistics;
    {
        World world;
        Pair pair(world);
        std::byte* const at = map_some(kRangeBytes + kPart);
        std::vector<std::byte> into(kRangeBytes);
        unsigned number = 0;
        const auto use = [&](std::byte* from) {
            std::memset(from, static_cast<int>(++number), kRangeBytes);
            transfer(pair, from, into.data(), kRangeBytes, kRangeBytes, number);
        };
        for (unsigned i = 0; i < kTimes; ++i) {
            for (std::byte* const from : {at, at + kPart})  // the first gives way to the second
                for (int j = 0; j < 3; ++j)
                    use(from);
            // of both
            ASSERT_EQ(munmap(at + kPart, kRangeBytes - kPart), 0);
            ASSERT_EQ(map(at + kPart, kRangeBytes - kPart, MAP_FIXED_NOREPLACE), at + kPart);
            use(at + kPart);
        }
        munmap(at, kRangeBytes + kPart);
    }
    const auto counts = statistics.read();
    EXPECT_GE(counts["registration_evictions"], kTimes) << counts;
    EXPECT_GE(counts["registration_invalidations"], kTimes) << counts;
}

// Half of what may be locked, and so less than one buffer; but nobody holds this process to that.
TEST(ReuseWithLittleToLock, OfMemoryThatIsNotPinned) {
    const softhca::test::MemlockLimit limit(kRangeBytes);
    const Statistics statistics;
    {
        World world;
        Pair pair(world);
        std::vector<std::byte> from(kRangeBytes, std::byte{1}), into(kRangeBytes);
        for (unsigned number = 1; number <= 5; ++number)
            transfer(pair, from.data(), into.data(), kRangeBytes, kRangeBytes, number);
    }
    const auto counts = statistics.read();
    EXPECT_GE(counts["registration_hits"], 4) << counts;
}

struct Limit {
    const char *name, *value;
};
class LimitedReuse : public testing::TestWithParam<Limit> {};

// More buffers than may stay registered, or none.
TEST_P(LimitedReuse, OfManyBuffers) {
    setenv("FI_HEDDLE_MR_CACHE", GetParam().value, 1);
    World world;
    Pair pair(world);
    std::vector<std::vector<std::byte>> buffers(10, std::vector<std::byte>(kRangeBytes));
    std::vector<std::byte> into(kRangeBytes);
    for (unsigned i = 0; i < 100; ++i) {
        auto& from = buffers[i % 7 * (i / 20) % buffers.size()];
        std::fill(from.begin(), from.end(), static_cast<std::byte>(i));
        ASSERT_EQ(fi_trecv(pair.b.ep.get(), into.data(), kRangeBytes, nullptr, FI_ADDR_UNSPEC, 1, 0,
                           nullptr),
                  0);
        const auto send = [&] {
            return fi_tsend(pair.a.ep.get(), from.data(), kRangeBytes, nullptr, pair.to_b, 1,
                            nullptr);
        };
        ASSERT_EQ(insist(pair.a.transmit.get(), send), 0);
        fi_cq_tagged_entry entry;
        ASSERT_EQ(next(pair.b.receive.get(), entry, pair.a.transmit.get()), 0);
        ASSERT_EQ(next(pair.a.transmit.get(), entry, pair.b.receive.get()), 0);
        ASSERT_EQ(from, into) << i;
    }
}

INSTANTIATE_TEST_SUITE_P(To, LimitedReuse,
                         testing::Values(Limit{"nothing", "0"}, Limit{"two", "208K"},
                                         Limit{"page", "4096"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace heddle::test
