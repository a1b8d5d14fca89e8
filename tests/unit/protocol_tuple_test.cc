// SPDX-License-Identifier: BSD-2-Clause
// The parts of tuple queues without a device: immediates, which tags repeat, and receives and
// messages that return to the matcher in their order.
#include "protocol/tupleq/tuple.h"

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/tag/matcher_tables.h"

namespace heddle::protocol {
namespace {

constexpr std::uint64_t kIgnoredByMpich = 0x00c0000000000000, kScattered = 0x8000100000000401;

TEST(TupleImmediate, CarriesIgnoredBitsAndTheNumber) {
    for (const std::uint64_t mask :
         {std::uint64_t{0}, kIgnoredByMpich, kScattered, std::uint64_t{0xff}}) {
        ASSERT_TRUE(TupleImmediate::possible(mask));
        // All values of the ignored bits.
        for (std::uint64_t bits = mask;; bits = (bits - 1) & mask) {
            const std::uint64_t plain = 0x0123456789abcdef & ~mask;
            for (const std::uint32_t number : {0u, 1u, 0xffffffu, 0x1000000u, ~0u}) {
                const std::uint32_t immediate = TupleImmediate::put(plain | bits, mask, number);
                EXPECT_EQ(TupleImmediate::tag_of(immediate, plain, mask), plain | bits);
                EXPECT_TRUE(TupleImmediate::is_number(immediate, number));
                EXPECT_TRUE(TupleImmediate::is_number(immediate, number + 0x1000000));
                EXPECT_FALSE(TupleImmediate::is_number(immediate, number + 1));
                EXPECT_FALSE(TupleImmediate::is_number(immediate, number - 1));
            }
            if (bits == 0) break;
        }
    }
    EXPECT_TRUE(TupleImmediate::possible(0xff00));
    EXPECT_FALSE(TupleImmediate::possible(0x1ff00));
    EXPECT_FALSE(TupleImmediate::possible(~std::uint64_t{0}));
    // Bits outside of the mask do not matter.
    EXPECT_EQ(TupleImmediate::tag_of(0xff000000, 5, kIgnoredByMpich), 5 | kIgnoredByMpich);
}

TEST(TupleFilter, SeesWhatRepeats) {
    TupleFilter filter;
    const TupleKey key{1, 2}, other{1, 3};
    EXPECT_FALSE(filter.use(key, 3));
    EXPECT_FALSE(filter.use(other, 3));
    EXPECT_FALSE(filter.use(key, 3));
    EXPECT_FALSE(filter.use(other, 3));
    EXPECT_TRUE(filter.use(key, 3));
}

// Each queue that was closed early doubles the number of repeats; each that lasted halves it.
TEST(TupleFilter, HasPatience) {
    TupleFilter filter;
    const TupleKey key{1, 2};
    const auto uses = [&] {
        int count = 1;
        while (!filter.use(key, 2))
            ++count;
        return count;
    };
    EXPECT_EQ(uses(), 2);
    int expected = 2;
    for (int i = 0; i < 20; ++i) {
        filter.restart(key, true);
        expected = std::min(2 * expected, 2 << 12);
        EXPECT_EQ(uses(), expected);
    }
    for (int i = 0; i < 20; ++i) {
        filter.restart(key, false);
        expected = std::max(expected / 2, 2);
        EXPECT_EQ(uses(), expected);
    }
}

// Tags that occur once do not evict tags that repeat, however many there are.
TEST(TupleFilter, IsOfWhatIsUsedLately) {
    TupleFilter filter;
    const TupleKey key{1, 2};
    bool seen = false;
    for (std::uint64_t i = 0; i < 100'000 && !seen; ++i) {
        if (i % 100 == 0) seen = filter.use(key, 50);
        EXPECT_FALSE(filter.use({2, 1000 + i}, 2));
    }
    EXPECT_TRUE(seen);
}

PostedReceive posted_receive(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore) {
    PostedReceive it;
    it.source = source;
    it.tag = tag;
    it.ignore = ignore;
    return it;
}

TEST(MatcherForTuples, TakesTheOldestExactReceive) {
    Matcher matcher;
    PostedReceive wide = posted_receive(1, 7, kIgnoredByMpich | 0xff),
                  any = posted_receive(kAnySource, 7, kIgnoredByMpich),
                  exact = posted_receive(1, 7, 0), first = posted_receive(1, 7, kIgnoredByMpich),
                  second = posted_receive(1, 7 | 0x0040000000000000, kIgnoredByMpich),
                  other = posted_receive(2, 7, kIgnoredByMpich),
                  teach = posted_receive(9, 9, kIgnoredByMpich);
    for (PostedReceive* it : {&teach, &wide, &any, &exact, &first, &other, &second})
        ASSERT_EQ(matcher.post(*it), nullptr);
    EXPECT_EQ(matcher.take_exact(1, 7, kIgnoredByMpich), &first);
    EXPECT_EQ(matcher.take_exact(1, 7, kIgnoredByMpich), &second) << "the bit is ignored";
    EXPECT_EQ(matcher.take_exact(1, 7, kIgnoredByMpich), nullptr);
    EXPECT_EQ(matcher.take_exact(1, 8, kIgnoredByMpich), nullptr);
    EXPECT_EQ(matcher.take_exact(1, 7, kIgnoredByMpich | 0xff), &wide)
        << "though the mask is another";
    EXPECT_EQ(matcher.take_exact(2, 7, kIgnoredByMpich), &other);
    EXPECT_FALSE(first.queued);
    EXPECT_EQ(matcher.receives(), 3u);
}

TEST(MatcherForTuples, KnowsInexactReceives) {
    const auto inexact = [](PostedReceive it) {
        Matcher matcher;
        PostedReceive teach = posted_receive(9, 9, kIgnoredByMpich);
        matcher.post(teach);
        matcher.post(it);
        return matcher.has_inexact(1, 7, kIgnoredByMpich);
    };
    EXPECT_FALSE(inexact(posted_receive(1, 7, kIgnoredByMpich)));
    EXPECT_FALSE(inexact(posted_receive(1, 8, kIgnoredByMpich)));
    EXPECT_FALSE(inexact(posted_receive(2, 7, kIgnoredByMpich | 0xff)));
    EXPECT_FALSE(inexact(posted_receive(kAnySource, 8, kIgnoredByMpich)));
    EXPECT_FALSE(inexact(posted_receive(1, 0x100, kIgnoredByMpich | 0xff)));
    EXPECT_TRUE(inexact(posted_receive(1, 7, 0))) << "of some of its messages";
    EXPECT_TRUE(inexact(posted_receive(1, 7, 0x0040000000000000)));
    EXPECT_TRUE(inexact(posted_receive(1, 7 | 0x0080000000000000, 0)));
    EXPECT_TRUE(inexact(posted_receive(1, 0, kIgnoredByMpich | 0xff)));
    EXPECT_TRUE(inexact(posted_receive(kAnySource, 7, kIgnoredByMpich)));
    EXPECT_TRUE(inexact(posted_receive(kAnySource, 0, ~std::uint64_t{0})));
    PostedReceive stays = posted_receive(1, 7, kIgnoredByMpich), waits = stays;
    stays.stays = waits.waits = true;
    EXPECT_TRUE(inexact(stays));
    EXPECT_TRUE(inexact(waits));
}

// Receives leave the matcher and return in any order: messages find them in the order of posting.
TEST(MatcherForTuples, PutsReceivesBack) {
    std::mt19937 random(1);
    const auto below = [&](std::uint32_t n) { return random() % n; };
    const auto a_source = [&] { return static_cast<std::uint32_t>(1 + below(2)); };
    for (int round = 0; round < 300; ++round) {
        Matcher matcher;
        std::deque<PostedReceive> all;
        std::vector<PostedReceive*> out;
        for (int i = 0; i < 40; ++i) {
            const std::uint64_t ignore = below(5) == 0 ? kIgnoredByMpich | 3 : kIgnoredByMpich;
            PostedReceive& it = all.emplace_back(
                posted_receive(below(6) == 0 ? kAnySource : a_source(), below(3), ignore));
            if (below(4) == 0) {  // never queued before
                matcher.number(it);
                out.push_back(&it);
                continue;
            }
            ASSERT_EQ(matcher.post(it), nullptr);
            if (below(3) != 0) continue;
            if (PostedReceive* const taken =
                    matcher.take_exact(a_source(), below(3), kIgnoredByMpich))
                out.push_back(taken);
        }
        std::shuffle(out.begin(), out.end(), random);
        for (PostedReceive* const it : out) {
            ASSERT_FALSE(it->queued);
            matcher.put_back(*it);
        }
        ASSERT_EQ(matcher.receives(), all.size());
        std::vector<PostedReceive*> left;
        for (PostedReceive& it : all)
            left.push_back(&it);
        for (int i = 0; i < 60; ++i) {
            const std::uint32_t source = a_source();
            const std::uint64_t tag = below(3) | (below(2) << 54);
            const auto oldest = std::find_if(left.begin(), left.end(), [&](PostedReceive* it) {
                return (it->source == kAnySource || it->source == source) &&
                       ((it->tag ^ tag) & ~it->ignore) == 0;
            });
            PostedReceive* const found =
                i % 2 == 0 ? matcher.arrive(source, tag) : matcher.arrive_quickly(source, tag);
            ASSERT_EQ(found, oldest == left.end() ? nullptr : *oldest) << "round " << round;
            if (found != nullptr) left.erase(oldest);
        }
    }
}

// A suspended receive takes no message, and no message bypasses it.
TEST(MatcherForTuples, KeepsMessagesForReceivesThatWait) {
    Matcher matcher;
    PostedReceive waits = posted_receive(kAnySource, 7, 0), later = posted_receive(1, 7, 0);
    waits.waits = true;
    matcher.number(waits);
    matcher.put_back(waits);
    ASSERT_EQ(matcher.post(later), nullptr);
    EXPECT_EQ(matcher.arrive(1, 7), nullptr);
    EXPECT_EQ(matcher.arrive_quickly(1, 7), nullptr);
    EXPECT_EQ(matcher.receives(), 2u);
    waits.waits = false;
    EXPECT_EQ(matcher.arrive(1, 7), &waits);
    EXPECT_EQ(matcher.arrive(1, 7), &later);
}

// Messages of one source are found in the order of their positions, in whatever order they arrived.
// Two sources are independent.
TEST(MatcherForTuples, KeepsMessagesInPlace) {
    std::mt19937 random(1);
    for (int round = 0; round < 200; ++round) {
        Matcher matcher;
        PostedReceive teach = posted_receive(9, 9, kIgnoredByMpich);
        matcher.post(teach);
        std::deque<UnexpectedMessage> all(40);
        std::vector<UnexpectedMessage*> in_time, late, order;
        std::uint64_t place = 0;
        for (std::uint32_t i = 0; i < all.size(); ++i) {
            all[i].source = 1 + random() % 2;
            all[i].tag = random() % 3;
            order.push_back(&all[i]);
            const bool is_late = random() % 2 == 0;
            // Some share a position: they follow the message that has it, in their order.
            all[i].place = is_late ? place : ++place;
            all[i].order = is_late ? i + 1 : 0;
            (is_late ? late : in_time).push_back(&all[i]);
        }
        for (UnexpectedMessage* const it : in_time)
            matcher.keep(*it);
        std::shuffle(late.begin(), late.end(), random);
        for (UnexpectedMessage* const it : late)
            matcher.keep_in_place(*it);
        while (!order.empty()) {
            const auto source = static_cast<std::uint32_t>(1 + random() % 2);
            const std::uint64_t tag = random() % 3,
                                ignore = random() % 2 == 0 ? kIgnoredByMpich : 3;
            const auto first = std::find_if(order.begin(), order.end(), [&](auto* it) {
                return it->source == source && ((it->tag ^ tag) & ~ignore) == 0;
            });
            UnexpectedMessage* const found = matcher.find(source, tag, ignore);
            ASSERT_EQ(found, first == order.end() ? nullptr : *first) << "round " << round;
            if (found == nullptr) continue;
            matcher.take(*found);
            order.erase(first);
        }
        EXPECT_EQ(matcher.messages(), 0u);
    }
}

// A process adds up the counts of its endpoints.
TEST(TupleCounts, AddUp) {
    constexpr std::uint64_t TupleCounts::*kEach[] = {
        &TupleCounts::asked,    &TupleCounts::opened,     &TupleCounts::sent,
        &TupleCounts::blocking, &TupleCounts::held,       &TupleCounts::copied,
        &TupleCounts::again,    &TupleCounts::received,   &TupleCounts::posted,
        &TupleCounts::queues,   &TupleCounts::queues_peak};
    TupleCounts one;
    std::uint64_t number = 0;
    for (const auto each : kEach)
        one.*each = ++number;
    for (std::size_t i = 0; i < one.declined.size(); ++i) {
        one.declined[i] = ++number;
        one.ended[i] = ++number;
    }
    TupleCounts sum = one;
    sum += one;
    for (const auto each : kEach)
        EXPECT_EQ(sum.*each, 2 * one.*each) << one.*each;
    for (std::size_t i = 0; i < one.declined.size(); ++i) {
        EXPECT_EQ(sum.declined[i], 2 * one.declined[i]) << i;
        EXPECT_EQ(sum.ended[i], 2 * one.ended[i]) << i;
    }
}

}  // namespace
}  // namespace heddle::protocol
