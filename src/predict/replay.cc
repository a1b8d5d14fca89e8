// SPDX-License-Identifier: BSD-2-Clause
// A recorded run again: each thread does what it did, and waits where its polls found completions.
#include "predict/simulation.h"

#include <algorithm>

namespace heddle::predict {

// A post that finds its send queue full waits until something has completed, whoever takes the
// completion. In the program's own queues there was room; in those of another category there need
// not be. If none of what is in the queue asks for a completion, nothing is worth waiting for.
Part<Time> Simulation::room(const QueueUse& use, const Step& step, Time t) {
    QueuePair& qp = qps_.at(use.qp);
    for (;;) {
        while (!qp.leaving.empty() && qp.leaving.front().first <= t) {
            qp.occupied -= qp.leaving.front().second;
            qp.leaving.pop_front();
        }
        if (use.depth == 0 || qp.occupied == 0 || qp.occupied + step.wqes <= use.depth) break;
        if (qp.leaving.empty() && qp.cqes_to_come == 0) break;
        t = co_await At{events_,
                        qp.leaving.empty() ? t + kLook : std::max(t, qp.leaving.front().first)};
    }
    qp.occupied += step.wqes;
    qp.cqes_to_come += step.cqes;
    co_return t;
}

Part<Time> Simulation::post_recorded(std::uint32_t thread, const Step& step, Time t) {
    const ThreadPlan& plan = w_.threads[thread];
    const QueueUse& use = plan.queues[step.queue];
    const Post one{step.wqes, step.payload_reads, step.cqes, step.payload_line, step.blueflame};
    counts_.messages += step.wqes;
    t = co_await room(use, step, t);
    if (qps_.at(use.qp).users > 1 ||
        (use.uuar_lock && step.blueflame && uuars_.at(*use.uuar_lock).users > 1))
        co_return co_await post_locked(thread, step.queue, one, t);
    const Time cost = call_cost(use, one) + step.wqes * m_.prepare;
    work(thread, t, cost);
    start(thread, step.queue, t + cost, one, 1);
    co_return t + cost;
}

Part<Time> Simulation::wait_recorded(std::uint32_t thread, const Step& step, Time t) {
    threads_[thread].waits_for = &step;
    std::uint64_t& completed = threads_[thread].completed[step.cq];
    while (completed < step.cqes) {
        const auto left = static_cast<std::uint32_t>(step.cqes - completed);
        const Polled polled = co_await poll(thread, step.cq, left, t);
        t = polled.cqes == 0 ? idle(step.cq, polled.t) : polled.t;
        stuck_ = stuck_ || (polled.cqes == 0 && is_stuck());
    }
    completed -= step.cqes;
    threads_[thread].waits_for = nullptr;
    co_return t;
}

Part<Time> Simulation::replay(std::uint32_t thread, Time begin) {
    Time t = co_await At{events_, begin};
    for (const Step& step : w_.threads[thread].steps) {
        for (std::uint32_t turn = 0; turn < step.times; ++turn) {
            switch (step.kind) {
                case Step::Kind::kPost:
                    t = co_await post_recorded(thread, step, t);
                    break;
                case Step::Kind::kWait:
                    t = co_await wait_recorded(thread, step, t);
                    break;
                case Step::Kind::kBarrier:
                    t = co_await meet(thread, step.group, t);
                    break;
            }
        }
    }
    threads_[thread].ended = true;
    co_return t;
}

bool Simulation::all_ended() const {
    return std::ranges::all_of(threads_, [](const OfThread& thread) { return thread.ended; });
}

bool Simulation::is_stuck() const {
    return adapter_.is_idle() && std::ranges::all_of(threads_, [&](const OfThread& thread) {
               if (thread.waits_for == nullptr) return thread.ended || thread.at_barrier;
               const Step& wait = *thread.waits_for;
               return thread.completed.at(wait.cq) < wait.cqes &&
                      cqs_.at(wait.cq).under_way.empty();
           });
}

}  // namespace heddle::predict
