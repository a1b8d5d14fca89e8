// SPDX-License-Identifier: BSD-2-Clause
// The threads of one process of a team: started together, each on a core, and when one fails the
// others stop, wherever they wait.
#pragma once

#include <atomic>
#include <barrier>
#include <cstdint>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "experiments/common/clock.h"
#include "experiments/common/measure.h"
#include "experiments/common/team.h"
#include "heddle/detail/assert.h"
#include "heddle/post/softhca_hooks.h"

namespace heddle::bench {

class Workers {
public:
    // Thread t of the process runs on the (first + t)-th of `processors`, and around; on any, if
    // there are none.
    Workers(Team& team, const std::vector<int>& processors, std::uint32_t first = 0)
        : team_(&team), processors_(processors), first_processor_(first) {}

    // body(t) on `count` threads, all begun at one time. Each notes its begin and its end. Throws
    // what the first to fail has thrown.
    template <class Body>
    Stretch run(std::uint32_t count, const Body& body) {
        HEDDLE_ASSERT(count != 0, "the caller waits for threads");
        std::vector<Interval> worked(count);
        std::vector<double> cpu(count);
        std::barrier start(static_cast<std::ptrdiff_t>(count));
        std::vector<std::thread> threads;
        for (std::uint32_t t = 0; t < count; ++t)
            threads.emplace_back([&, t] {
                if (!processors_.empty())
                    pin_to(processors_[(first_processor_ + t) % processors_.size()]);
                if (const auto hook = post::detail::barrier_hook()) hook(&start);
                start.arrive_and_wait();
                worked[t].begin = now_seconds();
                const double before = thread_cpu_seconds();
                try {
                    body(t);
                } catch (...) {
                    fail(std::current_exception());
                }
                cpu[t] = thread_cpu_seconds() - before;
                worked[t].end = now_seconds();
            });
        for (std::thread& thread : threads)
            thread.join();
        if (first_) std::rethrow_exception(first_);
        const Stretch stretch{whole_of(worked), std::accumulate(cpu.begin(), cpu.end(), 0.0),
                              machine_number()};
        // In threads, not messages: so many are at work at a time.
        require_possible(stretch.cpu_seconds / (stretch.time.end - stretch.time.begin), 1,
                         cores(count));
        return stretch;
    }
    // How many of `count` threads can run at a time.
    std::size_t cores(std::uint32_t count) const {
        std::vector<int> theirs;
        for (std::uint32_t t = 0; t < count && !processors_.empty(); ++t)
            theirs.push_back(processors_[(first_processor_ + t) % processors_.size()]);
        return cores_of(theirs, allowed_cores().size(), count);
    }

    // By threads that wait: throws if a thread of this process has failed, or another process.
    void check() {
        if (failed()) throw TeamError("another thread failed");
        team_->check();
    }
    bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }
    Team& team() const noexcept { return *team_; }

private:
    void fail(std::exception_ptr why) {
        const std::lock_guard<std::mutex> guard(mutex_);
        if (!first_) first_ = std::move(why);
        failed_.store(true);
    }

    Team* team_;
    std::vector<int> processors_;
    std::uint32_t first_processor_;
    std::atomic<bool> failed_{false};
    std::mutex mutex_;
    std::exception_ptr first_;  // under mutex_
};

// One wait for something that another thread, another process or the device does: called in the
// loop that looks for it. There may be more threads than cores, so the processor is given away.
class Wait {
public:
    Wait(Workers& workers, const char* what) : workers_(workers), what_(what) {}

    void again() {
        if (++turns_ < kImpatient) return;
        std::this_thread::yield();
        if (turns_ % kImpatient != 0) return;
        if (workers_.failed()) workers_.check();
        const auto now = Clock::now();
        if (begin_ == Clock::time_point{}) begin_ = looked_ = now;
        if (now - looked_ < std::chrono::milliseconds(50)) return;
        looked_ = now;
        workers_.check();
        if (Seconds(now - begin_) > workers_.team().patience())
            throw TeamError(std::string(what_) + " did not come in time");
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr unsigned kImpatient = 64;

    Workers& workers_;
    const char* what_;
    unsigned turns_ = 0;
    Clock::time_point begin_{}, looked_{};
};

}  // namespace heddle::bench
