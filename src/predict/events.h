// SPDX-License-Identifier: BSD-2-Clause
// The order of events of the simulation, and the coroutines that wait for them.
#pragma once

#include <coroutine>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "heddle/detail/assert.h"

namespace heddle::predict {

using Time = double;  // ns since the simulation began

// A coroutine that waits, and where it finds the time at which it goes on.
struct Waiter {
    std::coroutine_handle<> handle;
    Time* answer = nullptr;
};

// WQEs of one post in the adapter. `cq` gets their completions.
struct WqeBatch {
    enum class Stage { kHandled, kFetched } stage = Stage::kHandled;  // that ends with the event
    std::uint32_t thread = 0, queue = 0, qp = 0, cq = 0;
    std::uint32_t count = 0, payload_reads = 0, cqes = 0;
    std::uint32_t payload_line = 0;
};

struct Event {
    Time at;
    std::uint64_t number;  // events of one time happen in the order in which they were pushed
    Waiter waiter;         // without a handle, the event is `batch`
    WqeBatch batch;

    bool operator>(const Event& other) const {
        return at != other.at ? at > other.at : number > other.number;
    }
};

// Time goes forward: what is pushed for the past happens now.
class Events {
public:
    Time now() const { return now_; }
    void push(Time at, Waiter waiter) { insert({at, 0, waiter, {}}); }
    void push(Time at, const WqeBatch& batch) { insert({at, 0, {}, batch}); }
    bool has_one_until(Time end) const { return !queue_.empty() && queue_.top().at <= end; }
    Event pop() {
        const Event event = queue_.top();
        queue_.pop();
        HEDDLE_ASSERT(event.at >= now_, "time goes forward");
        now_ = event.at;
        return event;
    }

private:
    void insert(Event event) {
        event.at = std::max(event.at, now_);
        event.number = ++number_;
        queue_.push(event);
    }

    std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
    std::uint64_t number_ = 0;
    Time now_ = 0;
};

// For co_await: the coroutine goes on at `t`.
struct At {
    Events& events;
    Time t, answer = 0;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) { events.push(t, Waiter{handle, &answer}); }
    Time await_resume() const noexcept { return answer; }
};

}  // namespace heddle::predict
