// SPDX-License-Identifier: BSD-2-Clause
// The message-rate experiment between two processes makes the device do exactly what the paper's
// program does, by the counters of the software HCA. Postlist changes the doorbells, BlueFlame
// whether the register carries the WQE, Inlining the reads of payload, Unsignaled the completions.
#include "experiments/message_rate.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <functional>

#include "experiments/message_rate_peer.h"
#include "tests/bench/device_counters.h"

namespace heddle::bench {
namespace {

constexpr std::uint32_t kThreads = 2;

// In two processes; `body` in the one that sends.
void with_peer(const std::function<void(Team&)>& body) {
    const int status = run_with_rate_peer({}, "", [&](Team& team) {
        body(team);
        return 0;
    });
    EXPECT_EQ(status, 0) << "the other process";
}

class Features : public testing::TestWithParam<Path> {
protected:
    Features() {
        rate.path = GetParam();
        rate.threads = kThreads;
        rate.sharing = sharing_of(Category::kDynamic, kThreads);
        rate.seconds = 0.02;
    }
    // What the paper's program does with these parameters, whatever threads share: a doorbell for p
    // messages, a completion for q, and lists of one by BlueFlame.
    void expect_as_the_paper() const {
        with_peer([&](Team& team) {
            MessageRateRun run(rate, team);
            run.warm_up();
            EXPECT_GT(run.repeat().per_second, 0);
            const Counters c = fabric_counters();
            const std::uint64_t messages = run.messages();
            const bool by_blueflame = rate.blueflame && rate.post_list == 1;
            EXPECT_GT(messages, 100u);
            EXPECT_EQ(c.wqes, messages);
            EXPECT_EQ(c.payload_writes, messages) << "each message arrives";
            EXPECT_EQ(c.cqes * rate.signal_every, messages);
            EXPECT_EQ((by_blueflame ? c.blueflame : c.doorbells) * rate.post_list, messages);
            EXPECT_EQ(by_blueflame ? c.doorbells : c.blueflame, 0u);
            EXPECT_EQ(c.wqe_reads, by_blueflame ? 0 : messages);
            EXPECT_EQ(c.payload_reads, rate.inlining ? 0 : messages);
        });
    }

    MessageRate rate;
};

TEST_P(Features, All) { expect_as_the_paper(); }

TEST_P(Features, WithoutPostlistEachEntryGoesByBlueFlame) {
    rate.post_list = 1;
    expect_as_the_paper();
}

TEST_P(Features, WithoutInliningEachPayloadIsRead) {
    rate.inlining = false;
    expect_as_the_paper();
}

TEST_P(Features, WithoutUnsignaledEachMessageCompletes) {
    rate.signal_every = 1;
    expect_as_the_paper();
}

TEST_P(Features, WithoutBlueFlameOnlyDoorbells) {
    rate.blueflame = false;
    expect_as_the_paper();
}

TEST_P(Features, WithoutPostlistAndBlueFlameADoorbellForEach) {
    rate.post_list = 1;
    rate.blueflame = false;
    expect_as_the_paper();
}

TEST_P(Features, ACompletionForAWholeDepth) {
    rate.signal_every = rate.depth;
    expect_as_the_paper();
}

// The lists of the direct path, too, are those of the program, though its threads write into one
// queue.
TEST_P(Features, ThreadsOfOneQueuePairKeepPAndQ) {
    rate.threads = 4;
    rate.sharing = sharing_of(Category::kMpiThreads, rate.threads);
    for (const std::uint32_t p : {32u, 1u})
        for (const std::uint32_t q : {64u, 1u}) {
            SCOPED_TRACE(testing::Message() << "p " << p << ", q " << q);
            rate.post_list = p;
            rate.signal_every = q;
            expect_as_the_paper();
        }
}

TEST_P(Features, ThreadsOfOneCompletionQueueKeepPAndQ) {
    rate.threads = 4;
    rate.sharing = sharing_of(Category::kDynamic, rate.threads);
    rate.sharing.cq = rate.threads;
    expect_as_the_paper();
    rate.signal_every = 1;
    expect_as_the_paper();
}

// The messages arrive in the memory of another process: it has the QPs that are written to.
TEST(RatePeer, HasTheOtherHalfOfTheQueuePairs) {
    with_peer([](Team& team) {
        MessageRate rate;
        rate.threads = 3;
        rate.sharing = sharing_of(Category::kDynamic, rate.threads);
        {
            const MessageRateRun one(rate, team), two(rate, team);
            const auto all = fabric_stat()["processes"];
            ASSERT_EQ(all.size(), 2u);
            for (const auto& process : all)
                EXPECT_EQ(process["qps"].get<unsigned>(), 6u);
        }
        // A closed run gives back what it had there; the answer to the next shows that it is done.
        const MessageRateRun next(rate, team);
        const auto all = fabric_stat();
        for (const auto& process : all["processes"])
            EXPECT_EQ(process["qps"].get<unsigned>(), 3u);
    });
}

TEST(RatePeer, SurvivesWhatASenderMayNotHave) {
    with_peer([](Team& team) {
        MessageRate rate;
        rate.threads = 2;
        rate.sharing = sharing_of(Category::kDynamic, rate.threads);
        rate.depth = 1u << 30;
        EXPECT_THROW(MessageRateRun(rate, team), VerbsError) << "the device has no such queue";
        rate.depth = 128;
        rate.bytes = 1u << 31;
        rate.inlining = false;
        rate.buffer_alignment = 8192;
        EXPECT_THROW(MessageRateRun(rate, team), VerbsError) << "neither has such buffers";
        rate.bytes = 2;
        rate.buffer_alignment = 64;
        MessageRateRun run(rate, team);
        EXPECT_GT(run.repeat().per_second, 0);
    });
}

TEST(RatePeer, EndsWithASenderThatFails) {
    EXPECT_THROW(with_peer([](Team&) { throw VerbsError("a test", EINVAL); }), VerbsError);
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
