// SPDX-License-Identifier: BSD-2-Clause
// Every feature of the message-rate experiment changes exactly the counters of the software HCA
// that it should. Postlist changes the doorbells, BlueFlame whether the register carries the WQE,
// Inlining the reads of payload, Unsignaled the completions.
#include "experiments/message_rate.h"

#include <gtest/gtest.h>

#include "device_stat.h"

namespace heddle::bench {
namespace {

constexpr std::uint32_t kThreads = 2, kList = 32, kSignalEvery = 64;

struct Counters {
    std::uint64_t doorbells, blueflame, wqes, wqe_reads, payload_reads, payload_writes, cqes;
};

Counters stat() {
    const auto c = device_stat()["counters"];
    return {c["doorbells"],        c["blueflame"],         c["wqes"],         c["dma_read_wqe"],
            c["dma_read_payload"], c["dma_write_payload"], c["dma_write_cqe"]};
}

// The device counts once a process has opened it.
Counters stat_or_none() {
    const auto all = fabric_stat()["processes"];
    return all.empty() ? Counters{} : stat();
}

class Features : public testing::TestWithParam<Path> {
protected:
    Features() {
        rate.path = GetParam();
        rate.threads = kThreads;
        rate.sharing = sharing_of(Category::kDynamic, kThreads);
        rate.seconds = 0.02;
    }
    Counters run() const {
        MessageRateRun run(rate);
        run.warm_up();
        EXPECT_GT(run.repeat().per_second, 0);
        const Counters c = stat();
        EXPECT_GT(c.wqes, 100u);
        EXPECT_EQ(c.wqes, run.messages());
        EXPECT_EQ(c.payload_writes, c.wqes) << "each message arrives, whatever is left out";
        return c;
    }
    static void expect_unsignalled(const Counters& c) { EXPECT_EQ(c.cqes * kSignalEvery, c.wqes); }
    static void expect_lists(const Counters& c) {
        EXPECT_EQ(c.doorbells * kList, c.wqes);
        EXPECT_EQ(c.blueflame, 0u) << "only a list of one goes by BlueFlame";
        EXPECT_EQ(c.wqe_reads, c.wqes);
    }

    MessageRate rate;
};

TEST_P(Features, All) {
    const Counters c = run();
    expect_lists(c);
    EXPECT_EQ(c.payload_reads, 0u);
    expect_unsignalled(c);
}

TEST_P(Features, WithoutPostlistEachEntryGoesByBlueFlame) {
    rate.post_list = 1;
    const Counters c = run();
    EXPECT_EQ(c.doorbells, 0u);
    EXPECT_EQ(c.blueflame, c.wqes);
    EXPECT_EQ(c.wqe_reads, 0u);
    EXPECT_EQ(c.payload_reads, 0u);
    expect_unsignalled(c);
}

TEST_P(Features, WithoutInliningEachPayloadIsRead) {
    rate.inlining = false;
    const Counters c = run();
    expect_lists(c);
    EXPECT_EQ(c.payload_reads, c.wqes);
    expect_unsignalled(c);
}

TEST_P(Features, WithoutUnsignaledEachMessageCompletes) {
    rate.signal_every = 1;
    const Counters c = run();
    expect_lists(c);
    EXPECT_EQ(c.payload_reads, 0u);
    EXPECT_EQ(c.cqes, c.wqes);
}

TEST_P(Features, WithoutBlueFlameOnlyDoorbells) {
    rate.blueflame = false;
    const Counters c = run();
    expect_lists(c);
    EXPECT_EQ(c.payload_reads, 0u);
    expect_unsignalled(c);
}

TEST_P(Features, WithoutPostlistAndBlueFlameADoorbellForEach) {
    rate.post_list = 1;
    rate.blueflame = false;
    const Counters c = run();
    EXPECT_EQ(c.doorbells, c.wqes);
    EXPECT_EQ(c.blueflame, 0u);
    EXPECT_EQ(c.wqe_reads, c.wqes);
}

// The lists of the direct path, too, are those of the program, though its threads write into one
// queue.
TEST_P(Features, ThreadsOfOneQueuePairKeepPAndQ) {
    rate.sharing = sharing_of(Category::kMpiThreads, kThreads);
    for (const std::uint32_t p : {32u, 1u}) {
        SCOPED_TRACE(p);
        const Counters before = stat_or_none();
        rate.post_list = p;
        MessageRateRun run(rate);
        run.warm_up();
        run.repeat();
        const Counters c = stat();
        EXPECT_EQ(c.wqes - before.wqes, run.messages());
        EXPECT_EQ((c.doorbells - before.doorbells + c.blueflame - before.blueflame) * p,
                  run.messages());
        EXPECT_EQ((c.cqes - before.cqes) * kSignalEvery, run.messages());
    }
}

TEST(NoBlueFlame, LeavesTheEnvironmentAsItWas) {
    MessageRate rate;
    rate.blueflame = false;
    { const MessageRateRun run(rate); }
    EXPECT_EQ(std::getenv("MLX5_SHUT_UP_BF"), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Each, Features, testing::Values(Path::kVerbs, Path::kDirect),
                         [](const auto& info) {
                             return info.param == Path::kVerbs ? "Verbs" : "Direct";
                         });

}  // namespace
}  // namespace heddle::bench
