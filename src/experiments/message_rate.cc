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
#include "experiments/common/measure.h"
#include "experiments/message_rate_loop.h"
#include "experiments/message_rate_peer.h"
#include "heddle/detail/assert.h"
#include "heddle/post/softhca_hooks.h"
#include "verbs/handles.h"

namespace heddle::bench {
namespace {

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

// Throws VerbsError if the threads could not go on.
const MessageRate& checked(const MessageRate& m) {
    if (can_go_on(m)) return m;
    throw VerbsError("lists of " + std::to_string(m.post_list) + " requests and a completion for " +
                         std::to_string(m.signal_every) + " of them on a queue of depth " +
                         std::to_string(m.depth),
                     EINVAL,
                     "a full queue must have a signaled request; if threads share it, the depth is "
                     "at least the least common multiple of both");
}

}  // namespace

struct MessageRateRun::Parts {
    struct alignas(64) Line {
        std::byte bytes[64];
    };

    // Without a team each QP is connected to itself.
    Parts(const MessageRate& parameters, Team* team)
        : m(checked(parameters)),
          peer(team != nullptr ? std::make_unique<RatePeer>(*team, m) : nullptr),
          set(m.device, m.sharing, m.threads, options_of(m)),
          shared(m.threads, (m.threads + m.sharing.qp - 1) / m.sharing.qp) {
        for (RateShared::Queue& queue : shared.queues)
            queue.free.store(m.depth);
        if (peer) {
            targets = peer->connect(set);
            return;
        }
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

    // The memory of a run within one process: apart for each thread, whatever of the endpoints is
    // shared, in one region for each PD.
    void make_targets() {
        const std::size_t stride = (std::size_t{m.bytes} + 63) / 64 * 64;
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
        const ibv_sge payload{address(e.buffer()), m.bytes, e.mr()->lkey};
        post::WorkRequest request;
        request.opcode = post::Opcode::kWrite;
        request.flags = static_cast<std::uint8_t>(m.inlining ? post::kInline : 0);
        request.sges = {&payload, 1};
        request.remote_address = targets[t].address;
        request.remote_key = targets[t].key;
        return e.visit([&](auto& queues) {
            RateLoop loop(m, request, queues.send(), queues.completions(), t, shared);
            return loop.run();
        });
    }

    Rate repeat(double wanted_seconds);

    MessageRate m;
    std::unique_ptr<RatePeer> peer;
    EndpointSet set;
    std::uint64_t messages = 0;
    RateShared shared;
    std::unique_ptr<Line[]> target_memory;
    std::vector<verbs::MemoryRegion> target_regions;
    std::vector<RateTarget> targets;
};

std::unique_ptr<MessageRateRun::Parts> MessageRateRun::make(const MessageRate& parameters,
                                                            Team* team) {
    const NoBlueFlame quiet(!parameters.blueflame);
    return std::make_unique<Parts>(parameters, team);
}
MessageRateRun::MessageRateRun(const MessageRate& parameters, Team& team)
    : parts_(make(parameters, &team)) {}
MessageRateRun::MessageRateRun(const MessageRate& parameters) : parts_(make(parameters, nullptr)) {}
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
            if (const auto hook = post::detail::barrier_hook()) hook(&start);
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
    if (shared.full.load())
        throw VerbsError("writing: a queue of depth " + std::to_string(m.depth) + " took less",
                         ENOMEM);
    for (const RateShared::Queue& queue : shared.queues)
        HEDDLE_ASSERT(queue.free.load() == m.depth, "all entries were given back");
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
