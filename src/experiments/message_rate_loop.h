// SPDX-License-Identifier: BSD-2-Clause
// What one thread of the message-rate experiment does, on any pair of queues: post lists of p
// requests until the depth d of its QP is used up, then poll for d / q completions, and again.
// ICPADS'18, section IV; threads that share a CQ or a QP keep count as in its sections V-D and V-E.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <vector>

#include "experiments/message_rate.h"
#include "heddle/detail/assert.h"
#include "heddle/post/lock.h"
#include "heddle/post/work_request.h"

namespace heddle::bench {

// What the threads of one run share.
struct RateShared {
    RateShared(std::uint32_t threads, std::uint32_t queues) : threads(threads), queues(queues) {}

    // Written by each thread that polls the CQ of the thread that it belongs to.
    struct alignas(64) Thread {
        std::atomic<std::uint64_t> completed{0};
    };
    // A QP. The threads that share it take its entries and give them back.
    struct alignas(64) Queue {
        std::atomic<std::int64_t> free{0};
        post::SpinLock list;  // held while a list is written and its doorbell rung
    };
    std::vector<Thread> threads;
    std::vector<Queue> queues;
    std::atomic<bool> stop{false};
    std::atomic<int> failed{0};     // an ibv_wc_status
    std::atomic<bool> full{false};  // a queue took less than its depth
};

// A thread ends after a multiple of this: whole lists, and the last request is signaled.
inline std::uint32_t unit_of(const MessageRate& m) {
    HEDDLE_ASSERT(m.post_list != 0 && m.signal_every != 0, "the parameters were checked");
    return std::lcm(m.post_list, m.signal_every);
}

// Whether a thread can go on until it is stopped: if its QP has no room for a list, a signaled
// request is in flight.
inline bool can_go_on(const MessageRate& m) {
    if (m.post_list == 0 || m.signal_every == 0 || m.depth == 0) return false;
    if (m.post_list > m.depth || m.signal_every > m.depth) return false;
    if (m.sharing.qp > 1) return unit_of(m) <= m.depth;  // taken at once
    // Requests in flight are a multiple of this; one more than leave room for a list:
    const std::uint32_t step = std::gcd(m.post_list, m.signal_every);
    return (m.depth - m.post_list) / step * step + step >= m.signal_every;
}

template <class SendQueue, class CompletionQueue>
class RateLoop {
public:
    // request: of each message; flags without post::kSignaled.
    RateLoop(const MessageRate& m, const post::WorkRequest& request, SendQueue& send,
             CompletionQueue& cq, std::uint32_t thread, RateShared& shared)
        : m_(m),
          request_(request),
          send_(send),
          cq_(cq),
          thread_(thread),
          shared_(shared),
          unit_(unit_of(m)),
          until_signal_(m.signal_every),
          completions_(std::max(m.depth / m.signal_every, 1u)) {
        HEDDLE_ASSERT(can_go_on(m), "the parameters were checked");
        HEDDLE_ASSERT(thread < shared.threads.size(), "each thread has its counter");
        request_.id = thread;
    }

    // Returns how many messages it has sent, all of them completed.
    std::uint64_t run() {
        if (m_.sharing.qp > 1) return share_queue();
        if (m_.sharing.cq > 1)
            return own_queue([this] { return mine().load(std::memory_order_acquire); },
                             [this] { poll([this](std::uint64_t id) { count(id); }); });
        std::uint64_t completed = 0;
        return own_queue([&] { return completed; },
                         [&] { poll([&](std::uint64_t) { completed += m_.signal_every; }); });
    }

private:
    std::atomic<std::uint64_t>& mine() { return shared_.threads[thread_].completed; }
    RateShared::Queue& queue_of(std::uint64_t thread) {
        HEDDLE_DEBUG_ASSERT(thread / m_.sharing.qp < shared_.queues.size(), "it has a QP");
        return shared_.queues[thread / m_.sharing.qp];
    }
    bool stopping() const { return shared_.stop.load(std::memory_order_relaxed); }
    bool failed() const {
        return shared_.failed.load(std::memory_order_relaxed) != 0 ||
               shared_.full.load(std::memory_order_relaxed);
    }
    void count(std::uint64_t thread) {
        HEDDLE_DEBUG_ASSERT(thread < shared_.threads.size(), "an id is the thread's number");
        shared_.threads[thread].completed.fetch_add(m_.signal_every, std::memory_order_release);
    }

