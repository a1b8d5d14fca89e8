// SPDX-License-Identifier: BSD-2-Clause
// The matcher against a model that searches two lists in order, and the mask that it learns.
#include "protocol/tag/matcher_tables.h"

#include <algorithm>
#include <ctime>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::protocol {
namespace {

constexpr std::uint64_t kMpich = 0x00c0000000000000, kMpichAnyTag = 0x00c000007fffffff;
constexpr std::uint64_t kOpenMpi = 0x100000000, kOpenMpiAnyTag = 0x17fffffff;
constexpr std::uint64_t kIntel = 0x6000000000000000, kIntelAnyTag = 0x60000000000fffff;

PostedReceive receive(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore) {
    PostedReceive it;
    it.source = source;
    it.tag = tag;
    it.ignore = ignore;
    return it;
}

UnexpectedMessage message(std::uint32_t source, std::uint64_t tag) {
    UnexpectedMessage it;
    it.source = source;
    it.tag = tag;
    return it;
}

bool fit(const PostedReceive& receive, std::uint32_t source, std::uint64_t tag) {
    return (receive.source == kAnySource || receive.source == source) &&
           (receive.tag & ~receive.ignore) == (tag & ~receive.ignore);
}

TEST(Matcher, MessageTakesTheOldestReceive) {
    Matcher matcher;
    PostedReceive first = receive(1, 7, 0), second = receive(1, 7, 0), other = receive(2, 7, 0);
    EXPECT_EQ(matcher.post(other), nullptr);
    EXPECT_EQ(matcher.post(first), nullptr);
    EXPECT_EQ(matcher.post(second), nullptr);
    EXPECT_EQ(matcher.receives(), 3u);
    EXPECT_EQ(matcher.arrive(1, 7), &first);
    EXPECT_EQ(matcher.arrive(1, 7), &second);
    EXPECT_EQ(matcher.arrive(1, 7), nullptr);
    EXPECT_EQ(matcher.arrive(2, 7), &other);
    EXPECT_EQ(matcher.receives(), 0u);
    EXPECT_FALSE(first.queued);
}

TEST(Matcher, ReceiveTakesTheOldestMessage) {
    Matcher matcher;
    UnexpectedMessage first = message(1, 7), second = message(1, 7), third = message(2, 9);
    for (UnexpectedMessage* it : {&first, &second, &third})
        matcher.keep(*it);
    EXPECT_EQ(matcher.messages(), 3u);
    EXPECT_EQ(matcher.find(1, 7, 0), &first);
    EXPECT_EQ(matcher.find(kAnySource, 0, ~0ull), &first);
    PostedReceive a = receive(1, 7, 0), b = receive(kAnySource, 9, 0), c = receive(1, 0, ~0ull);
    EXPECT_EQ(matcher.post(a), &first);
    EXPECT_EQ(matcher.post(b), &third);
    EXPECT_EQ(matcher.post(c), &second);
    EXPECT_EQ(matcher.messages(), 0u);
    EXPECT_EQ(matcher.receives(), 0u);
}

TEST(Matcher, WildcardsKeepTheirPlaceInOrder) {
    for (int last = 0; last < 3; ++last) {
        Matcher matcher;
        PostedReceive exact = receive(1, 7, kMpich), source = receive(kAnySource, 7, kMpich),
                      tag = receive(1, 0, kMpichAnyTag);
        std::vector<PostedReceive*> order{&exact, &source, &tag};
        PostedReceive teach = receive(9, 9, kMpich);
        matcher.post(teach);
        std::rotate(order.begin(), order.begin() + last, order.end());
        for (PostedReceive* it : order)
            matcher.post(*it);
        for (PostedReceive* it : order)
            EXPECT_EQ(matcher.arrive(1, 7 | 0x0040000000000000), it);
    }
}

// Many operations on few sources and tags, each compared with the model.
class Comparison {
public:
    Comparison(std::uint64_t seed, std::vector<std::uint64_t> ignores)
        : random_(seed), ignores_(std::move(ignores)) {}

