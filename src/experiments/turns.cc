// SPDX-License-Identifier: BSD-2-Clause
#include "experiments/turns.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>

namespace heddle::bench {
namespace {

constexpr int kTurnPatience = 60;  // seconds

}  // namespace

Turns::Turns() {
    for (Board::Team& team : board_->teams) {
        sem_init(&team.done, 1, 0);
        for (Board::Process& each : team.processes)
            sem_init(&each.go, 1, 0);
    }
}

Turns::~Turns() {
    for (const pid_t each : processes_)
        ::kill(each, SIGKILL);
    wait_for_all();
}

void Turns::wait_for_all() noexcept {
    for (const pid_t each : processes_)
        ::waitpid(each, nullptr, 0);
    processes_.clear();
}

void Turns::fail(const std::string& why) noexcept {
    if (!board_->failed.exchange(true))
        std::strncpy(board_->why, why.c_str(), sizeof board_->why - 1);
}

void Turns::throw_if_failed() const {
    if (board_->failed) throw std::runtime_error(board_->why);
}

bool Turns::wait(sem_t& semaphore) noexcept {
    timespec until{};
    ::clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += kTurnPatience;
    while (::sem_timedwait(&semaphore, &until) != 0)
        if (errno != EINTR) {
            fail("a process does not come");
            return false;
        }
    return !board_->failed;
}

void Turns::start(std::uint32_t team, const std::function<void(std::uint32_t)>& body) {
    HEDDLE_ASSERT(team < kMostTeams && sizes_[team] < kMostProcesses,
                  "the board has places for so many");
    HEDDLE_ASSERT(!board_->over, "no process begins after the last turn");
    const std::uint32_t rank = sizes_[team];
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("no more processes");
    if (child != 0) {
        ++sizes_[team];
        processes_.push_back(child);
        return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    processes_.clear();  // they are not this process's
    try {
        body(rank);
    } catch (const std::exception& error) {
        fail(error.what());
        for (Board::Team& each : board_->teams)
            ::sem_post(&each.done);
        ::_exit(1);
    }
    ::_exit(0);
}

void Turns::wait_until_done(std::uint32_t team) {
    HEDDLE_ASSERT(team < kMostTeams && sizes_[team] != 0, "the team has processes");
    for (std::uint32_t i = 0; i < sizes_[team]; ++i)
        wait(board_->teams[team].done);
    throw_if_failed();
}

void Turns::turn(std::uint32_t team) {
    for (std::uint32_t i = 0; i < sizes_[team]; ++i)
        ::sem_post(&board_->teams[team].processes[i].go);
    wait_until_done(team);
}

void Turns::end() {
    HEDDLE_ASSERT(!board_->over, "the turns end once");
    board_->over = true;
    for (std::uint32_t team = 0; team < kMostTeams; ++team)
        for (std::uint32_t i = 0; i < sizes_[team]; ++i)
            ::sem_post(&board_->teams[team].processes[i].go);
    wait_for_all();
    throw_if_failed();
}

bool Turns::next(std::uint32_t team, std::uint32_t rank) {
    HEDDLE_ASSERT(team < kMostTeams && rank < kMostProcesses, "the process has its place");
    // Without a time limit: the driving process may take long between turns, and its end ends its
    // children.
    while (::sem_wait(&board_->teams[team].processes[rank].go) != 0) {
    }
    return !board_->over && !board_->failed;
}

void Turns::done(std::uint32_t team) { ::sem_post(&board_->teams[team].done); }

}  // namespace heddle::bench
