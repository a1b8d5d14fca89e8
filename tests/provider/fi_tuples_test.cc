// SPDX-License-Identifier: BSD-2-Clause
// What MPI promises of messages, where the device matches them by tuple queues: whatever order
// receives are posted in, whoever waits for whom at the device, nothing hangs and nothing
// overtakes. The same by the other ways.
#include <random>

#include "tests/provider/fi_tuples.h"

namespace heddle::test {
namespace {

class Tuples : public EachWay {};

constexpr std::size_t kTupleSizes[] = {0, 8, 100, 1000, 8192, 8193, 32769, 1 << 20};

TEST_P(Tuples, TakeAllSizes) {
    open(2);
    ASSERT_NO_FATAL_FAILURE(warm(0, 1, 5));
    for (const std::size_t size : kTupleSizes)
        for (int late = 0; late < 2; ++late) {
            SCOPED_TRACE(testing::Message() << size << " bytes, late: " << late);
            for (int i = 0; i < 3; ++i) {
                if (late == 0) post(1, 0, 5, size);
                send(0, 1, 5, size, late != 0 && size == 8 && i == 1);
                look();
                if (late != 0) post(1, 0, 5, size);
            }
            ASSERT_NO_FATAL_FAILURE(wait_for_all());
            ASSERT_NO_FATAL_FAILURE(check_all());
        }
    const auto counts = closed();
    if (!by_tuples()) return;
    EXPECT_GE(counts["tuple_messages"], 6 * std::size(kTupleSizes));
    EXPECT_GT(counts["tuple_blocking"], 0);
    EXPECT_GT(counts["tuple_copied"], 0);
    EXPECT_EQ(counts["tuple_messages"], counts["tuple_received"]);
    EXPECT_EQ(counts["tuple_again"], 0);
}

// Some receives are there, some come with their messages, some after; more than a queue holds.
TEST_P(Tuples, WhereReceivesComeBeforeBetweenAndAfter) {
    open(2);
    ASSERT_NO_FATAL_FAILURE(warm(0, 1, 5));
    constexpr int kMany = 100;
    for (const int before : {0, 1, 10, kMany}) {
        SCOPED_TRACE(before);
        int there = 0;
        for (; there < before; ++there)
            post(1, 0, 5, kLarge);
        for (int i = 0; i < kMany; ++i) {
            send(0, 1, 5, i % 3 == 0 ? 8 : kLarge);
            if (i % 4 == 0 && there < kMany) {
                post(1, 0, 5, kLarge);
                ++there;
            }
            if (i % 5 == 0) look();
        }
        for (; there < kMany; ++there)
            post(1, 0, 5, kLarge);
        ASSERT_NO_FATAL_FAILURE(wait_for_all());
        ASSERT_NO_FATAL_FAILURE(check_all());
    }
    const auto counts = closed();
    if (!by_tuples()) return;
    EXPECT_GE(counts["tuple_messages"], 4 * kMany);
    EXPECT_GT(counts["tuple_blocking"], 0);
    EXPECT_LT(counts["tuple_blocking"], counts["tuple_messages"]);
}

// Each to the next, and nobody posts a receive before all have sent.
TEST_P(Tuples, InARingOfBlockedSends) {
    constexpr std::size_t kEnds = 4;
    open(kEnds);
    for (std::size_t i = 0; i < kEnds; ++i)
        ASSERT_NO_FATAL_FAILURE(warm(i, (i + 1) % kEnds, 5));
    for (int round = 0; round < 20; ++round) {
        for (std::size_t i = 0; i < kEnds; ++i)
            send(i, (i + 1) % kEnds, 5, round % 2 == 0 ? kLarge : 100'000);
        for (int i = 0; i < 10; ++i)
            look();
        for (std::size_t i = 0; i < kEnds; ++i)
            post((i + 1) % kEnds, i, 5, 100'000);
        ASSERT_NO_FATAL_FAILURE(wait_for_all());
        ASSERT_NO_FATAL_FAILURE(check_all());
    }
    const auto counts = closed();
    if (by_tuples()) {
        EXPECT_GT(counts["tuple_blocking"], 0);
    }
}

TEST_P(Tuples, BetweenAllPairs) {
    constexpr std::size_t kEnds = 4;
    constexpr std::uint64_t kTags = 3;
    open(kEnds);
    const auto each = [&](const auto& what) {
        for (std::size_t from = 0; from < kEnds; ++from)
            for (std::size_t to = 0; to < kEnds; ++to)
                for (std::uint64_t tag = 0; tag < kTags; ++tag)
                    if (!HasFatalFailure()) what(from, to, tag);
    };
    each([&](std::size_t from, std::size_t to, std::uint64_t tag) { warm(from, to, tag); });
    std::mt19937 random(1);
    for (int round = 0; round < 10; ++round) {
        std::vector<Stream> streams;
        each([&](std::size_t from, std::size_t to, std::uint64_t tag) {
            for (int i = 0; i < 2; ++i) {
                send(from, to, tag, kLarge);
                streams.emplace_back(from, to, tag);
            }
        });
        look();
        std::shuffle(streams.begin(), streams.end(), random);
        for (const auto& [from, to, tag] : streams)
            post(to, from, tag, kLarge);
        ASSERT_NO_FATAL_FAILURE(wait_for_all());
        ASSERT_NO_FATAL_FAILURE(check_all());
    }
    const auto counts = closed();
    if (!by_tuples()) return;
    EXPECT_GT(counts["tuple_blocking"], 0);
    EXPECT_GT(counts["tuple_held"], 0);
}

// Both send, and receive when their sends of small messages have ended, as MPI_Send of both does.
TEST_P(Tuples, HeadToHead) {
    open(2);
    ASSERT_NO_FATAL_FAILURE(warm(0, 1, 5));
    ASSERT_NO_FATAL_FAILURE(warm(1, 0, 5));
    for (int round = 0; round < 20; ++round) {
        for (const std::size_t from : {0u, 1u}) {
            send(from, 1 - from, 5, 1000);
            send(from, 1 - from, 5, 8000);
            send(from, 1 - from, 5, 1);
        }
        for (const SentMessage& message : sent_)
            ASSERT_NO_FATAL_FAILURE(wait(message));
        for (const std::size_t from : {0u, 1u})
            send(from, 1 - from, 5, 100'000);
        for (int i = 0; i < 4; ++i)
            for (const std::size_t from : {0u, 1u})
                post(1 - from, from, 5, 100'000);
        ASSERT_NO_FATAL_FAILURE(wait_for_all());
        ASSERT_NO_FATAL_FAILURE(check_all());
    }
    const auto counts = closed();
    if (!by_tuples()) return;
    EXPECT_GT(counts["tuple_blocking"], 0);
    EXPECT_GT(counts["tuple_copied"], 0);
}

// A receive that is too short has the beginning of its message, and an error; those before and
// behind it have theirs.
TEST_P(Tuples, TruncationHurtsItsReceiveAlone) {
    open(3);
    constexpr int kMany = 20;
    for (int late = 0; late < 3; ++late) {
        const auto tag = static_cast<std::uint64_t>(5 + late);
        ASSERT_NO_FATAL_FAILURE(warm(0, 1, tag));
        ASSERT_NO_FATAL_FAILURE(warm(2, 1, tag));
        for (const int bad : {0, 7, kMany - 1}) {
            SCOPED_TRACE(testing::Message() << "late: " << late << ", the short one: " << bad);
            const auto room = [&](int i) { return i == bad ? 5000 : kLarge; };
            for (int i = 0; i < kMany; ++i) {
                if (late == 0) post(1, 0, tag, room(i));
                if (late == 0) post(1, 2, tag, kLarge);
            }
            for (int i = 0; i < kMany; ++i) {
                send(0, 1, tag, kLarge);
                send(2, 1, tag, kLarge);
                if (late == 1) post(1, 0, tag, room(i));
                if (late == 1) post(1, 2, tag, kLarge);
            }
            look();
            for (int i = 0; i < kMany && late == 2; ++i) {
                post(1, 0, tag, room(i));
                post(1, 2, tag, kLarge);
            }
            ASSERT_NO_FATAL_FAILURE(wait_for_all());
            int cut = 0;
            for (const Posted& receive : posted_)
                cut += receive.error == FI_ETRUNC;
            EXPECT_EQ(cut, 1);
            ASSERT_NO_FATAL_FAILURE(check_all());
        }
    }
    const auto counts = closed();
    EXPECT_EQ(counts["damaged"], 0);
    if (!by_tuples()) return;
    EXPECT_GT(counts["tuple_messages"], 0);
    EXPECT_GT(counts["tuple_again"], 0);
}

// A receive that is cancelled while its message comes ends once: with it or without, and then the
// next receive has it.
TEST_P(Tuples, CancelRaces) {
    open(2);
    int cancelled = 0, done = 0;
    std::mt19937 random(3);
    for (int round = 0; round < 300; ++round) {
        const auto tag = static_cast<std::uint64_t>(5 + round / 10);
        if (round % 10 == 0) {
            ASSERT_NO_FATAL_FAILURE(warm(0, 1, tag));
        }
        const std::size_t size = round % 3 == 0 ? 100 : kLarge;
        const unsigned when = random() % 4;
        if (when == 0) send(0, 1, tag, size);
        Posted& first = post(1, 0, tag, kLarge);
        Posted& second = post(1, 0, tag, kLarge);
        if (when == 1) send(0, 1, tag, size);
        if (when == 1 && random() % 2 == 0) look();
        fi_cancel(end(1).station.ep.handle(), &first);
        if (when == 2) look();
        if (when >= 2) send(0, 1, tag, size);
        ASSERT_NO_FATAL_FAILURE(wait(first));
        if (first.error == FI_ECANCELED) {
            ++cancelled;
        } else {
            ++done;
            ASSERT_NO_FATAL_FAILURE(check_next(first));
            send(0, 1, tag, size);
        }
        ASSERT_NO_FATAL_FAILURE(wait(second));
        ASSERT_NO_FATAL_FAILURE(check_next(second));
        ASSERT_NO_FATAL_FAILURE(wait_for_all());
        check_sent();
        forget();
    }
    EXPECT_GT(cancelled, 0);
    EXPECT_GT(done, 0);
    const auto counts = closed();
    if (by_tuples()) {
        EXPECT_GT(counts["tuple_messages"], 0);
    }
}

// A communicator is some bits of the tag. They come and go, and their bits come again.
TEST_P(Tuples, ContextsThatAreUsedAgain) {
    setenv("FI_HEDDLE_TUPLES", "16", 1);
    open(2);
    ASSERT_NO_FATAL_FAILURE(warm(0, 1, 3, 0));
    for (std::uint64_t i = 0; i < 10'000; ++i) {
        // Some are in use for long, others come and go.
        const std::uint64_t tag = (i % 8 == 7 ? i % 100 + 8 : i % 8) << 40 | 3;
        const std::size_t size = i % 50 == 0 ? kLarge : 64;
        const bool late = i % 7 == 0;
        for (int n = 0; n < 3; ++n) {
            if (!late) post(1, 0, tag, size);
            send(0, 1, tag, size);
            if (late) post(1, 0, tag, size);
        }
        ASSERT_NO_FATAL_FAILURE(wait_for_all());
        ASSERT_NO_FATAL_FAILURE(check_all());
    }
    const auto counts = closed();
    EXPECT_LE(counts["tuple_queues_peak"], 16);
    if (!by_tuples()) return;
    EXPECT_GT(counts["tuple_messages"], 0);
    EXPECT_GT(counts["tuple_queues"], 16) << "none made room for another";
}

INSTANTIATE_TEST_SUITE_P(By, Tuples,
                         testing::Values("tupleq", "tupleq_verbs", "auto", "rget", "rput"),
                         name_of_way);

// Sends of tags in one order, receives in the other: with fewer queue pairs than tuples some wait
// in the sender until there is credit.
class ManyTuples : public TupleTest,
                   public testing::WithParamInterface<std::tuple<const char*, const char*>> {
protected:
    ManyTuples() : TupleTest(std::get<0>(GetParam())) {
        setenv("FI_HEDDLE_TUPLE_QPS", std::get<1>(GetParam()), 1);
        setenv("FI_HEDDLE_TUPLES", "1000", 1);
    }
};

TEST_P(ManyTuples, ReceivedInTheOtherOrder) {
    constexpr std::uint64_t kTags = 1000;
    open(2);
    for (std::uint64_t tag = 0; tag < kTags; ++tag)
        ASSERT_NO_FATAL_FAILURE(warm(0, 1, tag));
    for (const std::size_t size : {kLarge, std::size_t{100}}) {
        for (std::uint64_t tag = 0; tag < kTags; ++tag)
            send(0, 1, tag, size);
        for (int i = 0; i < 10; ++i)
            look();
        for (std::uint64_t tag = kTags; tag-- > 0;) {
            post(1, 0, tag, kLarge);
            // Some one after the other, as MPI_Recv does.
            if (tag % 5 == 0) {
                ASSERT_NO_FATAL_FAILURE(wait(posted_.back()));
            }
        }
        ASSERT_NO_FATAL_FAILURE(wait_for_all());
        ASSERT_NO_FATAL_FAILURE(check_all());
    }
    const auto counts = closed();
    EXPECT_LE(counts["tuple_queues_peak"], 1000);
    if (!by_tuples()) return;
    EXPECT_GE(counts["tuple_messages"], 2 * kTags);
    EXPECT_EQ(counts["tuple_queues_peak"], kTags);
    EXPECT_GT(counts["tuple_blocking"], 0);
    EXPECT_GT(counts["tuple_held"], 0);
}

INSTANTIATE_TEST_SUITE_P(By, ManyTuples,
                         testing::Combine(testing::Values("tupleq", "auto", "rget", "rput"),
                                          testing::Values("1", "2", "64")),
                         [](const auto& info) {
                             return std::string(std::get<0>(info.param)) + "_" +
                                    std::get<1>(info.param);
                         });

class HugeMessage : public TupleTest {
protected:
    HugeMessage() : TupleTest("tupleq") {}
};

// More than the device takes at once, on a tuple that has a queue: it goes by the other way, those
// behind it, too, and there is a queue again later. Takes gigabytes.
TEST_F(HugeMessage, OnATuple) {
    if (std::getenv("HEDDLE_TEST_HUGE") == nullptr) GTEST_SKIP() << "HEDDLE_TEST_HUGE is not set";
    constexpr std::size_t kHuge = (std::size_t{1} << 30) + 70'000;
    open(2);
    ASSERT_NO_FATAL_FAILURE(warm(0, 1, 5));
    for (const std::size_t size : {kLarge, kHuge, kLarge, std::size_t{8}}) {
        post(1, 0, 5, size);
        send(0, 1, 5, size);
    }
    ASSERT_NO_FATAL_FAILURE(wait_for_all());
    ASSERT_NO_FATAL_FAILURE(check_all());
    ASSERT_NO_FATAL_FAILURE(warm(0, 1, 5, 10));
    const auto counts = closed();
    EXPECT_GT(counts["tuple_messages"], 0);
    EXPECT_GE(counts["tuple_queues"], 2);
}

}  // namespace
}  // namespace heddle::test
