// SPDX-License-Identifier: BSD-2-Clause
// Process 0 of a team sends and is measured, process 1 receives, or sends back.
#include "experiments/tuples.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "experiments/common/measure.h"
#include "experiments/member.h"
#include "heddle/detail/assert.h"

namespace heddle::bench {
namespace {

constexpr std::uint32_t kTupleWarmUp = 256;  // messages: auto has made up its mind
constexpr std::uint32_t kPart = 16;          // of a ping-pong, looked at as a whole
constexpr std::uint64_t kAnswerTag = 1;      // of windows
constexpr std::uint64_t kFirstTag = 256;     // of those that are measured
// Each case has tags of its own: what was learnt of others is of another experiment.
constexpr unsigned kTagBits = 20;

struct TupleBoard {
    struct Team {
        double seconds = 0;
        std::uint64_t parts = 0, undisturbed = 0;           // since the case began
        alignas(64) std::atomic<std::int64_t> switches{0};  // of process 1
        alignas(64) std::uint64_t messages = 0, by_tuple = 0, late = 0, opened = 0;
        void reset() noexcept {
            parts = undisturbed = 0;
            messages = by_tuple = late = opened = 0;
        }
    };
    Team teams[Turns::kMostTeams];
    TupleCase command;
    std::uint64_t number = 0;  // of the case
    std::uint32_t messages = 0;
    bool first = false;  // turn of the case: it is not measured
};

// How often this thread had to make room for another.
std::int64_t own_switches() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

// A number that tells nothing of the next.
std::uint64_t mixed(std::uint64_t value) noexcept {
    value += 0x9e37'79b9'7f4a'7c15u;
    value = (value ^ value >> 30) * 0xbf58'476d'1ce4'e5b9u;
    value = (value ^ value >> 27) * 0x94d0'49bb'1331'11ebu;
    return value ^ value >> 31;
}

class TuplePlayer final : public Member {
public:
    TuplePlayer(Turns& turns, TupleBoard& board, std::uint32_t team, std::uint32_t rank,
                const TupleRequest& request, std::size_t most)
        : Member(turns, team, rank, 2, request.teams[team]),
          board_(board),
          own_(board.teams[team]),
          window_(request.window),
          warm_bytes_(2 * request.teams[team].eager_bytes),
          room_(std::max(most, warm_bytes_)),
          out_(map_memory(room_ * window_)),
          in_(map_memory(2 * room_ * window_)) {
        std::memset(out_, 1, room_ * window_);
        std::memset(in_, 2, 2 * room_ * window_);
        open();
    }
    void give_way(bool yields) { yields_ = yields; }

private:
    // Parts of a repetition: where others use the machine, too, the times of some are theirs.
    void begin_parts() {
        all_ = good_ = 0;
        parts_ = good_parts_ = 0;
        switches_ = own_switches() + own_.switches.load(std::memory_order_relaxed);
        part_begin_ = now_us();
    }
    void end_part() {
        const double time = now_us() - part_begin_;
        HEDDLE_ASSERT(time >= 0, "the clock is steady");
        const std::int64_t switches =
            own_switches() + own_.switches.load(std::memory_order_relaxed);
        all_ += time;
        ++parts_;
        if (switches == switches_) {
            good_ += time;
            ++good_parts_;
        }
        switches_ = switches;
        part_begin_ = now_us();
    }
    double part_us() const {
        HEDDLE_ASSERT(parts_ != 0 && good_parts_ <= parts_, "a repetition has parts");
        return good_parts_ != 0 ? good_ / static_cast<double>(good_parts_)
                                : all_ / static_cast<double>(parts_);
    }
    void tell_switches() { own_.switches.store(own_switches(), std::memory_order_relaxed); }

