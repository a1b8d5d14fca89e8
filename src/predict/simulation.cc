// SPDX-License-Identifier: BSD-2-Clause
#include "predict/simulation.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <ranges>
#include <set>
#include <stdexcept>
#include <string>

#include "heddle/detail/assert.h"

namespace heddle::predict {
namespace {

constexpr Time kStartSpread = 3000;  // threads begin within so many ns
constexpr std::uint32_t kGroup = 8;
constexpr std::uint32_t kUnlimited = std::numeric_limits<std::uint32_t>::max();

}  // namespace

struct Simulation::Meet {
    Simulation& s;
    Barrier& barrier;
    Time answer = 0;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
        barrier.waiting.push_back({handle, &answer});
        HEDDLE_ASSERT(barrier.waiting.size() <= barrier.size, "a barrier has its group's threads");
        if (barrier.waiting.size() < barrier.size) return;
        const Time after = s.events_.now() + s.m_.barrier * std::bit_width(barrier.size - 1);
        for (const Waiter& each : barrier.waiting)
            s.events_.push(after, each);
        barrier.waiting.clear();
    }
    Time await_resume() const noexcept { return answer; }
};

Simulation::Simulation(const Workload& workload, const Machine& machine, Time horizon, Time warm_up,
                       std::uint64_t seed)
    : w_(workload),
      m_(machine),
      horizon_(horizon),
      warm_up_(warm_up),
      group_(std::min(kGroup, std::max(workload.signal_every, 4u))),
      poll_at_most_(
          workload.threads.empty()
              ? 1
              : std::max<std::uint32_t>(
                    1, workload.depth *
                           static_cast<std::uint32_t>(workload.threads.front().queues.size()) /
                           workload.signal_every)),
      random_(seed),
      adapter_(events_, machine, warm_up, random_) {
    if (w_.threads.empty()) throw std::invalid_argument("a workload needs at least one thread");
    HEDDLE_ASSERT(warm_up < horizon, "something is measured");
    for (const ThreadPlan& plan : w_.threads)
        add_thread(plan);
}

Simulation::CompletionQueue& Simulation::cq_of(std::uint32_t number) {
    return cqs_.try_emplace(number, Lock(events_, m_, m_.cq_lock_waiter, warm_up_, random_))
        .first->second;
}

void Simulation::add_thread(const ThreadPlan& plan) {
    for (const QueueUse& use : plan.queues) {
        QueuePair& qp =
            qps_.try_emplace(use.qp, Lock(events_, m_, m_.qp_lock_waiter, warm_up_, random_))
                .first->second;
        ++qp.users;
        qp.free = w_.depth;
        if (!use.uuar_lock) continue;
        ++uuars_
              .try_emplace(*use.uuar_lock, Lock(events_, m_, m_.qp_lock_waiter, warm_up_, random_))
              .first->second.users;
    }
    std::set<std::uint32_t> polled{plan.cq}, met;
    for (const Step& step : plan.steps) {
        if (step.kind == Step::Kind::kWait) polled.insert(step.cq);
        if (step.kind == Step::Kind::kBarrier) met.insert(step.group);
    }
    if (plan.steps.empty()) met.insert(plan.group);
    for (const std::uint32_t cq : polled)
        ++cq_of(cq).users;
    for (const std::uint32_t group : met)
        ++barriers_[group].size;
    OfThread& thread = threads_.emplace_back();
    thread.outstanding.resize(plan.queues.size());
    thread.unsignaled.resize(plan.queues.size());
}

void Simulation::work(std::uint32_t thread, Time from, Time cost) {
    if (from > warm_up_) threads_[thread].processor += cost;
}

Time Simulation::call_cost(const QueueUse& use, const Post& post) const {
    return m_.post_call + (post.blueflame ? use.blueflame_extra : 0) +
           (use.takes_lock ? m_.atomic : 0);
}

void Simulation::start(std::uint32_t thread, std::uint32_t queue, Time t, const Post& post,
                       std::uint32_t calls) {
    const ThreadPlan& plan = w_.threads[thread];
    const QueueUse& use = plan.queues[queue];
    if (t > warm_up_) {
        counts_.posts += calls;
        counts_.blueflame_posts += post.blueflame ? calls : 0;
        counts_.wqes += post.wqes;
    }
    adapter_.start(t,
                   {WqeBatch::Stage::kHandled, thread, queue, use.qp, use.cq, post.wqes,
                    post.payload_reads, post.cqes, post.payload_line},
                   post.blueflame, group_);
}

