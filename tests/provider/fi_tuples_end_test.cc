// SPDX-License-Identifier: BSD-2-Clause
// What becomes of tuple queues when an endpoint is closed, that queue pairs which had to be
// flushed serve again, and that there are never more objects than the options allow.
#include <thread>

#include "tests/endpoint/device_stat.h"
#include "tests/provider/fi_tuples.h"

namespace heddle::test {
namespace {

// Each endpoint has a context of its own, and so connections: those to one that is closed may
// break.
class TupleEnds : public EachWay {
protected:
    TupleEnds() { setenv("FI_HEDDLE_ENDPOINTS", "mpi-everywhere", 1); }
    // Somebody else's messages.
    void others_go_on(std::size_t from, std::size_t to) {
        for (int i = 0; i < 3; ++i) {
            Posted& receive = post(to, from, 5, kLarge);
            send(from, to, 5, kLarge);
            ASSERT_NO_FATAL_FAILURE(wait(receive));
            ASSERT_NO_FATAL_FAILURE(check_next(receive));
            ASSERT_NO_FATAL_FAILURE(wait(sent_.back()));
            ASSERT_EQ(sent_.back().error, 0);
        }
    }
    void close_while_others_look(std::size_t which) {
        auto closing = std::move(ends_[which]);
        std::atomic<bool> done{false};
        std::thread closer([&] {
            closing.reset();
            done = true;
        });
        EXPECT_TRUE(until([&] { return done.load(); }));
        closer.join();
    }
};

TEST_P(TupleEnds, OfAReceiverWithMessagesAtItsQueue) {
    open(3);
    for (const std::size_t to : {1u, 2u})
        ASSERT_NO_FATAL_FAILURE(warm(0, to, 5));
    for (int i = 0; i < 5; ++i)
        send(0, 1, 5, kLarge);
    for (int i = 0; i < 100; ++i)
        look();
    close_while_others_look(1);
    for (int i = 0; i < 5; ++i) {
        ASSERT_NO_FATAL_FAILURE(wait(sent_[static_cast<std::size_t>(i)]));
        EXPECT_NE(sent_[static_cast<std::size_t>(i)].error, 0);
    }
    others_go_on(0, 2);
}

// Nothing is under way that could fail: there is neither credit nor a queue that may block, and
// none can be connected any more.
TEST_P(TupleEnds, OfAReceiverBeforeMessagesForIt) {
    open(3);
    for (const std::size_t to : {1u, 2u})
        ASSERT_NO_FATAL_FAILURE(warm(0, to, 5));
    close_while_others_look(1);
    for (int i = 0; i < 5; ++i)
        send(0, 1, 5, kLarge);
    for (int i = 0; i < 5; ++i) {
        ASSERT_NO_FATAL_FAILURE(wait(sent_[static_cast<std::size_t>(i)]));
        EXPECT_NE(sent_[static_cast<std::size_t>(i)].error, 0);
    }
    others_go_on(0, 2);
}

// A receiver closes with receives at its tuple queue. The sender learns of it before they go, so a
// later message ends with an error.
TEST_P(TupleEnds, OfAReceiverThatWaits) {
    open(3);
    for (const std::size_t to : {1u, 2u})
        ASSERT_NO_FATAL_FAILURE(warm(0, to, 5));
    for (int i = 0; i < 5; ++i)
        post(1, 0, 5, kLarge);
    for (int i = 0; i < 100; ++i)
        look();
    close_while_others_look(1);
    SentMessage& message = send(0, 1, 5, kLarge);
    ASSERT_NO_FATAL_FAILURE(wait(message));
    EXPECT_NE(message.error, 0);
    others_go_on(0, 2);
}

// A sender closes with messages under way. The receiver, which looks meanwhile, loses none.
TEST_P(TupleEnds, OfASenderWithMessagesUnderWay) {
    open(3);
    for (const std::size_t from : {0u, 2u})
        ASSERT_NO_FATAL_FAILURE(warm(from, 1, 5));
    for (int i = 0; i < 5; ++i)
        send(0, 1, 5, kLarge);
    for (int i = 0; i < 100; ++i)
        look();
    close_while_others_look(0);
    others_go_on(2, 1);
}

// A receive that is at the queue of a sender that is gone can be cancelled.
TEST_P(TupleEnds, OfASenderWhoseReceivesAreCancelled) {
    open(3);
    for (const std::size_t from : {0u, 2u})
        ASSERT_NO_FATAL_FAILURE(warm(from, 1, 5));
    for (int i = 0; i < 40; ++i)
        post(1, 0, 5, kLarge);
    look();
    close_while_others_look(0);
    others_go_on(2, 1);
    for (int i : {39, 0, 20})
        EXPECT_EQ(fi_cancel(end(1).station.ep.handle(), &posted_[static_cast<std::size_t>(i)]), 0);
    for (int i : {39, 0, 20}) {
        const Posted& receive = posted_[static_cast<std::size_t>(i)];
        ASSERT_NO_FATAL_FAILURE(wait(receive));
        EXPECT_EQ(receive.error, FI_ECANCELED) << fi_strerror(receive.error);
    }
    others_go_on(2, 1);
}

// Two endpoints of one domain share a connection, which was made for the one that is closed.
TEST_P(TupleEnds, OfASenderThatHasANeighbour) {
    open(3);
    auto neighbour = std::make_unique<Station>(end(0).world);
    neighbour->enable();
    const fi_addr_t to_1 = neighbour->add(end(1).station), from = end(1).station.add(*neighbour);
    std::vector<char> bytes(kLarge, 'x'), room(kLarge);
    fid_ep* const receiver = end(1).station.ep.get();
    Posted receive;
    const auto pass = [&] {
        receive.done = false;
        ASSERT_EQ(fi_trecv(receiver, room.data(), kLarge, nullptr, from, 5, kIgnored, &receive), 0);
        ASSERT_EQ(fi_tsend(neighbour->ep.get(), bytes.data(), kLarge, nullptr, to_1, 5, nullptr),
                  0);
        bool sent = false;
        ASSERT_TRUE(until([&] {
            fi_cq_tagged_entry entry{};
            sent = sent || fi_cq_read(neighbour->transmit.get(), &entry, 1) == 1;
            return receive.done && sent;
        }));
        ASSERT_EQ(receive.error, 0);
    };
    for (int i = 0; i < 10; ++i) {
        ASSERT_NO_FATAL_FAILURE(pass());
        ASSERT_NO_FATAL_FAILURE(warm(0, 1, 5, 1));
    }
    neighbour.reset();
    others_go_on(0, 1);
    others_go_on(1, 0);
}

// One queue pair, which is flushed again and again: each time it serves the next tuple.
TEST_P(TupleEnds, OfAQueuePair) {
    constexpr int kRounds = 20;
    setenv("FI_HEDDLE_TUPLE_QPS", "1", 1);
    open(2);
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
        const std::uint64_t tag = round << 8;
        ASSERT_NO_FATAL_FAILURE(warm(0, 1, tag));
        for (int i = 0; i < 3; ++i)
            send(0, 1, tag, kLarge);
        const auto enough = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
        while (std::chrono::steady_clock::now() < enough)
            look();
        post(1, 0, tag, kLarge, kIgnored | 1);
        for (int i = 0; i < 2; ++i)
            post(1, 0, tag, kLarge);
        ASSERT_NO_FATAL_FAILURE(wait_for_all());
        ASSERT_NO_FATAL_FAILURE(check_all());
    }
    const auto counts = closed();
    if (!by_tuples()) return;
    EXPECT_GE(counts["tuple_blocking"], 3 * kRounds / 2) << "it does not come back";
    EXPECT_GE(counts["tuple_again"], kRounds);
}

INSTANTIATE_TEST_SUITE_P(By, TupleEnds,
                         testing::Values("tupleq", "tupleq_verbs", "auto", "rget", "rput"),
                         name_of_way);

class TupleLimits : public TupleTest {
protected:
    TupleLimits() : TupleTest("tupleq") {
        setenv("FI_HEDDLE_TUPLES", "4", 1);
        setenv("FI_HEDDLE_TUPLE_QPS", "2", 1);
        setenv("FI_HEDDLE_PROCESS_TUPLES", "6", 1);
    }
    static std::uint32_t objects(const char* kind) { return device_stat()[kind]; }
};

// Two endpoints with receives of more tuples than there may be queues: of each, of the process, and
// of queue pairs.
TEST_F(TupleLimits, AreKept) {
    open(3);
    // Connections both ways, before anything is counted.
    for (const std::size_t to : {1u, 2u}) {
        ASSERT_NO_FATAL_FAILURE(warm(0, to, 1, 1));
        ASSERT_NO_FATAL_FAILURE(warm(to, 0, 1, 1));
    }
    const std::uint32_t qps = objects("qps"), srqs = objects("srqs"), cqs = objects("cqs");
    for (int round = 0; round < 3; ++round)
        for (std::uint64_t tag = 10; tag < 40; ++tag)
            for (const std::size_t to : {1u, 2u})
                ASSERT_NO_FATAL_FAILURE(warm(0, to, tag, 3));
    EXPECT_LE(objects("srqs"), srqs + 6);
    EXPECT_GT(objects("srqs"), srqs + 3);
    for (std::uint64_t tag = 10; tag < 40; ++tag)
        for (const std::size_t to : {1u, 2u})
            send(0, to, tag, kLarge);
    const auto enough = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (std::chrono::steady_clock::now() < enough)
        look();
    // Each a pair: one that sends, one that is sent to.
    EXPECT_LE(objects("qps"), qps + 2 * 2 * 2);
    EXPECT_GT(objects("qps"), qps);
    EXPECT_LE(objects("cqs"), cqs + 3);
    for (std::uint64_t tag = 10; tag < 40; ++tag)
        for (const std::size_t to : {1u, 2u})
            post(to, 0, tag, kLarge);
    ASSERT_NO_FATAL_FAILURE(wait_for_all());
    ASSERT_NO_FATAL_FAILURE(check_all());
    const auto counts = closed();
    EXPECT_GT(counts["tuple_blocking"], 0);
    EXPECT_LE(counts["tuple_queues_peak"], 8);
}

// Those that rest make room, however many tags come: no queue is left behind.
TEST_F(TupleLimits, OfManyTags) {
    open(2);
    const std::uint32_t srqs = objects("srqs");
    for (std::uint64_t tag = 0; tag < 300; ++tag)
        ASSERT_NO_FATAL_FAILURE(warm(0, 1, tag, 8));
    EXPECT_LE(objects("srqs"), srqs + 4);
    const auto counts = closed();
    EXPECT_LE(counts["tuple_queues_peak"], 4);
    EXPECT_GT(counts["tuple_queues"], 20) << "the first stay";
}

}  // namespace
}  // namespace heddle::test
