// SPDX-License-Identifier: BSD-2-Clause
// A spin lock of the model, as libmlx5 has for queue pairs, completion queues and uUARs that
// threads share.
#pragma once

#include <coroutine>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "predict/events.h"
#include "predict/machine.h"

namespace heddle::predict {

// A free lock costs an atomic operation, or a transfer if another core had it last. At a release
// one of the waiting threads gets it, at random. The transfer takes longer for each other thread
// that spins, since its failed exchanges take the cache line away (Anderson, IEEE TPDS 1990).
class Lock {
public:
    // waiter: ns for each other spinning thread. measured_from: what happens before is not counted.
    Lock(Events& events, const Machine& machine, Time waiter, Time measured_from,
         std::mt19937_64& random)
        : events_(events),
          machine_(machine),
          waiter_(waiter),
          measured_from_(measured_from),
          random_(random) {}

    struct Take {
        Lock& lock;
        std::uint32_t thread;
        Time answer = 0;
        bool await_ready() const noexcept { return false; }
        void await_suspend(std::coroutine_handle<> handle) {
            lock.request({{handle, &answer}, thread, lock.events_.now()});
        }
        Time await_resume() const noexcept { return answer; }
    };
    // For co_await in a coroutine of `thread`, which goes on when it has the lock.
    Take take(std::uint32_t thread) { return Take{*this, thread}; }
    // By its holder, now.
    void release();

    // How often another thread than the last got it, and how long threads have waited for it.
    std::uint64_t moves() const { return moves_; }
    Time waited() const { return waited_; }
    // The time in which it was held or on its way to the next holder, until `end`.
    Time busy(Time end) const;

private:
    struct Request {
        Waiter waiter;
        std::uint32_t thread;
        Time since;
    };
    void request(const Request& request);

    Events& events_;
    const Machine& machine_;
    const Time waiter_, measured_from_;
    std::mt19937_64& random_;
    std::optional<Time> held_since_;
    std::optional<std::uint32_t> last_;  // thread that had it last, or has it
    std::vector<Request> waiting_;
    std::uint64_t moves_ = 0;
    Time waited_ = 0, busy_ = 0;
};

}  // namespace heddle::predict
