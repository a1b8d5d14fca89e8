// SPDX-License-Identifier: BSD-2-Clause
// Teams of processes that exist at the same time and take turns, so that the sides of a comparison
// see the same machine. Between their turns they sleep. One process drives them.
#pragma once

#include <semaphore.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "heddle/detail/assert.h"
#include "protocol/common/endpoint_address.h"

namespace heddle::bench {

// An object that forked processes see, too.
template <class T>
class SharedObject {
public:
    SharedObject() : object_(make()) {}
    T& operator*() const noexcept { return *object_; }
    T* operator->() const noexcept { return object_.get(); }

private:
    struct Unmap {
        void operator()(T* object) const noexcept { ::munmap(object, sizeof *object); }
    };
    static T* make() {
        void* const memory =
            ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::runtime_error("no memory that processes share");
        return new (memory) T;
    }
    std::unique_ptr<T, Unmap> object_;
};

class Turns {
public:
    static constexpr std::uint32_t kMostTeams = 8, kMostProcesses = 8;  // of a team

    Turns();
    ~Turns();  // those that were started end, however this does
    Turns(const Turns&) = delete;
    Turns& operator=(const Turns&) = delete;

    // For the driving process. All throw std::runtime_error if a process has failed.
    // Starts one more process of a team: it runs `body` with its rank, prepares itself, calls
    // done(), and takes part as long as next() is true.
    void start(std::uint32_t team, const std::function<void(std::uint32_t rank)>& body);
    void wait_until_done(std::uint32_t team);
    void turn(std::uint32_t team);
    void end();  // no more turns; waits for all to end
    // Calls run(team) for each team, `repetitions` times. The team that comes second finds caches
    // warm, so another team is the first in each repetition.
    template <class Run>
    void repeat(std::uint32_t teams, std::uint32_t repetitions, const Run& run) {
        HEDDLE_ASSERT(teams <= kMostTeams, "the board has places for so many");
        for (std::uint32_t i = 0; i < repetitions; ++i)
            for (std::uint32_t n = 0; n < teams; ++n)
                run((i + n) % teams);
    }

    // For the processes that were started.
    bool next(std::uint32_t team, std::uint32_t rank);
    void done(std::uint32_t team);
    void throw_if_failed() const;
    void fail(const std::string& why) noexcept;
    protocol::EndpointAddress& name(std::uint32_t team, std::uint32_t rank) noexcept {
        HEDDLE_ASSERT(team < kMostTeams && rank < kMostProcesses, "the process has its place");
        return board_->teams[team].processes[rank].name;
    }
    // How many processes have entered barriers since the start.
    std::atomic<std::uint32_t>& at_barrier(std::uint32_t team) noexcept {
        HEDDLE_ASSERT(team < kMostTeams, "the team has its place");
        return board_->teams[team].at_barrier;
    }

private:
    // A process's fields are written by itself before its first done().
    struct Board {
        struct Process {
            sem_t go;
            protocol::EndpointAddress name;
        };
        struct Team {
            Process processes[kMostProcesses];
            sem_t done;  // once for each process
            std::atomic<std::uint32_t> at_barrier{0};
        };
        Team teams[kMostTeams];
        bool over = false;
        std::atomic<bool> failed{false};
        char why[200] = "";
    };
    bool wait(sem_t& semaphore) noexcept;
    void wait_for_all() noexcept;

    SharedObject<Board> board_;
    std::uint32_t sizes_[kMostTeams] = {};
    std::vector<pid_t> processes_;
};

}  // namespace heddle::bench
