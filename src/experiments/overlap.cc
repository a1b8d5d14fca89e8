// SPDX-License-Identifier: BSD-2-Clause
// Process 0 of a team works and is measured, process 1 is its peer. A processor is for the work
// alone, as far as this program can say so: on the software HCA threads of the process stand for
// the device, and they have the others, with the peer.
#include "experiments/overlap.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "experiments/common/measure.h"
#include "experiments/member.h"
#include "heddle/detail/assert.h"

namespace heddle::bench {
namespace {

constexpr std::uint64_t kReadyTag = 8;
constexpr std::uint32_t kWarmUp = 256;  // iterations: auto has made up its mind
constexpr std::uint32_t kLeast = 8, kMost = 4000;
constexpr double kPatience = 5;  // so many times the time meant for them, where others compute
constexpr double kFirstWork = 0.25, kMoreWork = 1.5, kEnough = 1.5;  // of the base time
constexpr double kGiveUp = 50;
constexpr long kSleepNs = 20'000;

struct OverlapBoard {
    struct Team {
        // Numbers of iterations: the one that is wanted, and the one that the peer is ready for.
        alignas(64) std::atomic<std::uint64_t> wanted{0};
        alignas(64) std::atomic<std::uint64_t> ready{0};
        alignas(64) std::atomic<bool> over{false};  // the turn is
        OverlapSample sample;
        std::uint64_t messages = 0, by_tuple = 0, late = 0;  // since the beginning
        std::uint64_t switches = 0;
    };
    Team teams[Turns::kMostTeams];
    OverlapCase command;
};

// The others are for the device's threads and the peer; one alone is for all.
void pin_to_all_but(const std::vector<int>& processors, std::size_t not_this) {
    if (processors.size() < 2) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (std::size_t i = 0; i < processors.size(); ++i)
        if (i != not_this) CPU_SET(processors[i], &set);
    if (::sched_setaffinity(0, sizeof set, &set) != 0)
        throw std::runtime_error("the processors of a thread cannot be set");
}

// Work that needs nothing but the processor.
std::uint64_t work(std::uint64_t units) noexcept {
    std::uint64_t value = units;
    for (std::uint64_t i = 0; i < units; ++i) {
        value = value * 6364136223846793005u + 1442695040888963407u;
        asm volatile("" : "+r"(value));
    }
    return value;
}

double units_in_a_us() {
    constexpr std::uint64_t kUnits = 20'000;
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) {
        const double begin = now_us();
        work(kUnits);
        times.push_back(now_us() - begin);
    }
    return static_cast<double>(kUnits) / std::max(median(times), 0.01);
}

class Worker final : public Member {
public:
    Worker(Turns& turns, OverlapBoard& board, std::uint32_t team, std::uint32_t rank,
           const OverlapRequest& request, std::size_t most)
        : Member(turns, team, rank, 2, request.teams[team]),
          board_(board),
          own_(board.teams[team]),
          request_(request),
          most_(std::max<std::size_t>(most, 1)),
          buffer_(map_memory(most_)) {
        std::memset(buffer_, 1, most_);
        open();
    }

private:
    struct Times {
        double post = 0, wait = 0, all = 0, work = 0;
    };

    void turn() override {
        if (rank_ == 0) {
            measure();
            own_.over = true;
            barrier();
            own_.over = false;
            barrier();
        } else {
            ::prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
            while (once_more())
                answer();
            barrier();
            barrier();
        }
    }

    // What the waiting peer does in each turn: progress, and what --peer says.
    void pause() {
        progress();
        if (request_.peer == PeerWait::kYield) ::sched_yield();
        if (request_.peer != PeerWait::kSleep) return;
        const timespec time{0, kSleepNs};
        ::nanosleep(&time, nullptr);
    }
    bool once_more() {
        while (own_.wanted.load(std::memory_order_acquire) == answered_) {
            if (own_.over.load(std::memory_order_acquire)) return false;
            pause();
        }
        ++answered_;
        return true;
    }
    void await(protocol::Completions& from) {
        while (!taken(from))
            pause();
    }
    void answer() {
        const std::size_t bytes = board_.command.bytes;
        if (board_.command.side == OverlapSide::kSender) {
            post(0, buffer_, bytes);
            // Behind whatever tells the sender of the receive.
            begin_send(0, nullptr, 0, kReadyTag);
            own_.ready.store(answered_, std::memory_order_release);
            await(sent_);
            await(received_);
        } else {
            post(0, nullptr, 0, kReadyTag);
            own_.ready.store(answered_, std::memory_order_release);
            await(received_);
            begin_send(0, buffer_, bytes);
            await(sent_);
        }
    }

    // One message of the process that is measured.
    Times once(std::uint64_t units) {
        const std::size_t bytes = board_.command.bytes;
        const bool sends = board_.command.side == OverlapSide::kSender;
        if (sends) post(1, nullptr, 0, kReadyTag);
        own_.wanted.store(++asked_, std::memory_order_release);
        while (own_.ready.load(std::memory_order_acquire) != asked_) {
            progress();
            ::sched_yield();
        }
        if (sends) take(received_);
        Times times;
        const double begin = now_us();
        if (sends)
            begin_send(1, buffer_, bytes);
        else
            post(1, buffer_, bytes);
        const double posted = now_us();
        // A receiver tells the sender that it is ready; that is not part of the measured message.
        if (!sends) begin_send(1, nullptr, 0, kReadyTag);
        const double returned = now_us();
        work(units);
        const double worked = now_us();
        take(sends ? sent_ : received_);
        const double end = now_us();
        HEDDLE_ASSERT(begin <= posted && posted <= worked && worked <= end, "the clock is steady");
        if (!sends) take(sent_);
        times.post = posted - begin;
        times.wait = end - worked;
        times.all = end - begin - (returned - posted);
        // The same work without a message, at about the same time.
        const double alone = now_us();
        work(units);
        times.work = now_us() - alone;
        return times;
    }