    void run(int steps) {
        for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
            // Phases with mostly receives, mostly messages, or the same ignored bits.
            if (below(200) == 0) lean_ = 20 + below(60);
            if (below(300) == 0) favourite_ = ignores_[below(ignores_.size())];
            step();
            EXPECT_EQ(matcher_.receives(), posted_.size());
            EXPECT_EQ(matcher_.messages(), kept_.size());
        }
        EXPECT_GT(quick_posts_, 0U) << "each second one is tried";
        drain();
    }

private:
    std::uint64_t below(std::uint64_t n) { return random_() % n; }
    std::uint32_t some_source() {
        return below(50) == 0 ? 0xfffffffe : static_cast<std::uint32_t>(below(4));
    }
    std::uint64_t some_tag() {
        // Tags differ in ignored bits, too.
        const std::uint64_t high = below(3) == 0 ? random_() & (kMpich | kOpenMpi | kIntel) : 0;
        return high | (below(30) == 0 ? below(2000) : below(6));
    }
    std::uint64_t some_ignore() {
        return below(6) == 0 ? ignores_[below(ignores_.size())] : favourite_;
    }

    void step() {
        const std::uint64_t dice = below(100);
        if (dice < 4)
            cancel();
        else if (dice < 8)
            peek();
        else if (dice < 10)
            search();
        else if (below(100) < lean_)
            post();
        else
            arrive();
    }

    void post() {
        auto it = std::make_unique<PostedReceive>(
            receive(below(4) == 0 ? kAnySource : some_source(), some_tag(), some_ignore()));
        const auto found = model_find(*it);
        UnexpectedMessage* taken = nullptr;
        const bool is_quick = ++posts_ % 2 == 0 && matcher_.post_quickly(
                                                       it->source, it->tag, it->ignore,
                                                       [&](UnexpectedMessage& message) {
                                                           taken = &message;
                                                           return true;
                                                       },
                                                       [&]() -> PostedReceive& { return *it; });
        quick_posts_ += is_quick;
        if (!is_quick) taken = matcher_.post(*it);
        if (found == kept_.end()) {
            ASSERT_EQ(taken, nullptr);
            EXPECT_TRUE(it->queued);
            posted_.push_back(std::move(it));
        } else {
            ASSERT_EQ(taken, found->get());
            EXPECT_FALSE(taken->queued);
            EXPECT_FALSE(it->queued);
            kept_.erase(found);
        }
    }
    void arrive() {
        const std::uint32_t source = some_source();
        const std::uint64_t tag = some_tag();
        const auto found = std::find_if(posted_.begin(), posted_.end(),
                                        [&](const auto& it) { return fit(*it, source, tag); });
        if (matcher_.has_nothing_for(source, tag)) {
            EXPECT_EQ(found, posted_.end());
        }
        PostedReceive* const taken = ++arrivals_ % 2 != 0 ? matcher_.arrive(source, tag)
                                                          : matcher_.arrive_quickly(source, tag);
        if (found == posted_.end()) {
            ASSERT_EQ(taken, nullptr);
            kept_.push_back(std::make_unique<UnexpectedMessage>(message(source, tag)));
            matcher_.keep(*kept_.back());
        } else {
            ASSERT_EQ(taken, found->get());
            EXPECT_FALSE(taken->queued);
            posted_.erase(found);
        }
    }
    void cancel() {
        if (posted_.empty()) return;
        const auto at = posted_.begin() + static_cast<std::ptrdiff_t>(below(posted_.size()));
        matcher_.take(**at);
        posted_.erase(at);
    }
    void peek() {
        const PostedReceive it =
            receive(below(2) == 0 ? kAnySource : some_source(), some_tag(), some_ignore());
        const auto found = model_find(it);
        UnexpectedMessage* const seen = matcher_.find(it.source, it.tag, it.ignore);
        ASSERT_EQ(seen, found == kept_.end() ? nullptr : found->get());
        if (seen && below(2) == 0) {
            matcher_.take(*seen);
            kept_.erase(found);
        }
    }
    void search() {
        const std::uint64_t tag = some_tag();
        const auto wanted = [tag](const PostedReceive& it) { return it.tag == tag; };
        const auto found = std::find_if(posted_.begin(), posted_.end(),
                                        [&](const auto& it) { return wanted(*it); });
        ASSERT_EQ(matcher_.find_receive(wanted), found == posted_.end() ? nullptr : found->get());
    }
    void drain() {
        std::vector<const void*> expected, actual;
        for (const auto& it : posted_)
            expected.push_back(it.get());
        for (const auto& it : kept_)
            expected.push_back(it.get());
        while (const PostedReceive* it = matcher_.any_receive())
            actual.push_back(it);
        while (const UnexpectedMessage* it = matcher_.any_message())
            actual.push_back(it);
        std::sort(expected.begin(), expected.end());
        std::sort(actual.begin(), actual.end());
        EXPECT_EQ(actual, expected);
        EXPECT_EQ(matcher_.receives() + matcher_.messages(), 0u);
    }

