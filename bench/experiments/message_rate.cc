// SPDX-License-Identifier: BSD-2-Clause
#include "experiments/message_rate.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <thread>

#include "common/measure.h"

namespace heddle::bench {
namespace {

using post::Completion;
using post::Opcode;
using post::Posted;
using post::Work;
using Clock = std::chrono::steady_clock;

// A work's id: the thread it belongs to, and how many works that thread has then posted. Whoever
// polls a CQ that is shared finds the completions of others, and tells them here.
constexpr unsigned kThreadShift = 48;
constexpr std::uint64_t kCountMask = (std::uint64_t{1} << kThreadShift) - 1;

struct alignas(64) Progress {
    std::atomic<std::uint64_t> done{0};
};

struct Shared {
    std::vector<Progress> progress;
    std::atomic<bool> stop{false};
    std::atomic<int> failed{0};  // an ibv_wc_status
};

// Two threads that poll one CQ may tell what they found in another order than it happened: the
// count must never go back, or the last completion is waited for in vain.
void advance(std::atomic<std::uint64_t>& done, std::uint64_t count) {
    std::uint64_t known = done.load(std::memory_order_relaxed);
    while (known < count && !done.compare_exchange_weak(known, count, std::memory_order_release,
                                                        std::memory_order_relaxed)) {
    }
}

unsigned long address(const std::byte* at) { return reinterpret_cast<unsigned long>(at); }

// One thread on any pair of queues. Returns how many messages it has sent.
template <class SendQueue, class CompletionQueue>
std::uint64_t run(const MessageRate& m, const Endpoint& e, SendQueue& send, CompletionQueue& cq,
                  std::uint32_t thread, std::uint32_t window, Shared& shared) {
    const ibv_sge piece{address(e.buffer()), m.bytes, e.mr()->lkey};
    Work work;
    work.opcode = Opcode::kWrite;
    work.pieces = {&piece, 1};
    work.remote_address = address(e.buffer()) + 64 * ((m.bytes + 63) / 64);
    work.remote_key = e.mr()->rkey;
    const auto flags = static_cast<std::uint8_t>(m.inlining ? post::kInline : 0);
    const std::uint32_t list = std::min(m.post_list, window);
    // the last of a full window must be signalled, or nobody would hear of it
    const std::uint32_t every = std::min(m.signal_every, window);
    std::atomic<std::uint64_t>& done = shared.progress[thread].done;
    const std::uint64_t start = done.load(std::memory_order_relaxed);
    std::uint64_t posted = start, unsignalled = 0;
    Completion completions[16];
    const auto poll = [&] {
        const unsigned found = cq.poll(completions, 16);
        for (unsigned i = 0; i < found; ++i) {
            if (completions[i].status != IBV_WC_SUCCESS) {
                shared.failed.store(completions[i].status);
                shared.stop.store(true);
                continue;
            }
            advance(shared.progress[completions[i].id >> kThreadShift].done,
                    completions[i].id & kCountMask);
        }
    };
    const auto ring = [&] {
        while (send.ring_doorbell() == Posted::kFull && shared.failed.load() == 0)
            poll();
    };
    while (!shared.stop.load(std::memory_order_relaxed)) {
        while (posted - done.load(std::memory_order_acquire) + list > window &&
               !shared.stop.load(std::memory_order_relaxed))
            poll();
        for (std::uint32_t i = 0; i < list; ++i) {
            const bool signal = ++unsignalled == every;
            if (signal) unsignalled = 0;
            work.flags = static_cast<std::uint8_t>(flags | (signal ? post::kSignaled : 0));
            work.id = std::uint64_t{thread} << kThreadShift | (posted + 1);
            while (send.post(work) == Posted::kFull) {
                ring();
                poll();
                if (shared.failed.load() != 0) return posted - start;
            }
            ++posted;
        }
        ring();
    }
    // What is under way is waited for: one more, signalled, stands for all before it.
    work.flags = static_cast<std::uint8_t>(flags | post::kSignaled);
    work.id = std::uint64_t{thread} << kThreadShift | (posted + 1);
    while (send.post(work) == Posted::kFull && shared.failed.load() == 0)
        poll();
    ++posted;
    ring();
    while (done.load(std::memory_order_acquire) < posted && shared.failed.load() == 0)
        poll();
    return posted - start;
}

}  // namespace

struct MessageRateRun::Parts {
    explicit Parts(const MessageRate& parameters)
        : m(parameters),
          set(m.device, m.sharing, m.threads, options_of(m)),
          window(std::max(1u, m.depth / m.sharing.qp)) {
        shared.progress = std::vector<Progress>(m.threads);
        for (std::uint32_t t = 0; t < m.threads; t += m.sharing.qp)
            set[t].connect(set[t].address());
    }

    static EndpointOptions options_of(const MessageRate& m) {
        EndpointOptions options;
        options.depth = m.depth;
        options.max_inline = m.inlining ? std::max(m.bytes, 60u) : 0;
        options.buffer_bytes = 2 * 64 * ((m.bytes + 63) / 64);
        options.path = m.path;
        options.post_list = m.post_list;
        return options;
    }

    std::uint64_t run_thread(std::uint32_t t) {
        Endpoint& e = set[t];
        return e.visit([&](auto& queues) {
            return run(m, e, queues.send(), queues.completions(), t, window, shared);
        });
    }

    MessageRate m;
    EndpointSet set;
    std::uint32_t window;  // works under way of one thread
    Shared shared;
};

MessageRateRun::MessageRateRun(const MessageRate& parameters)
    : parts_(std::make_unique<Parts>(parameters)) {}
MessageRateRun::MessageRateRun(MessageRateRun&&) noexcept = default;
MessageRateRun::~MessageRateRun() = default;

const Usage& MessageRateRun::usage() const noexcept { return parts_->set.usage(); }

double MessageRateRun::repeat() {
    Parts& parts = *parts_;
    parts.shared.stop.store(false);
    const std::vector<int> cores = allowed_cores();
    std::barrier start(static_cast<std::ptrdiff_t>(parts.m.threads) + 1);
    std::vector<std::uint64_t> sent(parts.m.threads);
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < parts.m.threads; ++t)
        threads.emplace_back([&, t] {
            pin_to(cores[t % cores.size()]);
            start.arrive_and_wait();
            sent[t] = parts.run_thread(t);
        });
    start.arrive_and_wait();
    const auto begin = Clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>(parts.m.seconds));
    parts.shared.stop.store(true);
    for (std::thread& thread : threads)
        thread.join();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (const int status = parts.shared.failed.load())
        throw VerbsError(std::string("writing: a work completed with \"") +
                             ibv_wc_status_str(static_cast<ibv_wc_status>(status)) + "\"",
                         EIO);
    std::uint64_t all = 0;
    for (const std::uint64_t n : sent)
        all += n;
    return static_cast<double>(all) / seconds * 1e-6;
}

}  // namespace heddle::bench