    // The medians of as many rounds as fit into the asked time, by the estimate `base` (us) of a
    // round without work.
    Times many(double work_us, double base) {
        const auto units = static_cast<std::uint64_t>(work_us * units_);
        const double time = request_.seconds * 1e6 / std::max(base + 2 * work_us, 0.1);
        const auto count = static_cast<std::uint32_t>(
            std::clamp(time, static_cast<double>(kLeast), static_cast<double>(kMost)));
        HEDDLE_ASSERT(count >= kLeast && count <= kMost, "the clamp bounds the repetitions");
        std::vector<double> times[4];
        const double begin = now_us();
        for (std::uint32_t i = 0; i < count; ++i) {
            if (i >= kLeast && now_us() - begin > kPatience * request_.seconds * 1e6) break;
            const Times t = once(units);
            const double values[] = {t.post, t.wait, t.all, t.work};
            for (std::size_t field = 0; field < 4; ++field)
                times[field].push_back(values[field]);
        }
        HEDDLE_ASSERT(times[0].size() >= kLeast, "a median is of some messages at least");
        return {median(times[0]), median(times[1]), median(times[2]), median(times[3])};
    }

    void measure() {
        units_ = units_in_a_us();
        for (std::uint32_t i = 0; i < kWarmUp; ++i)
            once(0);
        const protocol::TupleCounts before = endpoint_->tuple_counts();
        const std::uint64_t first = asked_;
        rusage usage_before{};
        ::getrusage(RUSAGE_THREAD, &usage_before);
        double base = many(0, 50).all;
        base = many(0, base).all;
        OverlapSample sample;
        sample.base = base;
        for (double wanted = base * kFirstWork;; wanted *= kMoreWork) {
            const Times times = many(wanted, base);
            sample.overhead = times.all - times.work;
            sample.work = times.work;
            sample.post = times.post;
            sample.wait = times.wait;
            if (times.all > base * kEnough || wanted > base * kGiveUp) break;
        }
        rusage usage{};
        ::getrusage(RUSAGE_THREAD, &usage);
        const protocol::TupleCounts counts = endpoint_->tuple_counts();
        HEDDLE_ASSERT(asked_ - first >= kLeast, "each amount of work has its messages");
        own_.sample = sample;
        own_.messages += asked_ - first;
        // Those that say "ready" may have queues, too, but are of the other direction.
        own_.by_tuple += board_.command.side == OverlapSide::kSender
                             ? counts.sent - before.sent
                             : counts.received - before.received;
        own_.late +=
            board_.command.side == OverlapSide::kSender ? counts.blocking - before.blocking : 0;
        own_.switches += static_cast<std::uint64_t>(usage.ru_nivcsw - usage_before.ru_nivcsw);
    }

    OverlapBoard& board_;
    OverlapBoard::Team& own_;
    const OverlapRequest& request_;
    const std::size_t most_;
    std::byte* const buffer_;
    double units_ = 1;
    std::uint64_t asked_ = 0, answered_ = 0;
};

}  // namespace

std::vector<std::vector<OverlapResult>> run_overlap(
    const OverlapRequest& request, const std::function<void(const OverlapCase&)>& report) {
    const SharedObject<OverlapBoard> board;
    Turns turns;
    std::size_t most = 0;
    for (const OverlapCase& each : request.cases)
        most = std::max(most, each.bytes);
    const std::vector<int> processors = allowed_cores();
    const auto teams = static_cast<std::uint32_t>(request.teams.size());
    HEDDLE_ASSERT(teams <= Turns::kMostTeams, "the board has places for so many");
    for (std::uint32_t team = 0; team < teams; ++team) {
        for (int i = 0; i < 2; ++i)
            turns.start(team, [&, team](std::uint32_t rank) {
                pin_to_all_but(processors, 0);  // threads that begin now
                Worker worker(turns, *board, team, rank, request, most);
                if (rank == 0) pin_to(processors[0]);
                worker.take_part();
            });
        turns.wait_until_done(team);
    }
    std::vector<std::vector<OverlapResult>> results;
    for (const OverlapCase& each : request.cases) {
        board->command = each;
        std::vector<OverlapResult>& of_case = results.emplace_back(teams);
        for (std::uint32_t team = 0; team < teams; ++team) {
            OverlapBoard::Team& it = board->teams[team];
            it.messages = it.by_tuple = it.late = it.switches = 0;
        }
        turns.repeat(teams, request.repetitions, [&](std::uint32_t team) {
            report(each);
            turns.turn(team);
            of_case[team].samples.push_back(board->teams[team].sample);
        });
        for (std::uint32_t team = 0; team < teams; ++team) {
            const OverlapBoard::Team& it = board->teams[team];
            const auto messages = static_cast<double>(std::max<std::uint64_t>(it.messages, 1));
            HEDDLE_ASSERT(of_case[team].samples.size() == request.repetitions,
                          "each team had its turn in each repetition");
            of_case[team].by_tuple = static_cast<double>(it.by_tuple) / messages;
            of_case[team].late = static_cast<double>(it.late) / messages;
            of_case[team].switches = static_cast<double>(it.switches) / messages;
        }
    }
    turns.end();
    HEDDLE_ASSERT(results.size() == request.cases.size(), "each case has its results");
    return results;
}

}  // namespace heddle::bench
