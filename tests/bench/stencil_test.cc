// SPDX-License-Identifier: BSD-2-Clause
// The stencil makes the device do exactly what the paper's program does, by the counters of the
// software HCA. ICPADS'18, section VII; the program is rzambre/2d-stencil-verbs, with p = q = 1.
#include "experiments/stencil.h"

#include <gtest/gtest.h>

#include <vector>

#include "experiments/common/team.h"
#include "tests/bench/device_counters.h"

namespace heddle::bench {
namespace {

struct StencilSplit {
    std::uint32_t processes, threads;
};
constexpr StencilSplit kSplits[] = {{2, 1}, {2, 2}, {4, 1}};

class StencilCounts : public testing::TestWithParam<Path> {};

// Each row of each process is two messages in an iteration, one to either side. Each is posted
// alone, by BlueFlame and inline, so the device reads neither WQE nor payload; each completes.
// Nothing else is sent: the halo itself says that it has arrived.
TEST_P(StencilCounts, OfEachMessageAreThePapers) {
    for (const StencilSplit split : kSplits)
        for (const Category category : kCategories) {
            SCOPED_TRACE(testing::Message() << split.processes << " processes of " << split.threads
                                            << " threads, " << name(category));
            Stencil s;
            s.category = category;
            s.path = GetParam();
            s.threads = split.threads;
            s.rows = 24;
            s.columns = 12;
            s.iterations = 7;
            s.repetitions = 2;
            std::vector<Counters> after;  // each repetition, and the first to warm up
            // The first process calls this. The others wait, but not after the last.
            s.spoil = [&](auto) { after.push_back(fabric_counters()); };
            StencilResult result;
            const TeamOptions options{
                .processes = split.processes, .any_size = false, .exchange = {}};
            const int status = run_team(options, [&](Team& team) {
                result = run_stencil(team, s);
                return 0;
            });
            EXPECT_EQ(status, 0) << "another process";
            EXPECT_EQ(result.wrong, "");
            ASSERT_EQ(after.size(), 3u);
            const Counters of = after[1] - after[0];
            const std::uint64_t messages = 2ull * s.rows * split.processes * s.iterations;
            EXPECT_EQ(result.messages, messages);
            EXPECT_EQ(of.wqes, messages);
            EXPECT_EQ(of.blueflame, messages);
            EXPECT_EQ(of.doorbells, 0u);
            EXPECT_EQ(of.cqes, messages);
            EXPECT_EQ(of.wqe_reads, 0u);
            EXPECT_EQ(of.payload_reads, 0u);
            EXPECT_EQ(of.payload_writes, messages);
        }
}

INSTANTIATE_TEST_SUITE_P(Each, StencilCounts, testing::Values(Path::kVerbs, Path::kDirect),
                         [](const auto& info) {
                             return info.param == Path::kVerbs ? "Verbs" : "Direct";
                         });

}  // namespace
}  // namespace heddle::bench
