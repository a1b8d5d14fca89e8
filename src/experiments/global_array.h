// SPDX-License-Identifier: BSD-2-Clause
// The global array kernel of ICPADS'18, section VII: C = A B, whose matrices lie in the memory of
// one process. Each thread of another fetches tiles of A and B by RDMA read, multiplies them, and
// puts tiles of C by RDMA write; the first process does nothing meanwhile. Each of a thread's three
// tiles has a memory region of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "experiments/common/poster.h"
#include "experiments/common/team.h"
#include "heddle/endpoint.h"

namespace heddle::bench {

struct GlobalArray {
    std::string device;
    Category category = Category::kMpiEverywhere;
    Path path = Path::kVerbs;
    // kConservative: as the paper. Each row of a tile is posted by itself and has a completion;
    // rows of C that fit go inline. A thread writes its tile of C after each product of two tiles,
    // with the sum so far. kBatched: the rows of two tiles are one list, and C is written once.
    PostMode mode = PostMode::kConservative;
    std::uint32_t threads = 1;
    std::uint32_t matrix = 128;   // rows and columns
    std::uint32_t tile = 4;       // the same; those at the edges may be smaller
    std::uint32_t depth = 128;    // of a send queue
    int repetitions = 5;          // after one to warm up
    std::vector<int> processors;  // thread t runs on the t-th (see common/pinning.h)
    // Tests do here what a fault would do to the result, before it is checked.
    std::function<void(std::span<double> c)> spoil;
};

struct GlobalArrayResult {
    std::vector<double> seconds;  // of each repetition, from the first begin to the last end
    std::uint64_t reads = 0, writes = 0;  // messages of one repetition
    // The sum of the threads' own rates while they read, and while they write. If threads outnumber
    // the cores: of as many threads as run at a time.
    std::vector<double> read_mmsgs_per_s;
    std::vector<double> write_mmsgs_per_s;
    std::string wrong;  // the first wrong element, or empty
    Usage usage;        // of the process with the threads, the regions of its tiles included
};

// By both processes of a team of two: rank 0 has the matrices, rank 1 the threads. Both get the
// result. Throws VerbsError, TeamError.
GlobalArrayResult run_global_array(Team& team, const GlobalArray& parameters);

// The matrices A and B of the experiment: small integers, so that every product and sum is exact in
// whatever order.
std::vector<double> example_matrix(std::uint32_t n, std::uint32_t seed);
std::vector<double> serial_product(std::span<const double> a, std::span<const double> b,
                                   std::uint32_t n);
// Says which element of an n x n matrix is not what it should be; empty if all are.
std::string first_difference(std::span<const double> got, std::span<const double> expected,
                             std::uint32_t columns);

}  // namespace heddle::bench