    void turn() override {
        const TupleCase& what = board_.command;
        if (board_.first) {
            cursor_ = 0;
            if (what.warm) ping_pong({.ping_pong = true, .bytes = warm_bytes_}, kTupleWarmUp);
        }
        const protocol::TupleCounts before = endpoint_->tuple_counts();
        if (rank_ == 1 && !what.ping_pong && what.early) post_window(what, cursor_);
        barrier();
        if (rank_ == 0) begin_parts();
        if (what.ping_pong)
            ping_pong(what, board_.messages);
        else if (rank_ == 0)
            send_windows(what, board_.messages / window_);
        else
            receive_windows(what, board_.messages / window_);
        barrier();
        if (rank_ != 0) return;
        const std::uint32_t messages =
            what.ping_pong ? board_.messages : board_.messages / window_ * window_;
        own_.seconds = part_us() * 1e-6 / (what.ping_pong ? 2 * kPart : window_);
        if (board_.first) return;
        const protocol::TupleCounts counts = endpoint_->tuple_counts();
        own_.parts += parts_;
        own_.undisturbed += good_parts_;
        own_.messages += messages;
        own_.by_tuple += counts.sent - before.sent;
        own_.late += counts.blocking - before.blocking;
        own_.opened += counts.opened - before.opened;
    }

    std::uint64_t tag_of(const TupleCase& what, std::uint64_t number) const noexcept {
        return kFirstTag + (board_.number << kTagBits) + number % what.tags;
    }

    void ping_pong(const TupleCase& what, std::uint32_t messages) {
        const std::uint64_t tag = tag_of(what, 0);
        const std::uint32_t other = 1 - rank_;
        if (what.early) {
            // Nobody sends before the receive for the answer is posted; for the first, a barrier.
            post(other, in_, what.bytes, tag);
            barrier();
            for (std::uint32_t i = 0; i < messages; ++i) {
                if (rank_ == 0) send(other, out_, what.bytes, tag);
                take(received_);
                if (i + 1 < messages) post(other, in_, what.bytes, tag);
                if (rank_ == 1) send(other, out_, what.bytes, tag);
                end_round(i);
            }
            return;
        }
        for (std::uint32_t i = 0; i < messages; ++i) {
            if (rank_ == 0) send(other, out_, what.bytes, tag);
            receive(other, in_, what.bytes, tag);
            if (rank_ == 1) send(other, out_, what.bytes, tag);
            end_round(i);
        }
    }
    void end_round(std::uint32_t number) {
        if ((number + 1) % kPart != 0) return;
        if (rank_ == 0)
            end_part();
        else
            tell_switches();
    }

    std::byte* received_at(std::uint64_t number) const noexcept {
        HEDDLE_DEBUG_ASSERT(window_ != 0 && room_ != 0);
        return in_ + number % (std::uint64_t{2} * window_) * room_;
    }

    void send_windows(const TupleCase& what, std::uint32_t windows) {
        for (std::uint32_t w = 0; w < windows; ++w) {
            for (std::uint32_t i = 0; i < window_; ++i, ++cursor_) {
                std::byte* const from = out_ + i * room_;
                std::memcpy(from, &cursor_, std::min(sizeof cursor_, what.bytes));
                begin_send(1, from, what.bytes, tag_of(what, cursor_));
            }
            for (std::uint32_t i = 0; i < window_; ++i)
                take(sent_);
            receive(1, nullptr, 0, kAnswerTag);
            end_part();
        }
    }

    void post_window(const TupleCase& what, std::uint64_t first) {
        for (std::uint64_t i = first; i < first + window_; ++i) {
            const bool any = mixed(i) % 100 < what.wildcards;
            post(any ? FI_ADDR_UNSPEC : 0, received_at(i), what.bytes, tag_of(what, i));
        }
    }

    void receive_windows(const TupleCase& what, std::uint32_t windows) {
        for (std::uint32_t w = 0; w < windows; ++w) {
            if (!what.early) {
                for (const double begin = now_us(); now_us() - begin < what.late_us;) {
                }
                post_window(what, cursor_);
            } else if (w + 1 < windows) {
                post_window(what, cursor_ + window_);
            }
            for (std::uint32_t i = 0; i < window_; ++i)
                take(received_);
            check(what);
            cursor_ += window_;
            tell_switches();
            send(0, nullptr, 0, kAnswerTag);
        }
    }