    std::deque<std::unique_ptr<UnexpectedMessage>>::iterator model_find(const PostedReceive& it) {
        return std::find_if(kept_.begin(), kept_.end(),
                            [&](const auto& m) { return fit(it, m->source, m->tag); });
    }

    unsigned arrivals_ = 0, posts_ = 0, quick_posts_ = 0;
    Matcher matcher_;
    std::mt19937_64 random_;
    std::vector<std::uint64_t> ignores_;
    std::uint64_t favourite_ = ignores_.front(), lean_ = 50;
    std::deque<std::unique_ptr<PostedReceive>> posted_;
    std::deque<std::unique_ptr<UnexpectedMessage>> kept_;
};

TEST(Matcher, EqualsTheModel) {
    const std::vector<std::vector<std::uint64_t>> sets{
        {0},
        {0, ~0ull},
        {kMpich, kMpichAnyTag, 0},
        {kOpenMpi, kOpenMpiAnyTag},
        {kIntel, kIntelAnyTag},
        {kMpich, kOpenMpi, kIntel, 0, 1, 3, 0xff, ~0ull, kMpichAnyTag, ~7ull},
    };
    for (std::size_t set = 0; set < sets.size(); ++set) {
        for (std::uint64_t seed = 0; seed < 40; ++seed) {
            SCOPED_TRACE(testing::Message() << "set " << set << ", seed " << seed);
            Comparison(1000 * set + seed, sets[set]).run(3000);
            if (HasFailure()) return;
        }
    }
}

// Posts and completes `count` receives that ignore these bits.
void exchange(Matcher& matcher, std::uint64_t ignore, int count) {
    for (int i = 0; i < count; ++i) {
        PostedReceive it = receive(1, 7, ignore);
        ASSERT_EQ(matcher.post(it), nullptr);
        ASSERT_EQ(matcher.arrive(1, 7), &it);
    }
}

TEST(MatcherLearns, FromTheFirstReceive) {
    for (const std::uint64_t mask : {kMpich, kOpenMpi, kIntel, std::uint64_t{0}}) {
        Matcher matcher;
        EXPECT_EQ(matcher.mask(), 0u);
        exchange(matcher, mask, 1);
        EXPECT_EQ(matcher.mask(), mask);
        exchange(matcher, mask | 0xffff, 31);
        EXPECT_EQ(matcher.mask(), mask);
    }
}

TEST(MatcherLearns, FromReceivesInARow) {
    Matcher matcher;
    exchange(matcher, 0, 1);
    exchange(matcher, kMpich, 31);
    exchange(matcher, 0, 1);
    exchange(matcher, kMpich, 31);
    EXPECT_EQ(matcher.mask(), 0u) << "not 32 in a row";
    exchange(matcher, kMpich, 1);
    EXPECT_EQ(matcher.mask(), kMpich);
}

