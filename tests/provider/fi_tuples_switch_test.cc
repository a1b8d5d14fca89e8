// SPDX-License-Identifier: BSD-2-Clause
// Streams of messages whose way changes while they are under way: a tuple gets its queue, and
// leaves it for any of the reasons there are. Nothing overtakes, nothing is lost or comes twice.
#include <functional>
#include <random>

#include "tests/provider/fi_tuples.h"

namespace heddle::test {
namespace {

constexpr std::uint64_t kWholeTag = 0x7f0000ff;

class TupleSwitch : public EachWay {
protected:
    // Messages before and behind whatever ends the queue, in all places among the receives.
    void change(const char* what, const std::function<void(std::uint64_t tag)>& end_queue) {
        std::mt19937 random(7);
        std::uint64_t tag = 0x100;
        for (int round = 0; round < 24; ++round, tag += 0x100) {
            SCOPED_TRACE(testing::Message() << what << ", round " << round);
            // Not warm: some go before there is a queue, and it begins between them.
            const int cold = round % 4 == 0 ? 0 : 6;
            ASSERT_NO_FATAL_FAILURE(warm(0, 1, tag, cold));
            const std::size_t size = round % 3 == 0 ? 100 : kLarge;
            const int early = round % 6, behind = static_cast<int>(random() % 40);
            for (int i = 0; i < early; ++i)
                post(1, 0, tag, kLarge);
            for (int i = 0; i < early + behind; ++i) {
                send(0, 1, tag, i % 5 == 4 ? 32769 : size);
                if (random() % 4 == 0) look();
            }
            ASSERT_NO_FATAL_FAILURE(end_queue(tag));
            for (int i = 0; i < 10; ++i) {
                send(0, 1, tag, i % 2 == 0 ? size : 32769);
                if (random() % 2 == 0) look();
            }
            receive_the_rest(tag);
            ASSERT_NO_FATAL_FAILURE(wait_for_all());
            ASSERT_NO_FATAL_FAILURE(check_all());
        }
    }
    // As many receives as there are messages.
    void receive_the_rest(std::uint64_t tag) {
        std::size_t receives = 0;
        for (const Posted& receive : posted_)
            receives += ((receive.tag ^ tag) & ~receive.ignore) == 0;
        for (; receives < streams_[{0, 1, tag}].size(); ++receives)
            post(1, 0, tag, kLarge);
    }
    void expect_tuples(bool again = true) {
        const auto counts = closed();
        EXPECT_EQ(counts["damaged"], 0);
        if (!by_tuples()) return;
        EXPECT_GT(counts["tuple_messages"], 0);
        EXPECT_GT(counts["tuple_blocking"], 0);
        if (again) {
            EXPECT_GT(counts["tuple_again"], 0);
        }
    }
};

TEST_P(TupleSwitch, ToAQueue) {
    open(2);
    change("nothing", [](std::uint64_t) {});
    expect_tuples(false);
}

TEST_P(TupleSwitch, ByAReceiveOfAnyTag) {
    open(2);
    change("any tag", [&](std::uint64_t tag) { post(1, 0, tag, kLarge, kWholeTag); });
    expect_tuples();
}

TEST_P(TupleSwitch, ByAReceiveFromAnybody) {
    open(2);
    change("from anybody", [&](std::uint64_t tag) {
        post(1, kAnybody, tag, kLarge).from = 0;  // the sender of its message
    });
    expect_tuples();
}

TEST_P(TupleSwitch, ByAProbe) {
    open(2);
    change("probe", [&](std::uint64_t tag) {
        fi_msg_tagged probe{};
        Posted found;
        found.ignore = kIgnored;
        probe.addr = end(1).to[0];
        probe.tag = tag;
        probe.ignore = kIgnored;
        probe.context = &found;
        ASSERT_EQ(fi_trecvmsg(end(1).station.ep.get(), &probe, FI_PEEK), 0);
        ASSERT_TRUE(until([&] { return found.done; }));
    });
    expect_tuples();
}

// As MPI_Improbe and MPI_Mrecv, until there is a message: it is the next of its stream, as no
// receive is posted.
TEST_P(TupleSwitch, ByAClaim) {
    open(2);
    for (std::uint64_t tag = 0x100; tag < 0x1000; tag += 0x100) {
        const std::size_t size = tag & 0x100 ? kLarge : 100;
        ASSERT_NO_FATAL_FAILURE(warm(0, 1, tag));
        for (int i = 0; i < 5; ++i)
            send(0, 1, tag, size);
        for (int i = 0; i < 3; ++i) {
            Posted& taken = posted_.emplace_back();
            taken.to = 1;
            taken.tag = tag;
            taken.room.resize(kLarge);
            iovec room{taken.room.data(), taken.room.size()};
            fi_msg_tagged message{};
            message.addr = i == 1 ? FI_ADDR_UNSPEC : end(1).to[0];
            message.tag = tag;
            message.ignore = i == 2 ? kWholeTag : kIgnored;
            message.context = &taken;
            fid_ep* const ep = end(1).station.ep.get();
            ASSERT_TRUE(until([&] {
                taken.done = false;
                return fi_trecvmsg(ep, &message, FI_PEEK | FI_CLAIM) == 0 &&
                       until([&] { return taken.done; }) && taken.error != FI_ENOMSG;
            }));
            ASSERT_EQ(taken.error, 0);
            taken.done = false;
            message.msg_iov = &room;
            message.iov_count = 1;
            ASSERT_EQ(fi_trecvmsg(ep, &message, FI_CLAIM), 0);
            ASSERT_NO_FATAL_FAILURE(wait(taken));
        }
        receive_the_rest(tag);
        ASSERT_NO_FATAL_FAILURE(wait_for_all());
        ASSERT_NO_FATAL_FAILURE(check_all());
    }
    expect_tuples();
}

TEST_P(TupleSwitch, ByACancelledReceive) {
    open(2);
    std::vector<Posted> last(1);
    change("cancel", [&](std::uint64_t tag) {
        // All that was sent has a receive, so that the cancelled one has no message.
        receive_the_rest(tag);
        ASSERT_NO_FATAL_FAILURE(wait_for_all());
        Posted gone;
        gone.room.resize(10);
        for (int i = 0; i < 2; ++i)
            ASSERT_EQ(fi_trecv(end(1).station.ep.get(), gone.room.data(), 10, nullptr, end(1).to[0],
                               tag, kIgnored, i == 0 ? &gone : &last[0]),
                      0);
        for (Posted* const each : {&gone, &last[0]}) {
            each->done = false;
            ASSERT_EQ(fi_cancel(end(1).station.ep.handle(), each), 0);
        }
        ASSERT_TRUE(until([&] { return gone.done && last[0].done; }));
        ASSERT_EQ(gone.error, FI_ECANCELED);
        ASSERT_EQ(last[0].error, FI_ECANCELED);
    });
    expect_tuples(false);
}

TEST_P(TupleSwitch, ByAShortReceive) {
    open(2);
    change("short", [&](std::uint64_t tag) { post(1, 0, tag, 50); });
    expect_tuples();
}

// The device takes only receives with one buffer.
TEST_P(TupleSwitch, ByAReceiveOfSeveralBuffers) {
    open(2);
    change("buffers", [&](std::uint64_t tag) {
        Posted& receive = posted_.emplace_back();
        receive.to = 1;
        receive.tag = tag;
        receive.room.resize(kLarge);
        const iovec buffers[2] = {{receive.room.data(), 50},
                                  {receive.room.data() + 50, kLarge - 50}};
        ASSERT_EQ(fi_trecvv(end(1).station.ep.get(), buffers, nullptr, 2, end(1).to[0], tag,
                            kIgnored, &receive),
                  0);
    });
    expect_tuples(false);
}

// A message with remote CQ data is none of a tuple without.
TEST_P(TupleSwitch, ByAMessageWithData) {
    open(2);
    change("data", [&](std::uint64_t tag) {
        SentMessage& message = sent_.emplace_back();
        message.to = 1;
        message.tag = tag;
        message.number = numbers_[{0, 1, tag}]++;
        message.bytes.resize(100);
        for (std::size_t i = 0; i < message.bytes.size(); ++i)
            message.bytes[i] = content(message, i);
        streams_[{0, 1, tag}].push_back(&message);
        ASSERT_EQ(fi_tsenddata(
                      end(0).station.ep.get(), message.bytes.data(), 100, nullptr, 99, end(0).to[1],
                      tag | std::uint64_t{message.number & 0x7f} << kNumberShift, &message),
                  0);
    });
    expect_tuples();
}

// There are two queues, and three tuples that want one: the one that is used least goes.
TEST_P(TupleSwitch, ByOtherTuples) {
    setenv("FI_HEDDLE_TUPLES", "2", 1);
    open(2);
    ASSERT_NO_FATAL_FAILURE(warm(0, 1, 0x100, 0));
    for (int round = 0; round < 30; ++round)
        for (std::uint64_t tag = 0x100; tag < 0x400; tag += 0x100) {
            // One of them rests.
            if (round / 10 == static_cast<int>(tag >> 8) - 1) continue;
            for (int i = 0; i < 5; ++i) {
                if (i % 2 == 0) post(1, 0, tag, kLarge);
                send(0, 1, tag, kLarge);
                if (i % 2 != 0) post(1, 0, tag, kLarge);
            }
            ASSERT_NO_FATAL_FAILURE(wait_for_all());
            ASSERT_NO_FATAL_FAILURE(check_all());
        }
    const auto counts = closed();
    EXPECT_LE(counts["tuple_queues_peak"], 2);
    if (!by_tuples()) return;
    EXPECT_GT(counts["tuple_messages"], 0);
    EXPECT_GT(counts["tuple_queues"], 2);
}

// Messages of other tags wait in the sender - its connection is full - when one of a tuple is sent:
// it comes behind them, though it need not wait there.
TEST_P(TupleSwitch, KeepsThePlaceBehindMessagesThatWait) {
    setenv("FI_HEDDLE_SEND_DEPTH", "16", 1);
    open(2);
    std::uint64_t tag = 0x100;
    for (int round = 0; round < 10; ++round, tag += 0x100) {
        SCOPED_TRACE(round);
        ASSERT_NO_FATAL_FAILURE(warm(0, 1, tag));
        constexpr int kMany = 100;
        std::vector<std::uint64_t> order;
        for (int i = 0; i < kMany; ++i) {
            send(0, 1, tag | 1, 1000);
            order.push_back(tag | 1);
            if (i % 10 != 9) continue;
            send(0, 1, tag, round % 2 == 0 ? 100 : kLarge);
            order.push_back(tag);
        }
        for (std::size_t i = 0; i < order.size(); ++i)
            post(1, 0, tag, kLarge, kWholeTag);
        ASSERT_NO_FATAL_FAILURE(wait_for_all());
        for (std::size_t i = 0; i < order.size(); ++i)
            ASSERT_EQ(posted_[i].message_tag & ~kIgnored, order[i]) << i;
        ASSERT_NO_FATAL_FAILURE(check_all());
    }
    expect_tuples();
}

INSTANTIATE_TEST_SUITE_P(By, TupleSwitch,
                         testing::Values("tupleq", "tupleq_verbs", "auto", "rget", "rput"),
                         name_of_way);

}  // namespace
}  // namespace heddle::test
