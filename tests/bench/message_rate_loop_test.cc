// SPDX-License-Identifier: BSD-2-Clause
// What a thread of the message-rate experiment does, request by request, on queues that only write
// it down: lists of p, a signal for each q, polls for d / q, and never more than d in flight.
#include "experiments/message_rate_loop.h"

#include <gtest/gtest.h>

#include <deque>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

namespace heddle::bench {
namespace {

// A QP and its CQ. Completions appear some polls later. Any thread.
struct Recorded {
    std::mutex mutex;
    std::uint64_t posted = 0, in_flight = 0, most_in_flight = 0;
    std::vector<std::uint64_t> signaled_at;  // how many requests had then been posted
    std::vector<std::uint32_t> lists;
    std::set<unsigned> asked;
    struct Wait {
        std::uint64_t id, covers;
    };
    std::deque<Wait> waiting;
    std::uint64_t since_signal = 0, polls = 0;
};

class FakeSend {
public:
    explicit FakeSend(Recorded& to) : to_(to) {}
    post::Posted post(const post::WorkRequest& request) {
        list_.push_back(request);
        return post::Posted::kOk;
    }
    post::Posted ring_doorbell() {
        const std::lock_guard guard(to_.mutex);
        to_.lists.push_back(static_cast<std::uint32_t>(list_.size()));
        for (const post::WorkRequest& request : list_) {
            ++to_.posted;
            ++to_.since_signal;
            to_.most_in_flight = std::max(to_.most_in_flight, ++to_.in_flight);
            if ((request.flags & post::kSignaled) == 0) continue;
            to_.signaled_at.push_back(to_.posted);
            to_.waiting.push_back({request.id, to_.since_signal});
            to_.since_signal = 0;
        }
        list_.clear();
        return post::Posted::kOk;
    }

private:
    Recorded& to_;
    std::vector<post::WorkRequest> list_;
};

class FakeCq {
public:
    explicit FakeCq(Recorded& from) : from_(from) {}
    unsigned poll(post::Completion* out, unsigned most) {
        const std::lock_guard guard(from_.mutex);
        from_.asked.insert(most);
        if (++from_.polls % 3 != 0) return 0;
        unsigned found = 0;
        for (; found < most && !from_.waiting.empty(); ++found) {
            out[found] = {};
            out[found].id = from_.waiting.front().id;
            out[found].status = IBV_WC_SUCCESS;
            from_.in_flight -= from_.waiting.front().covers;
            from_.waiting.pop_front();
        }
        return found;
    }

private:
    Recorded& from_;
};

MessageRate parameters(std::uint32_t threads, std::uint32_t p, std::uint32_t q, std::uint32_t d) {
    MessageRate m;
    m.threads = threads;
    m.post_list = p;
    m.signal_every = q;
    m.depth = d;
    return m;
}

// All threads on one QP and CQ if they share it. Returns how many messages each has sent.
std::vector<std::uint64_t> run(const MessageRate& m, Recorded& recorded) {
    RateShared shared(m.threads, 1);
    shared.queues[0].free.store(m.depth);
    std::vector<std::uint64_t> sent(m.threads);
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < m.threads; ++t)
        threads.emplace_back([&, t] {
            FakeSend send(recorded);
            FakeCq cq(recorded);
            RateLoop loop(m, post::WorkRequest{}, send, cq, t, shared);
            sent[t] = loop.run();
        });
    for (;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const std::lock_guard guard(recorded.mutex);
        if (recorded.posted > 50ull * m.depth) break;
    }
    shared.stop.store(true);
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(shared.queues[0].free.load(), m.depth) << "all entries were given back";
    return sent;
}

void expect_as_the_paper(const MessageRate& m) {
    SCOPED_TRACE(testing::Message() << m.threads << " threads, p " << m.post_list << ", q "
                                    << m.signal_every << ", d " << m.depth);
    ASSERT_TRUE(can_go_on(m));
    Recorded recorded;
    const std::vector<std::uint64_t> sent = run(m, recorded);
    EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), std::uint64_t{0}), recorded.posted);
    EXPECT_EQ(recorded.in_flight, 0u) << "the last request was signaled, and is done";
    EXPECT_EQ(recorded.lists,
              std::vector<std::uint32_t>(recorded.posted / m.post_list, m.post_list));
    EXPECT_EQ(recorded.signaled_at.size() * m.signal_every, recorded.posted);
    EXPECT_EQ(recorded.asked, std::set<unsigned>{m.depth / m.signal_every});
    EXPECT_LE(recorded.most_in_flight, m.depth);
    for (const std::uint64_t each : sent)
        EXPECT_EQ(each % std::lcm(m.post_list, m.signal_every), 0u);
}

TEST(RateLoop, PostsListsAndPollsForWhatADepthCompletes) {
    for (const std::uint32_t p : {1u, 32u})
        for (const std::uint32_t q : {1u, 2u, 16u, 64u, 128u})
            expect_as_the_paper(parameters(1, p, q, 128));
    expect_as_the_paper(parameters(1, 4, 6, 48));
}

TEST(RateLoop, SignalsEachQth) {
    Recorded recorded;
    run(parameters(1, 32, 64, 128), recorded);
    for (std::size_t i = 0; i < recorded.signaled_at.size(); ++i)
        EXPECT_EQ(recorded.signaled_at[i], 64 * (i + 1));
}

TEST(RateLoop, UsesTheWholeDepth) {
    Recorded recorded;
    run(parameters(1, 32, 64, 128), recorded);
    EXPECT_EQ(recorded.most_in_flight, 128u);
}

TEST(RateLoop, ThreadsThatShareAQueueShareItsDepthAndKeepPAndQ) {
    for (const std::uint32_t p : {1u, 32u})
        for (const std::uint32_t q : {1u, 16u, 64u}) {
            MessageRate m = parameters(16, p, q, 128);
            m.sharing.qp = m.sharing.cq = 16;
            expect_as_the_paper(m);
        }
}

TEST(RateLoop, RefusesWhatWouldWaitForever) {
    EXPECT_TRUE(can_go_on(parameters(1, 32, 128, 128)));
    EXPECT_FALSE(can_go_on(parameters(1, 32, 129, 128))) << "no request is signaled";
    EXPECT_FALSE(can_go_on(parameters(1, 129, 1, 128))) << "no list fits";
    EXPECT_FALSE(can_go_on(parameters(1, 3, 7, 8))) << "6 in flight: neither a list nor a signal";
    EXPECT_TRUE(can_go_on(parameters(1, 3, 7, 9)));
    MessageRate m = parameters(2, 3, 7, 16);
    m.sharing.qp = m.sharing.cq = 2;
    EXPECT_FALSE(can_go_on(m)) << "21 are taken at once";
}

}  // namespace
}  // namespace heddle::bench
