// SPDX-License-Identifier: BSD-2-Clause
// Compressing a thread's events: nothing is lost or moved, and what repeats takes one line.
#include "softhca/record/run_length.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace softhca::record {
namespace {

struct Emitted {
    std::vector<EventRun> runs;
    std::uint64_t times;
};

class Compressed {
public:
    void add(const Event& event, std::uint64_t times = 1) {
        for (; times != 0; --times) {
            runs_.add(event, emit, this);
            given_.push_back(event);
        }
    }
    void flush() { runs_.flush(emit, this); }
    const std::vector<Emitted>& emitted() const { return emitted_; }
    const std::vector<Event>& given() const { return given_; }
    std::vector<Event> expanded() const {
        std::vector<Event> all;
        for (const Emitted& each : emitted_)
            for (std::uint64_t i = 0; i < each.times; ++i)
                for (const EventRun& run : each.runs)
                    all.insert(all.end(), run.times, run.event);
        return all;
    }

private:
    static void emit(void* to, std::span<const EventRun> runs, std::uint64_t times) {
        static_cast<Compressed*>(to)->emitted_.push_back({{runs.begin(), runs.end()}, times});
    }
    RunLength runs_;
    std::vector<Emitted> emitted_;
    std::vector<Event> given_;
};

Event post(std::uint32_t qpn, std::uint64_t bytes = 8) {
    Event event;
    event.kind = EventKind::kPost;
    event.object = qpn;
    event.entries = 1;
    event.bytes = bytes;
    return event;
}

Event poll(std::uint32_t cqes) {
    Event event;
    event.kind = EventKind::kPoll;
    event.object = 3;
    event.entries = cqes;
    return event;
}

TEST(RunLength, NothingGivesNothing) {
    Compressed events;
    events.flush();
    EXPECT_TRUE(events.emitted().empty());
}

TEST(RunLength, EqualEventsAreOneRun) {
    Compressed events;
    events.add(post(1), 1000);
    events.flush();
    ASSERT_EQ(events.emitted().size(), 1U);
    EXPECT_EQ(events.emitted()[0].times, 1U);
    EXPECT_EQ(events.emitted()[0].runs, (std::vector<EventRun>{{post(1), 1000}}));
}

TEST(RunLength, EachFieldDistinguishes) {
    Event other = post(1);
    other.blueflame = true;
    Event line = post(1);
    line.line = 4;
    Compressed events;
    for (const Event& event : {post(1), other, line, post(2), post(1, 9)})
        events.add(event);
    events.flush();
    EXPECT_EQ(events.emitted().size(), 5U);
    EXPECT_EQ(events.expanded(), events.given());
}

TEST(RunLength, ACycleIsEmittedOnce) {
    Compressed events;
    for (int round = 0; round < 500; ++round) {
        events.add(post(1), 32);
        events.add(poll(1));
    }
    events.flush();
    ASSERT_EQ(events.emitted().size(), 1U);
    EXPECT_EQ(events.emitted()[0].times, 500U);
    EXPECT_EQ(events.emitted()[0].runs, (std::vector<EventRun>{{post(1), 32}, {poll(1), 1}}));
}

TEST(RunLength, TheLongestCycle) {
    Compressed events;
    for (int round = 0; round < 10; ++round)
        for (std::uint32_t i = 0; i < kMostInCycle; ++i)
            events.add(post(i));
    events.flush();
    EXPECT_EQ(events.emitted().size(), 1U);
    EXPECT_EQ(events.expanded(), events.given());
}

TEST(RunLength, ALongerCycleIsNotFoundAndNothingIsLost) {
    Compressed events;
    for (int round = 0; round < 10; ++round)
        for (std::uint32_t i = 0; i <= kMostInCycle; ++i)
            events.add(post(i));
    events.flush();
    EXPECT_EQ(events.emitted().size(), 10 * (kMostInCycle + 1));
    EXPECT_EQ(events.expanded(), events.given());
}

// As a program does that fills its queue by two lists in turn, and then polls.
TEST(RunLength, AShortCycleMayBePartOfALongOne) {
    Compressed events;
    for (int round = 0; round < 400; ++round) {
        for (int turn = 0; turn < 5; ++turn) {
            events.add(post(1));
            events.add(post(2));
        }
        events.add(poll(5));
    }
    events.flush();
    EXPECT_EQ(events.expanded(), events.given());
    ASSERT_EQ(events.emitted().size(), 1U);
    EXPECT_EQ(events.emitted()[0].times, 400U);
}

TEST(RunLength, WhatComesBeforeAndAfterACycleKeepsItsPlace) {
    Compressed events;
    events.add(post(9));
    for (int round = 0; round < 7; ++round) {
        events.add(post(1));
        events.add(post(2));
        events.add(poll(2));
    }
    events.add(post(1));
    events.add(post(8));
    events.flush();
    EXPECT_EQ(events.emitted().size(), 4U);
    EXPECT_EQ(events.expanded(), events.given());
}

TEST(RunLength, AFlushDividesARun) {
    Compressed events;
    events.add(post(1), 3);
    events.flush();
    events.add(post(1), 2);
    events.flush();
    EXPECT_EQ(events.emitted().size(), 2U);
    EXPECT_EQ(events.expanded(), events.given());
}

TEST(RunLength, AnySequenceComesBack) {
    std::mt19937 generator(7);
    const auto random = [&] { return static_cast<std::uint32_t>(generator()); };
    for (int trial = 0; trial < 300; ++trial) {
        Compressed events;
        const unsigned kinds = 1 + random() % 4;
        const unsigned period = 1 + random() % 24;
        std::vector<std::uint32_t> pattern(period);
        for (std::uint32_t& each : pattern)
            each = random() % kinds;
        for (unsigned i = 0; i < 300; ++i) {
            const bool disturbed = random() % 40 == 0;
            events.add(post(disturbed ? 77 : pattern[i % period]), 1 + random() % 2);
            if (random() % 100 == 0) events.flush();
        }
        events.flush();
        ASSERT_EQ(events.expanded(), events.given()) << "trial " << trial;
        ASSERT_LE(events.emitted().size(), events.given().size());
    }
}

}  // namespace
}  // namespace softhca::record