TEST(MatcherLearns, KeepsAMaskThatServesAcknowledgements) {
    Matcher matcher;
    exchange(matcher, kMpich, 1);
    for (int i = 0; i < 1000; ++i) {
        exchange(matcher, 0, 100);
        exchange(matcher, kMpich, 1);
    }
    EXPECT_EQ(matcher.mask(), kMpich);
    // After many such receives the mask is what all of them ignore.
    exchange(matcher, 0, 256);
    EXPECT_EQ(matcher.mask(), 0u);
}

TEST(MatcherLearns, LeavesAMaskThatCrowds) {
    Matcher matcher;
    PostedReceive any = receive(1, 0, kMpichAnyTag);
    EXPECT_EQ(matcher.post(any), nullptr);
    EXPECT_EQ(matcher.mask(), kMpichAnyTag);
    matcher.take(any);
    std::vector<PostedReceive> receives;
    for (std::uint64_t tag = 0; tag < 33; ++tag)
        receives.push_back(receive(1, tag, kMpich));
    for (PostedReceive& it : receives)
        EXPECT_EQ(matcher.post(it), nullptr);
    EXPECT_EQ(matcher.mask(), kMpich);
    for (PostedReceive& it : receives)
        EXPECT_EQ(matcher.arrive(1, it.tag | 0x0080000000000000), &it);
}

TEST(MatcherLearns, DoesNotFlap) {
    Matcher matcher;
    exchange(matcher, kMpich, 1);
    int changes = 0;
    for (int i = 0; i < 1000; ++i) {
        const std::uint64_t before = matcher.mask();
        exchange(matcher, i % 2 == 0 ? kOpenMpi : kMpich, 64);
        changes += matcher.mask() != before;
    }
    EXPECT_LE(changes, 3);
}

// Posting and receipt in opposite orders: with lists each would take millions of steps.
TEST(MatcherIsQuick, UnderTheMasksOfTheMpis) {
    constexpr std::uint32_t kCount = 100000;
    const std::clock_t start = std::clock();
    for (const std::uint64_t mask : {kMpich, kOpenMpi, kIntel}) {
        Matcher matcher;
        const std::uint64_t ignored = mask & (~mask + 1);
        std::vector<PostedReceive> receives;
        for (std::uint32_t i = 0; i < kCount; ++i)
            receives.push_back(receive(i % 3 == 0 ? kAnySource : i % 100, i, mask));
        for (PostedReceive& it : receives)
            ASSERT_EQ(matcher.post(it), nullptr);
        ASSERT_EQ(matcher.mask(), mask);
        for (std::uint32_t i = kCount; i-- > 0;)
            ASSERT_EQ(matcher.arrive(i % 100, i | ignored), &receives[i]);

        std::vector<UnexpectedMessage> messages;
        for (std::uint32_t i = 0; i < kCount; ++i)
            messages.push_back(message(i % 100, i | ignored));
        for (UnexpectedMessage& it : messages)
            matcher.keep(it);
        for (std::uint32_t i = kCount; i-- > 0;) {
            PostedReceive it = receive(i % 100, i, mask);
            ASSERT_EQ(matcher.find(i % 100, i, mask), &messages[i]);
            ASSERT_EQ(matcher.post(it), &messages[i]);
        }
    }
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 10);
}

TEST(MatcherIsQuick, AtClose) {
    constexpr std::uint32_t kCount = 100000;
    const std::clock_t start = std::clock();
    Matcher matcher;
    std::vector<PostedReceive> receives;
    for (std::uint32_t i = 0; i < kCount; ++i)
        receives.push_back(receive(i % 2 == 0 ? kAnySource : 1, i, 0));
    for (PostedReceive& it : receives)
        matcher.post(it);
    std::uint32_t taken = 0;
    while (matcher.any_receive())
        ++taken;
    EXPECT_EQ(taken, kCount);
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 10);
}

}  // namespace
}  // namespace heddle::protocol
