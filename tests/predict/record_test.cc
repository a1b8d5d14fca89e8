// SPDX-License-Identifier: BSD-2-Clause
// Run records: what is read, what the model makes of them, and what is refused.
#include <gmock/gmock.h>

#include <sstream>
#include <string>

#include "predict/machine_file.h"
#include "predict/record.h"
#include "predict/simulator.h"

namespace heddle::predict {
namespace {

constexpr const char* kHeader = R"({"schema":1,"kind":"softhca-record","program":"p","pid":7})"
                                "\n";

// A thread and its queue pair on a page and CQ of its own: lists of 4 with one completion and a
// message alone, and a wait after each.
std::string of_thread(std::uint32_t i, std::uint32_t rounds) {
    const std::string cq = std::to_string(10 + i), qp = std::to_string(100 + i),
                      thread = std::to_string(i);
    return R"({"cq":)" + cq + R"(,"context":1,"lock":true})" + "\n" + R"({"qp":)" + qp +
           R"(,"context":1,"page":)" + std::to_string(4 + i) + R"(,"uuar":0,"send_cq":)" + cq +
           R"(,"depth":128,"lock":false,"uuar_lock":null})" + "\n" + R"({"thread":)" + thread +
           R"(,"barrier":0,"times":1})" + "\n" + R"({"thread":)" + thread +
           R"(,"cycle":[{"post":)" + qp +
           R"(,"wqes":4,"inline":1,"signaled":1,"bytes":32,"line":2,"blueflame":false,)" +
           R"("times":2},)" + R"({"poll":)" + cq + R"(,"cqes":2,"times":1},{"post":)" + qp +
           R"(,"wqes":1,"inline":1,"signaled":1,"bytes":8,"line":null,"blueflame":true,)" +
           R"("times":1},)" + R"({"poll":)" + cq + R"(,"cqes":1,"times":1}],"times":)" +
           std::to_string(rounds) + "}\n";
}

std::string totals(std::uint32_t i, std::uint32_t rounds) {
    return R"({"totals":{"qp":)" + std::to_string(100 + i) + R"(,"wqes":)" +
           std::to_string(9 * rounds) + R"(,"doorbells":)" + std::to_string(2 * rounds) +
           R"(,"blueflame":)" + std::to_string(rounds) + R"(,"payload_reads":0}})" + "\n" +
           R"({"totals":{"cq":)" + std::to_string(10 + i) + R"(,"cqes":)" +
           std::to_string(3 * rounds) + "}}\n";
}

// Messages that are posted one by one.
std::string alone(std::uint32_t thread, std::uint32_t qp, std::uint32_t times,
                  std::uint32_t signaled = 0) {
    return R"({"thread":)" + std::to_string(thread) + R"(,"post":)" + std::to_string(qp) +
           R"(,"wqes":1,"inline":1,"signaled":)" + std::to_string(signaled) +
           R"(,"bytes":8,"line":null,"blueflame":true,"times":)" + std::to_string(times) + "}\n";
}

Record parsed(const std::string& text) {
    std::istringstream in(text);
    return parse_record(in, "r.jsonl");
}

Record two_threads() {
    return parsed(kHeader + of_thread(0, 20) + of_thread(1, 20) + totals(0, 20) + totals(1, 20));
}

TEST(PredictRecord, CountsAreThoseOfTheDevice) {
    const Record record = two_threads();
    EXPECT_EQ(record.program, "p");
    EXPECT_EQ(record.qps.size(), 2u);
    EXPECT_EQ(record.threads.size(), 2u);
    EXPECT_TRUE(record.has_totals);
    EXPECT_FALSE(record.is_truncated);
    EXPECT_EQ(record.posted.wqes, 360u);
    EXPECT_EQ(record.posted.wqes, record.counted.wqes);
    EXPECT_EQ(record.posted.doorbells, record.counted.doorbells);
    EXPECT_EQ(record.posted.blueflame, record.counted.blueflame);
    for (const Record::Cq& cq : record.cqs) {
        EXPECT_EQ(cq.signaled, 60u);
        EXPECT_EQ(cq.polled, 60u);
    }
}

// What the simulator makes of it equals the counters, as it was recorded and in every category.
TEST(PredictRecord, AReplayHasTheSameCounts) {
    const std::vector<Record> records{two_threads(), two_threads()};
    const Machine& machine = connectx4_haswell().machine;
    std::vector<Workload> all{workload_of(records, machine)};
    for (const Category category : kCategories) {
        const auto work = workload_of(records, category, machine);
        ASSERT_TRUE(work.has_value());
        all.push_back(*work);
    }
    for (const Workload& work : all) {
        ASSERT_EQ(work.threads.size(), 4u);
        const Counts counts = simulate(work, machine).counts;
        EXPECT_EQ(counts.wqes, 720u);
        EXPECT_EQ(counts.messages, 720u);
        EXPECT_EQ(counts.posts, 240u);
        EXPECT_EQ(counts.blueflame_posts, 80u);
        EXPECT_EQ(counts.payload_reads, 4u * 20 * 2 * 3);
        EXPECT_EQ(counts.cqes, 240u);
    }
}

TEST(PredictRecord, AProcessThatPostsNothingIsLeftOut) {
    const Record idle = parsed(kHeader + std::string(R"({"cq":1,"context":1,"lock":true})") + "\n" +
                               R"({"thread":0,"barrier":0,"times":3})" + "\n");
    const Machine& machine = connectx4_haswell().machine;
    const auto work = workload_of({idle, two_threads()}, Category::kDynamic, machine);
    ASSERT_TRUE(work.has_value());
    EXPECT_EQ(simulate(*work, machine).counts.wqes, 360u);
    EXPECT_EQ(workload_of({idle, two_threads()}, machine).threads.size(), 2u);
    EXPECT_FALSE(workload_of({idle}, Category::kDynamic, machine));
}

TEST(PredictRecord, SharingIsSlower) {
    const std::vector<Record> records{two_threads()};
    const Machine& machine = connectx4_haswell().machine;
    const auto rate = [&](Category category) {
        return simulate(*workload_of(records, category, machine), machine).per_microsecond;
    };
    EXPECT_LT(rate(Category::kMpiThreads), 0.9 * rate(Category::kMpiEverywhere));
}

TEST(PredictRecord, CompletionsOfReceivesAreLeftOut) {
    std::string text = kHeader + of_thread(0, 20);
    text += R"({"thread":0,"poll":10,"cqes":30,"times":2})"
            "\n";  // of receives, which no post of the record has made
    const Record record = parsed(text);
    EXPECT_EQ(record.cqs[0].polled, 120u);
    const Counts counts =
        simulate(workload_of({record}, connectx4_haswell().machine), connectx4_haswell().machine)
            .counts;
    EXPECT_EQ(counts.wqes, 180u);
    EXPECT_LE(counts.cqes, 60u);
}

TEST(PredictRecord, AQueuePairThatTwoThreadsDriveHasNoOtherCategory) {
    std::string text = kHeader + of_thread(0, 20);
    const Record few = parsed(text + alone(1, 100, 5, 1));
    EXPECT_TRUE(workload_of({few}, Category::kDynamic, connectx4_haswell().machine));
    const Record many = parsed(text + alone(1, 100, 50, 1));
    EXPECT_FALSE(workload_of({many}, Category::kDynamic, connectx4_haswell().machine));
    EXPECT_EQ(
        simulate(workload_of({many}, connectx4_haswell().machine), connectx4_haswell().machine)
            .counts.wqes,
        230u);
}

// As an MPI connects: a queue pair to which two threads post a little.
TEST(PredictRecord, WhatHardlyPostsHasNoPlaceInACategory) {
    const Machine& machine = connectx4_haswell().machine;
    const std::string pair = R"({"cq":50,"context":2,"lock":true})"
                             "\n"
                             R"({"qp":500,"context":2,"page":9,"uuar":0,"send_cq":50})"
                             "\n"
                             R"({"qp":501,"context":2,"page":9,"uuar":1,"send_cq":50})"
                             "\n";
    const std::string threads = kHeader + of_thread(0, 20) + of_thread(1, 20) + pair;
    const std::vector<Record> records{
        parsed(threads + alone(0, 500, 3) + alone(2, 500, 3) + alone(2, 501, 4))};
    EXPECT_EQ(simulate(workload_of(records, machine), machine).counts.wqes, 370u);
    for (const Category category : kCategories) {
        const auto work = workload_of(records, category, machine);
        ASSERT_TRUE(work.has_value());
        EXPECT_EQ(work->threads.size(), 2u);
        EXPECT_EQ(simulate(*work, machine).counts.wqes, 360u);
    }
    // Half of all posts is no little.
    const Record shared = parsed(threads + alone(0, 500, 180) + alone(2, 500, 180));
    EXPECT_FALSE(workload_of({shared}, Category::kDynamic, machine));
}

TEST(PredictRecord, ThreadsMayDriveUnequallyManyQueuePairs) {
    const Machine& machine = connectx4_haswell().machine;
    const std::string text = kHeader + of_thread(0, 20) + of_thread(1, 20) +
                             R"({"qp":200,"context":1,"page":9,"uuar":0,"send_cq":10})" + "\n" +
                             alone(0, 200, 60);
    for (const Category category : kCategories) {
        const auto work = workload_of({parsed(text), two_threads()}, category, machine);
        ASSERT_TRUE(work.has_value());
        ASSERT_EQ(work->threads.size(), 4u);
        EXPECT_EQ(work->threads[0].queues.size(), 2u);
        EXPECT_EQ(work->threads[1].queues.size(), 1u);
        EXPECT_EQ(simulate(*work, machine).counts.wqes, 360u + 60 + 360);
    }
}

TEST(PredictRecord, ANumberThatIsUsedAgainIsAnotherObject) {
    const Record record =
        parsed(kHeader + of_thread(0, 2) + totals(0, 2) + of_thread(0, 3) + totals(0, 3));
    EXPECT_EQ(record.qps.size(), 2u);
    EXPECT_EQ(record.posted.wqes, record.counted.wqes);
    EXPECT_TRUE(record.has_totals);
}

TEST(PredictRecord, AThreadThatGoesOnWithQueuePairsIsTheSame) {
    const auto marked = [](std::uint32_t thread, const char* what) {
        return R"({"thread":)" + std::to_string(thread) + ",\"" + what + "\":true}\n";
    };
    const std::string post = R"({"thread":1,"post":100,"wqes":1,"inline":1,"signaled":1,"bytes":8,)"
                             R"("line":null,"blueflame":true,"times":40})"
                             "\n";
    const Record later = parsed(kHeader + marked(0, "begins") + of_thread(0, 3) +
                                marked(0, "ends") + marked(1, "begins") + post);
    EXPECT_TRUE(later.threads[1].empty());
    EXPECT_TRUE(workload_of({later}, Category::kDynamic, connectx4_haswell().machine));
    // Threads that are there together are two, whatever the order of their lines.
    const Record beside = parsed(kHeader + marked(0, "begins") + marked(1, "begins") +
                                 of_thread(0, 3) + marked(0, "ends") + post);
    EXPECT_FALSE(beside.threads[1].empty());
    EXPECT_FALSE(workload_of({beside}, Category::kDynamic, connectx4_haswell().machine));
}

TEST(PredictRecord, ReadsHaveNoPayloadToFetch) {
    const Record record =
        parsed(kHeader + of_thread(0, 1) +
               R"({"thread":0,"post":100,"wqes":3,"inline":0,"signaled":0,"reads":2,)"
               R"("bytes":24,"line":5,"blueflame":false,"times":7})"
               "\n");
    EXPECT_EQ(record.reads, 14u);
    EXPECT_EQ(record.threads[0].back().payload_reads, 1u);
}

// `messages` posts one by one, to a queue of so many, and then the wait for all.
Record burst(std::uint32_t messages, std::uint32_t depth, std::uint32_t signaled) {
    return parsed(kHeader + std::string(R"({"cq":1,"context":1,"lock":true})") + "\n" +
                  R"({"qp":2,"context":1,"page":4,"uuar":0,"send_cq":1,"depth":)" +
                  std::to_string(depth) + "}\n" + alone(0, 2, messages, signaled) +
                  (signaled == 0 ? ""
                                 : R"({"thread":0,"poll":1,"cqes":)" + std::to_string(messages) +
                                       R"(,"times":1})" + "\n"));
}

TEST(PredictRecord, APostWaitsForRoomInTheQueue) {
    Machine machine = connectx4_haswell().machine;
    machine.completion_latency = 100e3;  // so long that nothing else counts
    const auto rate = [&](std::uint32_t depth) {
        return simulate(workload_of({burst(20, depth, 1)}, machine), machine).per_microsecond;
    };
    EXPECT_NEAR(rate(20) / rate(5), 4, 0.2);
    EXPECT_NEAR(rate(20) / rate(1), 20, 1);
    EXPECT_EQ(rate(20), rate(1000));
    // In another category, too.
    const auto work = workload_of({burst(20, 5, 1)}, Category::kStatic, machine);
    ASSERT_TRUE(work.has_value());
    EXPECT_NEAR(simulate(*work, machine).per_microsecond, rate(5), 0.1 * rate(5));
}

TEST(PredictRecord, AQueueWithoutCompletionsKeepsNobodyWaiting) {
    const Machine& machine = connectx4_haswell().machine;
    EXPECT_EQ(simulate(workload_of({burst(20, 5, 0)}, machine), machine).counts.wqes, 20u);
}

TEST(PredictRecord, ErrorsNameTheLine) {
    const auto refused = [](const std::string& text, const std::string& said) {
        try {
            parsed(text);
            FAIL() << "nothing was said of " << said;
        } catch (const RecordError& error) {
            EXPECT_THAT(error.what(), testing::StartsWith("r.jsonl:"));
            EXPECT_THAT(error.what(), testing::HasSubstr(said));
        }
    };
    const std::string head(kHeader);
    refused("", "it is empty");
    refused("x\n", "r.jsonl:1: it is no JSON object");
    refused("{\"schema\":1}\n", "it is no run record of softhca");
    refused("{\"schema\":2,\"kind\":\"softhca-record\"}\n", "'schema' has to be 1");
    refused(head + "[1]\n", "r.jsonl:2: it is no JSON object");
    refused(head + "{\"qp\":1,\"context\":1,\"send_cq\":3}\n",
            "CQ of this QP has not been described");
    refused(head + "{\"thread\":0,\"post\":1,\"times\":1}\n", "QP of this post has not been");
    refused(head + "{\"thread\":0,\"poll\":1,\"cqes\":1,\"times\":1}\n", "CQ of this poll has not");
    refused(head + "{\"thread\":0,\"times\":1}\n", "an event is a post, a poll or a barrier");
    refused(head + "{\"thread\":-1,\"barrier\":0,\"times\":1}\n", "'thread' has to be a whole");
    refused(head + "{\"thread\":0,\"barrier\":0}\n", "'times' has to be a whole number");
    refused(head + "{\"thread\":0,\"cycle\":[],\"times\":2}\n", "'cycle' has to be a list");
    refused(head + "{\"thread\":0,\"cycle\":[{\"barrier\":0,\"times\":1}],\"times\":4000000000}\n",
            "record a shorter run");
    refused(head + of_thread(0, 1) +
                "{\"thread\":0,\"post\":100,\"wqes\":1,\"inline\":2,\"signaled\":0,\"times\":1}\n",
            "at most all are inline, reads or signaled");
    EXPECT_THROW(read_record("/nowhere"), RecordError);
}

}  // namespace
}  // namespace heddle::predict