Simulation::Post Simulation::next_post(std::uint32_t thread, std::uint32_t queue,
                                       std::uint32_t wqes) {
    std::uint32_t& unsignaled = threads_[thread].unsignaled[queue];
    const std::uint32_t cqes = (unsignaled + wqes) / w_.signal_every;
    unsignaled = (unsignaled + wqes) % w_.signal_every;
    return {wqes, w_.inlined ? 0 : wqes, cqes, w_.threads[thread].payload_line, w_.post_list == 1};
}

void Simulation::advance(const WqeBatch& batch) {
    const std::optional<Time> visible = adapter_.advance(batch);
    if (!visible) return;
    if (w_.is_recorded()) {
        QueuePair& qp = qps_.at(batch.qp);
        qp.behind += batch.count;
        qp.cqes_to_come -= batch.cqes;
        if (batch.cqes != 0) qp.leaving.emplace_back(*visible, std::exchange(qp.behind, 0));
    }
    if (batch.cqes != 0)
        cq_of(batch.cq).under_way.push_back({*visible, batch.thread, batch.queue, batch.cqes});
    last_completion_ = std::max(last_completion_, *visible);
}

// One post of a queue pair or uUAR that other threads use, too.
Part<Time> Simulation::post_locked(std::uint32_t thread, std::uint32_t queue, Post one, Time t) {
    const ThreadPlan& plan = w_.threads[thread];
    const QueueUse& use = plan.queues[queue];
    QueuePair& qp = qps_.at(use.qp);
    const bool is_shared = qp.users > 1;
    const Time prepare = one.wqes * (m_.prepare + w_.message_extra);
    const Time call = call_cost(use, one);
    // The lock of a queue pair is held while its WQEs are written, that of a uUAR is not.
    Lock& lock = is_shared ? qp.lock : uuars_.at(*use.uuar_lock).lock;
    co_await At{events_, t + (is_shared ? 0 : prepare)};
    t = co_await lock.take(thread);
    t += call + (is_shared ? prepare : 0);
    work(thread, t, call + prepare);
    start(thread, queue, t, one, 1);
    t = co_await At{events_, t};
    lock.release();
    co_return t;
}

// `calls` posts of a list each.
Part<Time> Simulation::post(std::uint32_t thread, std::uint32_t queue, std::uint32_t calls,
                            Time t) {
    const ThreadPlan& plan = w_.threads[thread];
    const QueueUse& use = plan.queues[queue];
    const bool blueflame = w_.post_list == 1;
    if (qps_.at(use.qp).users > 1 ||
        (use.uuar_lock && blueflame && uuars_.at(*use.uuar_lock).users > 1)) {
        for (; calls != 0; --calls)
            t = co_await post_locked(thread, queue, next_post(thread, queue, w_.post_list), t);
        co_return t;
    }
    // Without a lock nothing can come between: posts of one WQE are handled together.
    const std::uint32_t at_once = blueflame ? group_ : 1;
    while (calls != 0) {
        std::uint32_t some = std::min(calls, at_once);
        if (blueflame && w_.signal_every > group_)
            some = std::min(some, w_.signal_every - threads_[thread].unsignaled[queue]);
        const Post posts = next_post(thread, queue, some * w_.post_list);
        const Time cost =
            some * (call_cost(use, posts) + w_.post_list * (m_.prepare + w_.message_extra));
        work(thread, t, cost);
        t += cost;
        start(thread, queue, t, posts, some);
        calls -= some;
    }
    co_return t;
}

