// SPDX-License-Identifier: BSD-2-Clause
// The stencil kernel of ICPADS'18, section VII: a 5-point stencil on a grid whose columns are
// divided among the processes, around a ring, and whose rows among the threads of each. A thread
// has two QPs, one to the same thread of the process on the left and one to that on the right, and
// one CQ. Halos are columns: each element is a message by RDMA write, posted alone, inline, with a
// completion.
#pragma once

#include <cstdint>
#include <functional>
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
    std::uint32_t threads = 1;               // of each process
    std::uint32_t rows = 256, columns = 64;  // without the fixed rows above and below
    std::uint32_t iterations = 50;
    std::uint32_t depth = 128;  // of a send queue
    int repetitions = 5;        // after one to warm up
    // Thread t of process r runs on the (r * threads + t)-th (see common/pinning.h).
    std::vector<int> processors;
    // Tests do here what a fault would do to the result, before it is checked.
    std::function<void(std::span<double> grid)> spoil;
};

struct StencilResult {
    std::vector<double> seconds;  // of each repetition, from the first begin to the last end
    std::uint64_t messages = 0;   // of one repetition and all processes: elements of halos
    std::string wrong;            // the first wrong element, or empty
    Usage usage;                  // of each process
};

// By all processes of the team, which all get the result. Throws VerbsError, TeamError.
StencilResult run_stencil(Team& team, const Stencil& parameters);

// A grid with the fixed rows above and below it, row by row, as it is at the beginning. The first
// column and the last are neighbours.
std::vector<double> initial_grid(std::uint32_t rows, std::uint32_t columns);
// The same after so many iterations, by one thread.
std::vector<double> serial_stencil(std::uint32_t rows, std::uint32_t columns,
                                   std::uint32_t iterations);

// Which part of the grid is whose. It is the same rows for the same thread of all processes.
struct Partition {
    std::uint32_t processes, threads, rows, columns;

    std::uint32_t left_of(std::uint32_t process) const {
        return (process + processes - 1) % processes;
    }
    std::uint32_t right_of(std::uint32_t process) const { return (process + 1) % processes; }
    std::uint32_t first_row(std::uint32_t thread) const { return share(rows, thread, threads); }
    std::uint32_t first_column(std::uint32_t process) const {
        return share(columns, process, processes);
    }
    std::uint32_t rows_of(std::uint32_t thread) const {
        return first_row(thread + 1) - first_row(thread);
    }
    std::uint32_t columns_of(std::uint32_t process) const {
        return first_column(process + 1) - first_column(process);
    }

private:
    static std::uint32_t share(std::uint64_t all, std::uint32_t part, std::uint32_t parts) {
        return static_cast<std::uint32_t>(all * part / parts);
    }
};

}  // namespace heddle::bench
