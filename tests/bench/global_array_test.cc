// SPDX-License-Identifier: BSD-2-Clause
// The global array makes the device do exactly what the paper's program does, by the counters of
// the software HCA. ICPADS'18, section VII; the program is rzambre/ga-verbs, with p = q = 1.
#include "experiments/global_array.h"

#include <gtest/gtest.h>

#include <vector>

#include "experiments/common/team.h"
#include "tests/bench/device_counters.h"

namespace heddle::bench {
namespace {

constexpr std::uint32_t kArrayMatrix = 16, kArrayThreads = 3, kArrayRepetitions = 2;

// What the device has done in one repetition, and how many messages there were.
struct CountedArray {
    Counters counters;
    GlobalArrayResult result;
    std::uint64_t messages() const { return result.reads + result.writes; }
};

CountedArray counted(GlobalArray g) {
    g.matrix = kArrayMatrix;
    g.repetitions = kArrayRepetitions;
    CountedArray counted;
    std::vector<Counters> after;  // each repetition, and the first to warm up
    // The process with the matrices calls this. The other one waits, but not after the last: it may
    // be gone then, and its counters with it.
    g.spoil = [&](auto) { after.push_back(fabric_counters()); };
    const int status =
        run_team({.processes = 2, .any_size = false, .exchange = {}}, [&](Team& team) {
            counted.result = run_global_array(team, g);
            return 0;
        });
    EXPECT_EQ(status, 0) << "the process with the threads";
    EXPECT_EQ(counted.result.wrong, "");
    EXPECT_EQ(after.size(), kArrayRepetitions + 1);
    if (after.size() > 1) counted.counters = after[1] - after[0];
    return counted;
}

class GlobalArrayCounts : public testing::TestWithParam<Path> {
protected:
    GlobalArray in(Category category) const {
        GlobalArray g;
        g.category = category;
        g.path = GetParam();
        g.threads = kArrayThreads;
        return g;
    }
};

// Each row of a tile is posted alone and completes, in every category. It goes by BlueFlame, so the
// device reads no WQE, and a row of C is inline, so it reads no payload of it.
TEST_P(GlobalArrayCounts, OfEachMessageAreThePapers) {
    for (const Category category : kCategories) {
        SCOPED_TRACE(name(category));
        const CountedArray of = counted(in(category));
        const std::uint64_t tiles = kArrayMatrix / GlobalArray{}.tile;
        EXPECT_EQ(of.result.reads, 2 * tiles * tiles * kArrayMatrix) << "rows of A's and B's tiles";
        EXPECT_EQ(of.result.writes, tiles * tiles * kArrayMatrix) << "of C's, after each product";
        EXPECT_EQ(of.counters.wqes, of.messages());
        EXPECT_EQ(of.counters.blueflame, of.messages());
        EXPECT_EQ(of.counters.doorbells, 0u);
        EXPECT_EQ(of.counters.cqes, of.messages());
        EXPECT_EQ(of.counters.wqe_reads, 0u);
        EXPECT_EQ(of.counters.payload_reads, of.result.reads) << "at the process with the matrices";
        EXPECT_EQ(of.counters.payload_writes, of.messages());
    }
}

// Rows of eight doubles exceed the room for inline payload: the device reads them.
TEST_P(GlobalArrayCounts, OfRowsThatDoNotFitInlineHaveAPayloadRead) {
    GlobalArray g = in(Category::kDynamic);
    g.tile = 8;
    const CountedArray of = counted(g);
    EXPECT_EQ(of.counters.payload_reads, of.messages());
    EXPECT_EQ(of.counters.blueflame, of.messages());
    EXPECT_EQ(of.counters.cqes, of.messages());
}

// A list of two tiles, or of one, has a doorbell and a completion.
TEST_P(GlobalArrayCounts, OfBatchesAreThoseOfLists) {
    GlobalArray g = in(Category::kDynamic);
    g.mode = PostMode::kBatched;
    const CountedArray of = counted(g);
    const std::uint64_t tiles = kArrayMatrix / g.tile;
    EXPECT_EQ(of.result.writes, tiles * kArrayMatrix) << "each tile of C is written once";
    const std::uint64_t lists = tiles * tiles * tiles + tiles * tiles;
    EXPECT_EQ(of.counters.wqes, of.messages());
    EXPECT_EQ(of.counters.doorbells, lists);
    EXPECT_EQ(of.counters.blueflame, 0u);
    EXPECT_EQ(of.counters.cqes, lists);
    EXPECT_EQ(of.counters.wqe_reads, of.messages());
    EXPECT_EQ(of.counters.payload_reads, of.messages()) << "nothing is inline";
}

// Three for each thread's QP, whatever else threads share.
TEST(GlobalArrayRegions, AreThreeForEachThread) {
    for (const Category category : kCategories) {
        GlobalArray g;
        g.category = category;
        g.threads = kArrayThreads;
        EXPECT_EQ(counted(g).result.usage.mrs, 3 * kArrayThreads) << name(category);
    }
}

INSTANTIATE_TEST_SUITE_P(Each, GlobalArrayCounts, testing::Values(Path::kVerbs, Path::kDirect),
                         [](const auto& info) {
                             return info.param == Path::kVerbs ? "Verbs" : "Direct";
                         });

}  // namespace
}  // namespace heddle::bench
