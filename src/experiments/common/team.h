// SPDX-License-Identifier: BSD-2-Clause
// The processes of one experiment: how they are started, how they tell each other what they need
// to connect their QPs, and how each learns that another is gone. They are forked here, or started
// by mpiexec (common/job.h). Every wait has a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "heddle/detail/assert.h"

namespace heddle::bench {

// A process of the team is gone, or did not come in time.
class TeamError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

using Seconds = std::chrono::duration<double>;

class Team {
public:
    Team(std::uint32_t rank, std::uint32_t size, Seconds patience)
        : rank_(rank), size_(size), patience_(patience) {
        HEDDLE_ASSERT(rank < size, "ranks count from zero");
    }
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;
    virtual ~Team() = default;

    std::uint32_t rank() const noexcept { return rank_; }
    std::uint32_t size() const noexcept { return size_; }
    // How long a process waits for another.
    Seconds patience() const noexcept { return patience_; }

    // Each process gives a value and gets those of all, by rank. One thread of each process calls
    // it. Throws TeamError.
    virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
    // Throws TeamError if a process is known to be gone. Any thread may call it, as long as no
    // process has left the team in order.
    virtual void check() = 0;
    void barrier() { all_gather({}); }

    // The same for plain values.
    template <class T>
    std::vector<T> all_gather_values(const T& mine) {
        return unpacked<T>(all_gather(packed(&mine, 1)));
    }
    // The same for a row of values of each process; all rows have one length.
    template <class T>
    std::vector<std::vector<T>> all_gather_rows(const std::vector<T>& mine) {
        std::vector<std::vector<T>> rows;
        for (const std::string& bytes : all_gather(packed(mine.data(), mine.size()))) {
            rows.emplace_back(bytes.size() / sizeof(T));
            if (!bytes.empty())
                std::memcpy(static_cast<void*>(rows.back().data()), bytes.data(), bytes.size());
        }
        return rows;
    }

private:
    template <class T>
    static std::string packed(const T* values, std::size_t count) {
        static_assert(std::is_trivially_copyable_v<T>);
        return std::string(reinterpret_cast<const char*>(values), count * sizeof(T));
    }
    template <class T>
    static std::vector<T> unpacked(const std::vector<std::string>& all) {
        HEDDLE_ASSERT(!all.empty(), "this process is one of the team");
        std::vector<T> values(all.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (all[i].size() != sizeof(T)) throw TeamError("processes of different programs");
            std::memcpy(static_cast<void*>(&values[i]), all[i].data(), sizeof(T));
        }
        return values;
    }

    std::uint32_t rank_, size_;
    Seconds patience_;
};

struct TeamOptions {
    std::uint32_t processes = 1;
    bool any_size = true;  // a job of mpiexec may have another number of processes
    Seconds patience{60};
    std::string exchange;  // directory where processes of mpiexec meet; empty: see common/job.h
};

// Runs `body` in each process of a team and returns when all are done: the process that calls is
// rank 0 and the others are forked, or this is one of a job that mpiexec has started. Nothing of
// verbs may exist in this process yet, nor a second thread. Returns what `body` returned here, or 1
// if another process failed. Throws TeamError, and what `body` throws.
int run_team(const TeamOptions& options, const std::function<int(Team&)>& body);

}  // namespace heddle::bench