Part<Simulation::Polled> Simulation::poll(std::uint32_t thread, std::uint32_t number,
                                          std::uint32_t most, Time t) {
    CompletionQueue& cq = cqs_.at(number);
    t = co_await At{events_, t};
    if (cq.users > 1) t = co_await cq.lock.take(thread);
    const Time began = t;
    t += m_.empty_poll;
    std::uint32_t got = 0, others = 0;
    std::vector<Completion> taken;
    while (!cq.under_way.empty() && got < most && cq.under_way.front().visible <= t) {
        Completion& first = cq.under_way.front();
        Completion part = first;
        part.cqes = std::min(first.cqes, most - got);
        first.cqes -= part.cqes;
        if (first.cqes == 0) cq.under_way.pop_front();
        got += part.cqes;
        if (part.thread != thread) others += part.cqes;
        t += part.cqes * (part.thread == thread ? m_.own_completion : m_.other_completion);
        taken.push_back(part);
    }
    if (cq.users > 1) {
        t = co_await At{events_, t};
        cq.lock.release();
    }
    std::uint32_t messages = 0;
    for (const Completion& each : taken) {
        if (w_.is_recorded()) {
            threads_[each.thread].completed[number] += each.cqes;
            continue;
        }
        const std::uint32_t completed = each.cqes * w_.signal_every;
        HEDDLE_ASSERT(threads_[each.thread].outstanding[each.queue] >= completed,
                      "only what was posted completes");
        threads_[each.thread].outstanding[each.queue] -= completed;
        QueuePair& qp = qps_.at(w_.threads[each.thread].queues[each.queue].qp);
        if (qp.users > 1) qp.free += completed;
        messages += completed;
    }
    if (t > warm_up_) {
        ++counts_.polls;
        counts_.cqes += got;
        counts_.other_cqes += others;
        counts_.messages += messages;
        if (got == 0) ++counts_.empty_polls;
    }
    // The poster's counter of what is outstanding is in another core's cache.
    const Time after = t + others * m_.line_transfer;
    if (got != 0) work(thread, t, after - began);
    co_return Polled{after, got};
}

// Posts what the depth allows, at most `limit` messages.
Part<Simulation::Posted> Simulation::fill(std::uint32_t thread, std::uint32_t queue,
                                          std::uint32_t limit, Time t) {
    QueuePair& qp = qps_.at(w_.threads[thread].queues[queue].qp);
    std::uint32_t& outstanding = threads_[thread].outstanding[queue];
    if (qp.users == 1) {
        const std::uint32_t calls = std::min(w_.depth - outstanding, limit) / w_.post_list;
        if (calls == 0) co_return Posted{t, 0};
        outstanding += calls * w_.post_list;
        t = co_await post(thread, queue, calls, t);
        co_return Posted{t, calls * w_.post_list};
    }
    const std::uint32_t unit = std::max(w_.post_list, w_.signal_every);
    std::uint32_t posted = 0;
    while (qp.free >= unit && posted < limit) {  // the depth is an atomic counter
        qp.free -= unit;
        outstanding += unit;
        posted += unit;
        t = co_await post(thread, queue, unit / w_.post_list, t + m_.line_transfer);
    }
    co_return Posted{t, posted};
}

// When a thread whose poll was in vain looks again. On a CQ of its own nothing comes before its
// first completion, so that polls in between need not be simulated.
Time Simulation::idle(std::uint32_t number, Time t) const {
    constexpr Time kNothing = 60;
    const CompletionQueue& cq = cqs_.at(number);
    if (cq.users > 1) return t;
    if (cq.under_way.empty()) return t + kNothing;
    return std::max(t, std::min(cq.under_way.front().visible, t + kLook));
}

Part<Time> Simulation::rate_loop(std::uint32_t thread, Time begin) {
    const std::uint32_t cq = w_.threads[thread].cq;
    Time t = co_await At{events_, begin};
    for (;;) {
        const Posted posted = co_await fill(thread, 0, kUnlimited, t);
        const Polled polled = co_await poll(thread, cq, poll_at_most_, posted.t);
        t = polled.cqes == 0 && posted.messages == 0 ? idle(cq, polled.t) : polled.t;
    }
    co_return t;
}

Part<Time> Simulation::meet(std::uint32_t thread, std::uint32_t group, Time t) {
    Barrier& barrier = barriers_.at(group);
    if (barrier.size == 1) co_return t;
    co_await At{events_, t};
    threads_[thread].at_barrier = true;
    t = co_await Meet{*this, barrier};
    threads_[thread].at_barrier = false;
    co_return t;
}

