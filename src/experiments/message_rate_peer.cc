// SPDX-License-Identifier: BSD-2-Clause
// The two processes speak by Team::all_gather(): a command of rank 0; after kOpen the addresses of
// both, or why there are none; then, if both have some, a word of each that its QPs are connected.
#include "experiments/message_rate_peer.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "heddle/detail/assert.h"

namespace heddle::bench {
namespace {

constexpr std::uint32_t kSender = 0, kReceiver = 1;

enum class Kind : std::uint32_t { kOpen, kClose, kEnd };

struct Command {
    Kind kind = Kind::kEnd;
    std::uint32_t threads = 0;
    std::uint64_t number = 0;  // of the run
    Sharing sharing;
    std::uint32_t bytes = 0, alignment = 0;
};

// What one process tells the other of its endpoints, or why it has none.
struct Answer {
    int error = 0;
    std::string asked;  // of a VerbsError
    std::vector<QpAddress> qps;
    std::vector<RateTarget> targets;

    std::string packed() const {
        const std::uint32_t sizes[] = {static_cast<std::uint32_t>(error),
                                       static_cast<std::uint32_t>(qps.size()),
                                       static_cast<std::uint32_t>(targets.size())};
        return bytes_of(sizes, 3) + bytes_of(qps.data(), qps.size()) +
               bytes_of(targets.data(), targets.size()) + asked;
    }
    static Answer unpacked(const std::string& text) {
        std::uint32_t sizes[3];
        std::size_t at = 0;
        take(text, &at, sizes, 3);
        Answer answer;
        answer.error = static_cast<int>(sizes[0]);
        if ((text.size() - at) / sizeof(QpAddress) < sizes[1] ||
            (text.size() - at) / sizeof(RateTarget) < sizes[2])
            throw TeamError("processes of different programs");
        answer.qps.resize(sizes[1]);
        take(text, &at, answer.qps.data(), sizes[1]);
        answer.targets.resize(sizes[2]);
        take(text, &at, answer.targets.data(), sizes[2]);
        answer.asked = text.substr(at);
        return answer;
    }

private:
    template <class T>
    static std::string bytes_of(const T* values, std::size_t count) {
        return std::string(reinterpret_cast<const char*>(values), count * sizeof(T));
    }
    template <class T>
    static void take(const std::string& text, std::size_t* at, T* values, std::size_t count) {
        if (text.size() - *at < count * sizeof(T))
            throw TeamError("processes of different programs");
        if (count != 0)
            std::memcpy(static_cast<void*>(values), text.data() + *at, count * sizeof(T));
        *at += count * sizeof(T);
    }
};

// The other process's part in one run: everything in one context, but as many QPs, regions and
// buffers as the sender has.
EndpointSet receiver_of(const Command& c, const std::string& device) {
    Sharing sharing;
    sharing.context = sharing.pd = sharing.cq = c.threads;
    sharing.mr = c.sharing.mr;
    sharing.qp = c.sharing.qp;
    sharing.buffer = c.sharing.buffer;
    EndpointOptions options;
    options.depth = 1;  // it posts nothing
    options.max_inline = 0;
    options.buffer_bytes = c.bytes;
    options.buffer_alignment = c.alignment;
    return EndpointSet(device, sharing, c.threads, options);
}

Answer answer_of(const EndpointSet& set, std::uint32_t sharers) {
    Answer answer;
    for (std::uint32_t t = 0; t < set.size(); t += sharers)
        answer.qps.push_back(set[t].address());
    for (std::uint32_t t = 0; t < set.size(); ++t)
        answer.targets.push_back(
            {reinterpret_cast<std::uintptr_t>(set[t].buffer()), set[t].mr()->rkey});
    return answer;
}

void connect_all(EndpointSet& set, std::uint32_t sharers, const Answer& other) {
    if (other.qps.size() != (set.size() + sharers - 1) / sharers)
        throw TeamError("the other process has another number of QPs");
    for (std::uint32_t t = 0; t < set.size(); t += sharers)
        set[t].connect(other.qps[t / sharers]);
}

// Runs what throws VerbsError; an error becomes an answer without addresses.
template <class Make>
Answer attempt(const Make& make) {
    try {
        return make();
    } catch (const VerbsError& error) {
        return {error.error() != 0 ? error.error() : EIO, error.asked(), {}, {}};
    }
}

// Rank 1, until rank 0 ends it.
int serve(Team& team, const std::string& device) {
    std::map<std::uint64_t, EndpointSet> sets;
    for (;;) {
        const Command command = team.all_gather_values(Command{})[kSender];
        if (command.kind == Kind::kEnd) return 0;
        if (command.kind == Kind::kClose) {
            sets.erase(command.number);
            continue;
        }
        std::optional<EndpointSet> set;
        const Answer mine = attempt([&] {
            set.emplace(receiver_of(command, device));
            return answer_of(*set, command.sharing.qp);
        });
        const Answer other = Answer::unpacked(team.all_gather(mine.packed())[kSender]);
        if (mine.error != 0 || other.error != 0) continue;
        const Answer connected = attempt([&] {
            connect_all(*set, command.sharing.qp, other);
            return Answer{};
        });
        team.all_gather(connected.packed());
        sets.emplace(command.number, std::move(*set));
    }
}

void throw_if_failed(const Answer& receiver) {
    if (receiver.error != 0)
        throw VerbsError("the other process: " + receiver.asked, receiver.error);
}

}  // namespace

int run_with_rate_peer(TeamOptions options, const std::string& device,
                       const std::function<int(Team&)>& body) {
    options.processes = 2;
    options.any_size = false;
    return run_team(options, [&](Team& team) {
        if (team.rank() == kReceiver) return serve(team, device);
        std::optional<int> status;
        try {
            status = body(team);
        } catch (const TeamError&) {
            throw;  // nobody is there to be ended
        } catch (...) {
            team.all_gather_values(Command{});
            team.barrier();  // as run_team() has it after a body that returns
            throw;
        }
        team.all_gather_values(Command{});
        return *status;
    });
}

RatePeer::RatePeer(Team& team, const MessageRate& m)
    : team_(team), threads_(m.threads), sharers_(m.sharing.qp) {
    HEDDLE_ASSERT(team.rank() == kSender && team.size() == 2, "rank 1 is the peer");
    static std::uint64_t runs = 0;
    number_ = ++runs;
    team_.all_gather_values(
        Command{Kind::kOpen, m.threads, number_, m.sharing, m.bytes, m.buffer_alignment});
}

RatePeer::~RatePeer() {
    try {
        if (state_ == State::kAsked)
            team_.all_gather(Answer{ECANCELED, {}, {}, {}}.packed());
        else if (state_ == State::kConnected)
            team_.all_gather_values(Command{Kind::kClose, 0, number_, {}, 0, 0});
    } catch (const TeamError&) {
        // It is gone, and its memory with it.
    }
}

std::vector<RateTarget> RatePeer::connect(EndpointSet& set) {
    HEDDLE_ASSERT(state_ == State::kAsked && set.size() == threads_, "each run connects once");
    const Answer mine = answer_of(set, sharers_);
    const Answer other = Answer::unpacked(team_.all_gather(mine.packed())[kReceiver]);
    state_ = State::kRefused;
    throw_if_failed(other);
    const Answer connected = attempt([&] {
        connect_all(set, sharers_, other);
        return Answer{};
    });
    state_ = State::kConnected;  // the other process keeps the run until it is closed
    throw_if_failed(Answer::unpacked(team_.all_gather(connected.packed())[kReceiver]));
    if (connected.error != 0) throw VerbsError(connected.asked, connected.error);
    if (other.targets.size() != threads_)
        throw TeamError("the other process has another number of buffers");
    return other.targets;
}

}  // namespace heddle::bench
