// SPDX-License-Identifier: BSD-2-Clause
// Forked processes: a socket pair between rank 0 and each of the others. A process that ends, in
// whatever way, closes its end, so that rank 0 learns of it at once, and the others from rank 0.
#include "experiments/common/team.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "experiments/common/job.h"

namespace heddle::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLookEveryMs = 100;

std::string process(std::uint32_t rank) { return "process " + std::to_string(rank); }

class ForkedTeam final : public Team {
public:
    // sockets: to ranks 1, 2, ... by rank 0; by others, one to rank 0.
    ForkedTeam(std::uint32_t rank, std::uint32_t size, Seconds patience, std::vector<int> sockets)
        : Team(rank, size, patience), sockets_(std::move(sockets)) {
        HEDDLE_ASSERT(sockets_.size() == (rank == 0 ? size - 1 : 1),
                      "rank 0 has a socket to each process, and each one to rank 0");
    }
    ~ForkedTeam() override {
        for (const int socket : sockets_)
            ::close(socket);
    }

    std::vector<std::string> all_gather(const std::string& mine) override {
        std::vector<std::string> all(size());
        if (rank() == 0) {
            all[0] = mine;
            for (std::uint32_t r = 1; r < size(); ++r)
                all[r] = receive(r - 1);
            for (std::uint32_t r = 1; r < size(); ++r)
                for (const std::string& each : all)
                    send(r - 1, each);
        } else {
            send(0, mine);
            for (std::string& each : all)
                each = receive(0);
        }
        return all;
    }

    void check() override {
        for (std::size_t i = 0; i < sockets_.size(); ++i) {
            pollfd waited{sockets_[i], POLLRDHUP, 0};
            if (::poll(&waited, 1, 0) == 1) gone(i);
        }
    }

private:
    std::uint32_t rank_of(std::size_t i) const {
        HEDDLE_ASSERT(i < sockets_.size(), "each socket leads to one process");
        return rank() == 0 ? static_cast<std::uint32_t>(i) + 1 : 0;
    }
    [[noreturn]] void gone(std::size_t i) const {
        throw TeamError(process(rank_of(i)) + " is gone");
    }

    void wait_for(std::size_t i, short events, Clock::time_point end) {
        for (;;) {
            pollfd waited{sockets_[i], events, 0};
            if (::poll(&waited, 1, kLookEveryMs) == 1) return;
            // A process that waits for one learns of the end of another, which may be why the first
            // is late. Not while it sends: at the end, a process that has its answer may leave.
            if (events == POLLIN) check();
            if (Clock::now() > end)
                throw TeamError(process(rank_of(i)) + " did not answer in time");
        }
    }

    void send(std::size_t i, const std::string& bytes) {
        const std::uint64_t length = bytes.size();
        send(i, reinterpret_cast<const char*>(&length), sizeof length);
        send(i, bytes.data(), bytes.size());
    }
    void send(std::size_t i, const char* at, std::size_t left) {
        const auto end = deadline();
        while (left != 0) {
            const ssize_t sent = ::send(sockets_[i], at, left, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno != EAGAIN && errno != EINTR) gone(i);
            if (sent < 0) wait_for(i, POLLOUT, end);
            if (sent <= 0) continue;
            at += sent;
            left -= static_cast<std::size_t>(sent);
        }
    }
    std::string receive(std::size_t i) {
        std::uint64_t length = 0;
        receive(i, reinterpret_cast<char*>(&length), sizeof length);
        std::string bytes(length, '\0');
        receive(i, bytes.data(), length);
        return bytes;
    }
    void receive(std::size_t i, char* at, std::size_t left) {
        const auto end = deadline();
        while (left != 0) {
            const ssize_t got = ::recv(sockets_[i], at, left, MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) gone(i);
            if (got < 0) wait_for(i, POLLIN, end);
            if (got <= 0) continue;
            at += got;
            left -= static_cast<std::size_t>(got);
        }
    }
    Clock::time_point deadline() const {
        return Clock::now() + std::chrono::duration_cast<Clock::duration>(patience());
    }

    std::vector<int> sockets_;
};

// Children that have been forked: none outlives its parent's interest in it.
class Children {
public:
    void add(pid_t child) { children_.push_back(child); }
    // True if all ended with status 0. Those that have not ended in time are killed.
    bool join(Seconds patience) {
        const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
        bool good = true;
        for (std::size_t i = 0; i < children_.size(); ++i) {
            int status = 0;
            bool killed = false;
            while (::waitpid(children_[i], &status, killed ? 0 : WNOHANG) != children_[i]) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
                if (Clock::now() < end) continue;
                ::kill(children_[i], SIGKILL);
                killed = true;
            }
            if (WIFSIGNALED(status))
                std::fprintf(stderr, "heddle: process %zu was ended by signal %d\n", i + 1,
                             WTERMSIG(status));
            good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
        children_.clear();
        return good;
    }
    // After a failure of this process: the others have heard of it and end by themselves.
    ~Children() { join(Seconds(5)); }

private:
    std::vector<pid_t> children_;
};

[[noreturn]] void be_child(std::uint32_t rank, const TeamOptions& options, int socket,
                           const std::function<int(Team&)>& body) {
    int status = 1;
    try {
        ForkedTeam team(rank, options.processes, options.patience, {socket});
        status = body(team);
        team.barrier();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "heddle: process %u: %s\n", rank, error.what());
    }
    std::exit(status);
}

int run_forked(const TeamOptions& options, const std::function<int(Team&)>& body) {
    HEDDLE_ASSERT(options.processes != 0, "this process is one of the team");
    std::fflush(nullptr);  // or each would write it
    Children children;     // joined after `team` has closed its sockets
    std::vector<int> sockets;
    int status;
    {
        for (std::uint32_t r = 1; r < options.processes; ++r) {
            int pair[2];
            if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
                throw TeamError("no socket for another process");
            const pid_t child = ::fork();
            if (child < 0) throw TeamError("another process cannot be started");
            if (child == 0) {
                ::close(pair[0]);
                for (const int other : sockets)
                    ::close(other);
                be_child(r, options, pair[1], body);
            }
            ::close(pair[1]);
            sockets.push_back(pair[0]);
            children.add(child);
        }
        HEDDLE_ASSERT(sockets.size() + 1 == options.processes, "each other process was forked");
        ForkedTeam team(0, options.processes, options.patience, sockets);
        status = body(team);
        team.barrier();
    }
    const bool good = children.join(options.patience);
    return status != 0 ? status : good ? 0 : 1;
}

}  // namespace

int run_team(const TeamOptions& options, const std::function<int(Team&)>& body) {
    const std::optional<Job> job = job_of_environment();
    if (!job) return run_forked(options, body);
    if (!options.any_size && job->size != options.processes)
        throw TeamError("the job has " + std::to_string(job->size) + " processes, and this needs " +
                        std::to_string(options.processes));
    const auto team = meet_in(options.exchange.empty() ? default_exchange(*job) : options.exchange,
                              *job, options.patience);
    const int status = body(*team);
    team->barrier();
    return status;
}

}  // namespace heddle::bench