Part<Time> Simulation::kernel(std::uint32_t thread, Time begin) {
    const ThreadPlan& plan = w_.threads[thread];
    const std::vector<std::uint32_t>& outstanding = threads_[thread].outstanding;
    Time t = co_await At{events_, begin};
    for (;;) {
        for (std::uint32_t queue = 0; queue < plan.queues.size(); ++queue) {
            for (std::uint32_t left = w_.rows; left != 0;) {
                const Posted posted = co_await fill(thread, queue, left, t);
                t = posted.t;
                left -= std::min(left, posted.messages);
                if (left == 0 || posted.messages != 0) continue;
                const Polled polled = co_await poll(thread, plan.cq, poll_at_most_, t);
                t = polled.cqes == 0 ? idle(plan.cq, polled.t) : polled.t;
            }
        }
        while (std::ranges::any_of(outstanding, [](std::uint32_t n) { return n != 0; })) {
            const Polled polled = co_await poll(thread, plan.cq, poll_at_most_, t);
            t = polled.cqes == 0 ? idle(plan.cq, polled.t) : polled.t;
        }
        t = co_await meet(thread, plan.group, t);
    }
    co_return t;
}

void Simulation::run_until(Time end) {
    while (events_.has_one_until(end)) {
        const Event event = events_.pop();
        if (!event.waiter.handle) {
            advance(event.batch);
            continue;
        }
        *event.waiter.answer = event.at;
        event.waiter.handle.resume();
        if (stuck_) return;
        if (w_.is_recorded() && all_ended()) end = last_completion_;
    }
}

void Simulation::summarize(Time end, Simulated& result) const {
    const Time measured = end - std::max(0.0, warm_up_);
    const auto set = [&](Resource resource, Time busy) {
        double& share = result.utilization[static_cast<std::size_t>(resource)];
        share = std::max(share, std::min(1.0, busy / measured));
    };
    Counts& counts = result.counts;
    counts = counts_;
    counts.payload_reads = adapter_.payload_reads();
    for (const auto& [number, qp] : qps_) {
        counts.qp_lock_moves += qp.lock.moves();
        counts.qp_lock_wait += qp.lock.waited();
        if (qp.users > 1) set(Resource::kQpLock, qp.lock.busy(end));
    }
    for (const auto& [number, cq] : cqs_) {
        counts.cq_lock_moves += cq.lock.moves();
        counts.cq_lock_wait += cq.lock.waited();
        if (cq.users > 1) set(Resource::kCqLock, cq.lock.busy(end));
    }
    for (const auto& [number, uuar] : uuars_) {
        counts.uuar_lock_moves += uuar.lock.moves();
        counts.uuar_lock_wait += uuar.lock.waited();
        set(Resource::kUuarLock, uuar.lock.busy(end));
    }
    Time processor = 0;
    for (const OfThread& thread : threads_)
        processor += thread.processor;
    set(Resource::kProcessor, processor / static_cast<Time>(threads_.size()));
    const Adapter::Busy adapter = adapter_.busy();
    set(Resource::kEngine, adapter.engine);
    set(Resource::kPayloadReads, adapter.payload_reads);
    set(Resource::kCacheLine, adapter.line);
    set(Resource::kLink, adapter.link);
    result.per_microsecond = static_cast<double>(counts.messages) / measured * 1e3;
}

Simulated Simulation::run() {
    std::vector<Part<Time>> running;
    running.reserve(w_.threads.size());
    std::uniform_real_distribution<Time> start(0, kStartSpread);
    for (std::uint32_t thread = 0; thread < w_.threads.size(); ++thread) {
        const Time begin = w_.is_recorded() ? 0 : start(random_);
        running.push_back(w_.is_recorded() ? replay(thread, begin)
                          : w_.rows != 0   ? kernel(thread, begin)
                                           : rate_loop(thread, begin));
        running.back().resume();
    }
    run_until(horizon_);
    Time end = horizon_;
    if (w_.is_recorded()) {
        if (!all_ended())
            throw std::invalid_argument(
                "a thread of the run waits for completions or threads that "
                "the record does not have");
        end = std::max(events_.now(), last_completion_);
    }
    Simulated result;
    summarize(end, result);
    return result;
}

}  // namespace heddle::predict