    // A QP of this thread alone. `completed` and `poll` know who counts completions.
    template <class Completed, class Poll>
    std::uint64_t own_queue(const Completed& completed, const Poll& poll_once) {
        const std::uint64_t start = completed();
        std::uint64_t posted = start;
        while (!failed()) {
            HEDDLE_DEBUG_ASSERT(posted - completed() <= m_.depth, "the QP has room for so many");
            std::uint64_t room = m_.depth - (posted - completed());
            if (stopping()) {
                const std::uint64_t rest = rest_of_unit(posted - start);
                if (rest == 0 && completed() == posted) break;
                room = std::min(room, rest);
            }
            for (; room >= m_.post_list && !failed(); room -= m_.post_list)
                post_list(&posted);
            poll_once();
        }
        return posted - start;
    }

    // A QP that several threads share: each takes the entries of a unit from what is free of the
    // depth, and each that polls gives back what has completed.
    std::uint64_t share_queue() {
        RateShared::Queue& queue = queue_of(thread_);
        const std::uint64_t start = mine().load(std::memory_order_acquire);
        std::uint64_t posted = start;
        while (!failed()) {
            if (stopping() && mine().load(std::memory_order_acquire) == posted) break;
            while (!stopping() && try_take(queue))
                for (std::uint32_t i = 0; i < unit_; i += m_.post_list) {
                    const std::lock_guard guard(queue.list);
                    post_list(&posted);
                }
            poll([this](std::uint64_t id) {
                count(id);
                queue_of(id).free.fetch_add(m_.signal_every, std::memory_order_release);
            });
        }
        return posted - start;
    }
    bool try_take(RateShared::Queue& queue) {
        const std::int64_t unit = unit_;
        if (queue.free.load(std::memory_order_relaxed) < unit) return false;
        if (queue.free.fetch_sub(unit, std::memory_order_acquire) >= unit) return true;
        queue.free.fetch_add(unit, std::memory_order_relaxed);  // another thread was faster
        return false;
    }

    std::uint64_t rest_of_unit(std::uint64_t sent) const { return (unit_ - sent % unit_) % unit_; }
    void post_list(std::uint64_t* posted) {
        const auto flags = request_.flags;
        for (std::uint32_t i = 0; i < m_.post_list; ++i) {
            const bool signal = --until_signal_ == 0;
            if (signal) until_signal_ = m_.signal_every;
            request_.flags = static_cast<std::uint8_t>(flags | (signal ? post::kSignaled : 0));
            if (send_.post(request_) != post::Posted::kOk) refuse();
        }
        request_.flags = flags;
        if (send_.ring_doorbell() != post::Posted::kOk) refuse();
        *posted += m_.post_list;
    }
    void refuse() {
        shared_.full.store(true);
        shared_.stop.store(true);
    }
    // Takes d / q completions at most.
    template <class Done>
    void poll(const Done& done) {
        const auto most = static_cast<unsigned>(completions_.size());
        const unsigned found = cq_.poll(completions_.data(), most);
        for (unsigned i = 0; i < found; ++i) {
            if (completions_[i].status != IBV_WC_SUCCESS) {
                shared_.failed.store(completions_[i].status);
                shared_.stop.store(true);
                return;
            }
            done(completions_[i].id);
        }
    }

    const MessageRate& m_;
    post::WorkRequest request_;
    SendQueue& send_;
    CompletionQueue& cq_;
    const std::uint32_t thread_;
    RateShared& shared_;
    const std::uint32_t unit_;
    std::uint32_t until_signal_;  // requests up to the next signaled one
    std::vector<post::Completion> completions_;
};

}  // namespace heddle::bench
