// SPDX-License-Identifier: BSD-2-Clause
#include "experiments/message_rate.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <thread>

#include "experiments/common/clock.h"
#include "experiments/common/completion_tracker.h"
#include "experiments/common/measure.h"
#include "heddle/detail/assert.h"
#include "verbs/handles.h"

namespace heddle::bench {
namespace {

using post::Completion;
using post::Opcode;
using post::Posted;
using post::WorkRequest;

struct Shared {
    explicit Shared(std::uint32_t threads) : tracker(threads, 1) {}
    CompletionTracker tracker;
    std::atomic<bool> stop{false};
    std::atomic<int> failed{0};  // an ibv_wc_status
};

// Where a thread writes to.
struct Target {
    std::uint64_t address;
    std::uint32_t key;
};

// Tells libmlx5, which asks when a context is opened, and the direct path, which asks when a queue
// is made.
class NoBlueFlame {
public:
    explicit NoBlueFlame(bool wanted) : wanted_(wanted) {
        if (!wanted_) return;
        if (const char* before = std::getenv(kVariable)) before_ = before;
        ::setenv(kVariable, "1", 1);
    }
    ~NoBlueFlame() {
        if (!wanted_) return;
        if (before_)
            ::setenv(kVariable, before_->c_str(), 1);
        else
            ::unsetenv(kVariable);
    }
    NoBlueFlame(const NoBlueFlame&) = delete;
    NoBlueFlame& operator=(const NoBlueFlame&) = delete;

private:
    static constexpr const char* kVariable = "MLX5_SHUT_UP_BF";
    bool wanted_;
    std::optional<std::string> before_;
};

unsigned long address(const std::byte* at) { return reinterpret_cast<unsigned long>(at); }

// One thread on any pair of queues. Returns how many messages it has sent.
template <class SendQueue, class CompletionQueue>
std::uint64_t run(const MessageRate& m, const Endpoint& e, const Target& target, SendQueue& send,
                  CompletionQueue& cq, std::uint32_t thread, std::uint32_t window, Shared& shared) {
    const ibv_sge piece{address(e.buffer()), m.bytes, e.mr()->lkey};
    WorkRequest work;
    work.opcode = Opcode::kWrite;
    work.sges = {&piece, 1};
    work.remote_address = target.address;
    work.remote_key = target.key;
    const auto flags = static_cast<std::uint8_t>(m.inlining ? post::kInline : 0);
    const std::uint32_t list = std::min(m.post_list, window);
    // The last WR of a full window must be signaled: without it no completion would ever come.
    const std::uint32_t every = std::min(m.signal_every, window);
    const auto done = [&] { return shared.tracker.done(thread, 0); };
    HEDDLE_ASSERT(list != 0 && list <= window, "a list fits the window");
    HEDDLE_ASSERT(every != 0 && every <= window, "a full window has a signaled WR");
    const std::uint64_t start = done();
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
            shared.tracker.record(completions[i].id);
        }
    };
    const auto ring = [&] {
        while (send.ring_doorbell() == Posted::kFull && shared.failed.load() == 0)
            poll();
    };
    while (!shared.stop.load(std::memory_order_relaxed)) {
        while (posted - done() + list > window && !shared.stop.load(std::memory_order_relaxed))
            poll();
        if (shared.stop.load(std::memory_order_relaxed)) break;  // there may be no room for a list
        for (std::uint32_t i = 0; i < list; ++i) {
            const bool signal = ++unsignalled == every;
            if (signal) unsignalled = 0;
            work.flags = static_cast<std::uint8_t>(flags | (signal ? post::kSignaled : 0));
            work.id = CompletionTracker::id(thread, 0, posted + 1);
            while (send.post(work) == Posted::kFull) {
                ring();
                poll();
                if (shared.failed.load() != 0) return posted - start;
            }
            ++posted;
        }
        ring();
    }
    // Waits for the WRs in flight: the completion of one more, signaled, stands for all before it.
    work.flags = static_cast<std::uint8_t>(flags | post::kSignaled);
    work.id = CompletionTracker::id(thread, 0, posted + 1);
    while (send.post(work) == Posted::kFull && shared.failed.load() == 0)
        poll();
    ++posted;
    ring();
    while (done() < posted && shared.failed.load() == 0)
        poll();
    HEDDLE_ASSERT(shared.failed.load() != 0 || done() == posted, "all WRs are done");
    return posted - start;
}

}  // namespace

struct MessageRateRun::Parts {
    struct alignas(64) Line {
        std::byte bytes[64];
    };

    explicit Parts(const MessageRate& parameters)
        : m(parameters),
          set(m.device, m.sharing, m.threads, options_of(m)),
          window(std::max(1u, m.depth / m.sharing.qp)),
          shared(m.threads) {
        make_targets();
        for (std::uint32_t t = 0; t < m.threads; t += m.sharing.qp)
            set[t].connect(set[t].address());
    }

