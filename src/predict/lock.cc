// SPDX-License-Identifier: BSD-2-Clause
#include "predict/lock.h"

#include <algorithm>

#include "heddle/detail/assert.h"

namespace heddle::predict {

void Lock::request(const Request& request) {
    if (held_since_) {
        waiting_.push_back(request);
        return;
    }
    HEDDLE_ASSERT(waiting_.empty(), "nobody waits for a free lock");
    const Time now = events_.now();
    const bool moves = last_ && *last_ != request.thread;
    if (moves && now > measured_from_) ++moves_;
    held_since_ = now;
    last_ = request.thread;
    events_.push(now + (moves ? machine_.lock_transfer : machine_.atomic), request.waiter);
}

void Lock::release() {
    HEDDLE_ASSERT(held_since_.has_value(), "a lock is released once");
    const Time now = events_.now();
    if (waiting_.empty()) {
        busy_ += std::max(0.0, now - std::max(*held_since_, measured_from_));
        held_since_.reset();
        return;
    }
    const auto chosen = std::uniform_int_distribution<std::size_t>(0, waiting_.size() - 1)(random_);
    const Request next = waiting_[chosen];
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(chosen));
    const Time passed = now + machine_.lock_transfer + waiter_ * static_cast<Time>(waiting_.size());
    if (now > measured_from_) {
        ++moves_;
        waited_ += passed - next.since;
    }
    last_ = next.thread;
    events_.push(passed, next.waiter);
}

Time Lock::busy(Time end) const {
    if (!held_since_) return busy_;
    return busy_ + std::max(0.0, end - std::max(*held_since_, measured_from_));
}

}  // namespace heddle::predict
