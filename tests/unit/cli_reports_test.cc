// SPDX-License-Identifier: BSD-2-Clause
// What the reports of `heddle run` say and conclude, from numbers that are known.
#include <gtest/gtest.h>

#include <string>

#include "cli/heddle/reuse_report.h"
#include "cli/heddle/stats_report.h"
#include "cli/heddle/tuple_report.h"
#include "tests/unit/cli_job.h"

namespace heddle::cli {
namespace {

TEST(JobCounts, AddsProcessesAndLeavesOutWhatIsNoEnd) {
    Json one = idle_process(1), other = idle_process(2), running = idle_process(1);
    one["eager"] = 3;
    other["eager"] = 5;
    one["unexpected_bytes_peak"] = 7;
    other["unexpected_bytes_peak"] = 4;
    running["eager"] = 100;
    running["when"] = "signal";
    one["tuples_declined"]["wildcards or probes"] = 2;
    other["tuples_declined"]["wildcards or probes"] = 3;
    const JobCounts job = job_counts(one.dump() + "\nnot of heddle\n{}\n" + running.dump() + "\n" +
                                     other.dump() + "\n");
    EXPECT_EQ(job.processes, 2u);
    EXPECT_EQ(job.strange, 2u);
    EXPECT_EQ(job.of("eager"), 8u);
    EXPECT_EQ(job.counter("eager").least, 3u);
    EXPECT_EQ(job.counter("eager").most, 5u);
    EXPECT_EQ(job.of("unexpected_bytes_peak"), 7u) << "a peak is no sum";
    EXPECT_EQ(job.declined.at("wildcards or probes"), 5u);
    EXPECT_TRUE(job.software);
}

TEST(StatsReport, HasALineAndWhatIsNotZero) {
    Json one = idle_process(1), other = idle_process(2);
    one["inlined"] = other["inlined"] = 1;
    other["eager"] = 6;
    const std::string text = stats_report(job_counts(one.dump() + "\n" + other.dump()), 4);
    EXPECT_NE(text.find("heddle: 2 processes, mlx5_0 (software HCA), endpoints dynamic; 8 messages "
                        "sent: 25 % inline, 75 % eager\n"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("messages sent eagerly    6      0            6\n"), std::string::npos)
        << text;
    EXPECT_EQ(text.find("rendezvous"), std::string::npos) << "that is zero: " << text;
    EXPECT_NE(text.find("2 of 4 processes are not counted"), std::string::npos) << text;
    EXPECT_EQ(stats_report(job_counts(one.dump()), 1).find("not counted"), std::string::npos);
    EXPECT_NE(stats_report(JobCounts(), 1).find("no process has used heddle"), std::string::npos);
}

TEST(ReuseReport, Concludes) {
    Json line = copying_process();
    const auto says = [&](const char* text) {
        return reuse_conclusion(job_of(line)).find(text) != std::string::npos;
    };
    EXPECT_TRUE(
        says("Buffers are used again (5 of 5 were used 64 times or more), but a copy costs less"));
    line["reuse_entries"] = 0;
    EXPECT_TRUE(says("Reuse is off"));
    line["reuse_entries"] = 2048;
    line["reuse_refused"] = 5;
    EXPECT_TRUE(says("RLIMIT_MEMLOCK"));
    line["reuse_refused"] = 0;
    line["buffers_by_uses"] = {0, 900, 0};
    EXPECT_TRUE(says("Few buffers are used again"));
    line["gathered_by_size"][12] = 12000;
    line["eager"] = 16000;
    EXPECT_TRUE(says("75 % of its messages of these sizes went without a copy"));
    line["inlined"] = 1'000'000;
    EXPECT_TRUE(says("Only 2 % of the messages"));
    EXPECT_NE(reuse_conclusion(job_of(idle_process(1))).find("nothing to save"), std::string::npos);
}

TEST(TupleReport, Concludes) {
    Json line = idle_process(1);
    const auto says = [&](const char* text) {
        return tuple_conclusion(job_of(line)).find(text) != std::string::npos;
    };
    EXPECT_TRUE(says("nothing for tuple queues"));
    line["eager"] = 100;
    EXPECT_TRUE(says("--rndv auto would change nothing"));
    line["rendezvous"] = 100;
    EXPECT_TRUE(says("50 % of the messages are above the eager size"));
    line["rndv"] = "auto";
    EXPECT_TRUE(says("No large message repeated often enough"));
    line["tuples_asked"] = 4;
    line["tuples_declined"] = {{"wildcards or probes", 3}, {"the endpoint's end", 9}};
    line["tuples_ended"] = {{"receives posted late", 2}};
    EXPECT_TRUE(says("what hindered most others: wildcards or probes"));
    line["tuple_messages"] = 800;
    EXPECT_TRUE(says("80 % of the messages went to tuple queues: they suit"));
    line["tuple_blocking"] = 700;
    EXPECT_TRUE(says("most of these came before their receives"));
}

}  // namespace
}  // namespace heddle::cli