    static EndpointOptions options_of(const MessageRate& m) {
        EndpointOptions options;
        options.depth = m.depth;
        options.max_inline = m.inlining ? std::max(m.bytes, 60u) : 0;
        options.buffer_bytes = m.bytes;
        options.buffer_alignment = m.buffer_alignment;
        options.path = m.path;
        options.post_list = m.post_list;
        return options;
    }

    // These stand for the memory of the other node: apart for each thread, whatever of the
    // endpoints is shared, in one region for each PD.
    void make_targets() {
        const std::size_t stride = (m.bytes + 63) / 64 * 64;
        target_memory = std::make_unique<Line[]>(stride / sizeof(Line) * m.threads);
        auto* const memory = reinterpret_cast<std::byte*>(target_memory.get());
        for (std::uint32_t t = 0; t < m.threads; ++t) {
            if (t % m.sharing.pd == 0) {
                target_regions.emplace_back(
                    ibv_reg_mr(set[t].pd(), memory, stride * m.threads,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
                if (!target_regions.back()) throw VerbsError("registering the targets", errno);
            }
            HEDDLE_ASSERT(!target_regions.empty(), "thread 0 begins the first region");
            targets.push_back({address(memory + t * stride), target_regions.back()->rkey});
        }
    }

    std::uint64_t run_thread(std::uint32_t t) {
        Endpoint& e = set[t];
        return e.visit([&](auto& queues) {
            return run(m, e, targets[t], queues.send(), queues.completions(), t, window, shared);
        });
    }

    Rate repeat(double wanted_seconds);

    MessageRate m;
    EndpointSet set;
    std::uint32_t window;  // WRs in flight of one thread
    std::uint64_t messages = 0;
    Shared shared;
    std::unique_ptr<Line[]> target_memory;
    std::vector<verbs::MemoryRegion> target_regions;
    std::vector<Target> targets;
};

MessageRateRun::MessageRateRun(const MessageRate& parameters)
    : parts_([&] {
          const NoBlueFlame quiet(!parameters.blueflame);
          return std::make_unique<Parts>(parameters);
      }()) {}
MessageRateRun::MessageRateRun(MessageRateRun&&) noexcept = default;
MessageRateRun::~MessageRateRun() = default;

const Usage& MessageRateRun::usage() const noexcept { return parts_->set.usage(); }

void MessageRateRun::warm_up() { parts_->repeat(parts_->m.seconds / 10); }
std::uint64_t MessageRateRun::messages() const noexcept { return parts_->messages; }
Rate MessageRateRun::repeat() { return parts_->repeat(parts_->m.seconds); }

Rate MessageRateRun::Parts::repeat(double wanted_seconds) {
    shared.stop.store(false);
    std::barrier start(static_cast<std::ptrdiff_t>(m.threads) + 1);
    std::vector<std::uint64_t> sent(m.threads);
    std::vector<Interval> worked(m.threads);
    std::vector<double> cpu(m.threads);
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < m.threads; ++t)
        threads.emplace_back([&, t] {
            if (!m.processors.empty()) pin_to(m.processors[t % m.processors.size()]);
            start.arrive_and_wait();
            // The processor time lies within the interval.
            worked[t].begin = now_seconds();
            const double before = thread_cpu_seconds();
            sent[t] = run_thread(t);
            cpu[t] = thread_cpu_seconds() - before;
            worked[t].end = now_seconds();
        });
    start.arrive_and_wait();
    // This thread only says when to stop. With more threads than cores it may come late.
    std::this_thread::sleep_for(std::chrono::duration<double>(wanted_seconds));
    shared.stop.store(true);
    for (std::thread& thread : threads)
        thread.join();
    if (const int status = shared.failed.load())
        throw VerbsError(std::string("writing: a request completed with \"") +
                             ibv_wc_status_str(static_cast<ibv_wc_status>(status)) + "\"",
                         EIO);
    const double seconds = covered_seconds(worked);
    HEDDLE_ASSERT(seconds > 0 && targets.size() == m.threads, "each thread had a target");
    const std::uint64_t all = std::accumulate(sent.begin(), sent.end(), std::uint64_t{0});
    messages += all;
    const double millions = static_cast<double>(all) * 1e-6;
    const double busy = std::accumulate(cpu.begin(), cpu.end(), 0.0);
    HEDDLE_ASSERT(busy > 0, "messages take processor time");
    const Rate rate{millions / seconds, millions / busy};
    require_possible(rate.per_second, rate.per_cpu_second,
                     cores_of(m.processors, allowed_cores().size(), m.threads));
    return rate;
}

}  // namespace heddle::bench
