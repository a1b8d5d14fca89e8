// SPDX-License-Identifier: BSD-2-Clause
// The stencil kernel of ICPADS'18, section VII: a 5-point stencil on a grid whose rows are divided
// among the threads of several processes. Each thread has two QPs, one to the thread with the rows
// above and one to that with the rows below, and one CQ; halos are exchanged by RDMA write.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "experiments/common/team.h"
#include "heddle/endpoint.h"

namespace heddle::bench {

struct Stencil {
    std::string device;
    Category category = Category::kMpiEverywhere;
    Path path = Path::kVerbs;
    std::uint32_t threads = 1;                // of each process
    std::uint32_t rows = 256, columns = 256;  // of the grid, without its fixed border
    std::uint32_t iterations = 200;
    std::uint32_t depth = 128;  // of a send queue
    int repetitions = 5;        // after one to warm up
    // Thread t of process r runs on the (r * threads + t)-th (see common/pinning.h).
    std::vector<int> processors;
    // Tests do here what a fault would do to the result, before it is checked.
    void (*spoil)(std::span<double> grid) = nullptr;
};

struct StencilResult {
    std::vector<double> seconds;  // of each repetition, from the first begin to the last end
    std::uint64_t messages = 0;   // of one repetition: rows of halo, and the flags behind them
    std::string wrong;            // the first wrong element, or empty
    Usage usage;                  // of each process
};

// By all processes of the team, which all get the result. Throws VerbsError, TeamError.
StencilResult run_stencil(Team& team, const Stencil& parameters);

// A grid with its border of one element on each side, row by row, as it is at the beginning.
std::vector<double> initial_grid(std::uint32_t rows, std::uint32_t columns);
// The same after so many iterations, by one thread.
std::vector<double> serial_stencil(std::uint32_t rows, std::uint32_t columns,
                                   std::uint32_t iterations);

// Which rows of the grid are whose. Workers are the threads of all processes; their rows follow
// each other. Processes take turns: what is above and below the threads of one process is in two
// other processes, to which its QPs lead. So it is in mpi+threads, too, where all threads of a
// process have the same two QPs.
struct Partition {
    std::uint32_t processes, threads, rows;

    std::uint32_t workers() const { return processes * threads; }
    std::uint32_t worker(std::uint32_t process, std::uint32_t thread) const {
        return thread * processes + process;
    }
    std::uint32_t process_of(std::uint32_t worker) const { return worker % processes; }
    std::uint32_t thread_of(std::uint32_t worker) const { return worker / processes; }
    std::uint32_t first_row(std::uint32_t worker) const {
        return static_cast<std::uint32_t>(std::uint64_t{rows} * worker / workers());
    }
};

}  // namespace heddle::bench
