// SPDX-License-Identifier: BSD-2-Clause
// The state of one simulation: threads as coroutines, the objects that they share, the adapter.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "predict/adapter.h"
#include "predict/coroutine.h"
#include "predict/events.h"
#include "predict/lock.h"
#include "predict/simulator.h"

namespace heddle::predict {

class Simulation {
public:
    Simulation(const Workload& workload, const Machine& machine, Time horizon, Time warm_up,
               std::uint64_t seed);
    Simulated run();

private:
    static constexpr Time kLook =
        200;  // after which a thread that waits looks again, at the latest
    struct QueuePair {
        explicit QueuePair(Lock its_lock) : lock(std::move(its_lock)) {}
        Lock lock;
        std::uint32_t users = 0, free = 0;  // free: depth that its threads share
        // In a recorded run: WQEs in the send queue; those behind the last completion; CQEs that
        // are still to come; and what leaves the queue with a completion.
        std::uint32_t occupied = 0, behind = 0, cqes_to_come = 0;
        std::deque<std::pair<Time, std::uint32_t>> leaving;
    };
    struct Completion {
        Time visible;
        std::uint32_t thread, queue, cqes;
    };
    struct CompletionQueue {
        explicit CompletionQueue(Lock its_lock) : lock(std::move(its_lock)) {}
        Lock lock;
        std::uint32_t users = 0;
        std::deque<Completion> under_way;
    };
    struct Uuar {
        explicit Uuar(Lock its_lock) : lock(std::move(its_lock)) {}
        Lock lock;
        std::uint32_t users = 0;
    };
    struct Barrier {
        std::uint32_t size = 0;
        std::vector<Waiter> waiting;
    };
    struct OfThread {
        std::vector<std::uint32_t> outstanding, unsignaled;  // by queue
        Time processor = 0;  // that posts and completions have taken
        std::map<std::uint32_t, std::uint64_t>
            completed;                    // of a recorded run, by CQ: not waited for
        const Step* waits_for = nullptr;  // in a recorded run
        bool at_barrier = false, ended = false;
    };
    struct Meet;
    struct Polled {
        Time t;
        std::uint32_t cqes;
    };
    struct Posted {
        Time t;
        std::uint32_t messages;
    };
    // One doorbell or BlueFlame write.
    struct Post {
        std::uint32_t wqes, payload_reads, cqes, payload_line;
        bool blueflame;
    };

    void add_thread(const ThreadPlan& plan);
    CompletionQueue& cq_of(std::uint32_t number);
    Time call_cost(const QueueUse& use, const Post& post) const;
    // `calls`: doorbells or BlueFlame writes that it stands for.
    void start(std::uint32_t thread, std::uint32_t queue, Time t, const Post& post,
               std::uint32_t calls);
    void advance(const WqeBatch& batch);
    void work(std::uint32_t thread, Time from, Time cost);
    // The next post of a workload's loop, of `wqes` together.
    Post next_post(std::uint32_t thread, std::uint32_t queue, std::uint32_t wqes);
    Time idle(std::uint32_t cq, Time t) const;
    void run_until(Time end);
    bool all_ended() const;
    bool is_stuck() const;
    void summarize(Time end, Simulated& result) const;

    Part<Time> post(std::uint32_t thread, std::uint32_t queue, std::uint32_t calls, Time t);
    Part<Time> post_locked(std::uint32_t thread, std::uint32_t queue, Post one, Time t);
    Part<Polled> poll(std::uint32_t thread, std::uint32_t cq, std::uint32_t most, Time t);
    Part<Posted> fill(std::uint32_t thread, std::uint32_t queue, std::uint32_t limit, Time t);
    Part<Time> rate_loop(std::uint32_t thread, Time begin);
    Part<Time> kernel(std::uint32_t thread, Time begin);
    // At the barrier of a group, at t.
    Part<Time> meet(std::uint32_t thread, std::uint32_t group, Time t);
    Part<Time> replay(std::uint32_t thread, Time begin);
    // When a send queue has room for the WQEs of a step.
    Part<Time> room(const QueueUse& use, const Step& step, Time t);
    Part<Time> post_recorded(std::uint32_t thread, const Step& step, Time t);
    Part<Time> wait_recorded(std::uint32_t thread, const Step& step, Time t);

    const Workload& w_;
    const Machine& m_;
    const Time horizon_, warm_up_;
    const std::uint32_t group_;  // messages that the adapter handles as one event, at most
    const std::uint32_t poll_at_most_;
    std::mt19937_64 random_;
    Events events_;
    Adapter adapter_;
    std::map<std::uint32_t, QueuePair> qps_;
    std::map<std::uint32_t, CompletionQueue> cqs_;
    std::map<std::uint32_t, Uuar> uuars_;
    std::map<std::uint32_t, Barrier> barriers_;
    std::vector<OfThread> threads_;
    Time last_completion_ = 0;
    bool stuck_ = false;  // a recorded run waits for what never comes
    Counts counts_;
};

}  // namespace heddle::predict