    // What came is what was sent for it.
    void check(const TupleCase& what) const {
        const std::size_t bytes = std::min(sizeof cursor_, what.bytes);
        for (std::uint64_t i = cursor_; i < cursor_ + window_; ++i)
            if (std::memcmp(received_at(i), &i, bytes) != 0)
                throw std::runtime_error("message " + std::to_string(i) +
                                         " is not the one that was expected");
    }

    TupleBoard& board_;
    TupleBoard::Team& own_;
    const std::uint32_t window_;
    const std::size_t warm_bytes_, room_;
    std::byte *const out_, *const in_;
    std::uint64_t cursor_ = 0;  // messages of the case
    double all_ = 0, good_ = 0, part_begin_ = 0;
    std::uint64_t parts_ = 0, good_parts_ = 0;
    std::int64_t switches_ = 0;
};

}  // namespace

std::vector<std::vector<TupleResult>> run_tuples(
    const TupleRequest& request, const std::function<void(const TupleCase&)>& report) {
    const SharedObject<TupleBoard> board;
    Turns turns;
    std::size_t most = 0;
    for (const TupleCase& each : request.cases)
        most = std::max(most, each.bytes);
    const std::vector<int> processors = allowed_cores();
    const auto teams = static_cast<std::uint32_t>(request.teams.size());
    HEDDLE_ASSERT(teams <= Turns::kMostTeams, "the board has places for so many");
    for (std::uint32_t team = 0; team < teams; ++team) {
        for (int i = 0; i < 2; ++i)
            turns.start(team, [&, team](std::uint32_t rank) {
                TuplePlayer player(turns, *board, team, rank, request, most);
                // All teams alike, whatever else the machine does when one begins.
                pin_to(processors[rank % processors.size()]);
                player.give_way(processors.size() < 2);
                player.take_part();
            });
        turns.wait_until_done(team);
    }
    const auto turn = [&](std::uint32_t team, double messages) {
        board->messages = static_cast<std::uint32_t>(
            std::clamp(messages, 1.0 * std::max(request.window, kPart), 1e6));
        turns.turn(team);
        return board->teams[team].seconds;
    };
    std::vector<std::vector<TupleResult>> results;
    for (const TupleCase& each : request.cases) {
        HEDDLE_ASSERT(each.tags != 0 && each.tags <= 1u << kTagBits,
                      "the tags of a case are no other case's");
        board->command = each;
        ++board->number;
        std::vector<TupleResult>& of_case = results.emplace_back(teams);
        // As many for all teams: they see the same tags.
        double messages = 0;
        for (std::uint32_t team = 0; team < teams; ++team) {
            report(each);
            board->teams[team].reset();
            board->first = true;
            turn(team, kTupleWarmUp);
            board->first = false;
            messages = std::max(messages, request.seconds / turn(team, 4 * kTupleWarmUp));
            board->teams[team].reset();
        }
        turns.repeat(teams, request.repetitions, [&](std::uint32_t team) {
            report(each);
            of_case[team].seconds.push_back(turn(team, messages));
        });
        for (std::uint32_t team = 0; team < teams; ++team) {
            const TupleBoard::Team& it = board->teams[team];
            const auto sent = static_cast<double>(std::max<std::uint64_t>(it.messages, 1));
            HEDDLE_ASSERT(of_case[team].seconds.size() == request.repetitions,
                          "each team had its turn in each repetition");
            HEDDLE_ASSERT(it.undisturbed <= it.parts, "undisturbed parts are parts");
            of_case[team].by_tuple = static_cast<double>(it.by_tuple) / sent;
            of_case[team].late = static_cast<double>(it.late) / sent;
            of_case[team].opened = it.opened;
            of_case[team].undisturbed = static_cast<double>(it.undisturbed) /
                                        static_cast<double>(std::max<std::uint64_t>(it.parts, 1));
        }
    }
    turns.end();
    HEDDLE_ASSERT(results.size() == request.cases.size(), "each case has its results");
    return results;
}

}  // namespace heddle::bench
