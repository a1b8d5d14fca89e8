// SPDX-License-Identifier: BSD-2-Clause
// The kernels of ICPADS'18 between processes are right in every category and on both paths, and
// their checks find wrong results. Each case starts its processes once for all configurations.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "experiments/common/team.h"
#include "experiments/global_array.h"
#include "experiments/stencil.h"

namespace heddle::bench {
namespace {

constexpr Path kPaths[] = {Path::kVerbs, Path::kDirect};

struct Size {
    std::uint32_t processes, threads;
};
std::string text(const testing::TestParamInfo<Size>& info) {
    return std::to_string(info.param.processes) + "x" + std::to_string(info.param.threads);
}

// `kernel(team, category, path)` returns what is wrong. Processes other than the one that runs the
// test report by their exit status only.
template <class Kernel>
int in_all_ways(std::uint32_t processes, const Kernel& kernel) {
    TeamOptions options;
    options.processes = processes;
    return run_team(options, [&](Team& team) {
        int status = 0;
        for (const Category category : kCategories)
            for (const Path path : kPaths) {
                const std::string wrong = kernel(team, category, path);
                if (wrong.empty()) continue;
                status = 1;
                std::fprintf(stderr, "process %u: %s, %s: %s\n", team.rank(),
                             std::string(name(category)).c_str(),
                             path == Path::kVerbs ? "verbs" : "direct", wrong.c_str());
            }
        return status;
    });
}

class StencilKernel : public testing::TestWithParam<Size> {};

TEST_P(StencilKernel, IsThatOfOneThreadToTheLastBit) {
    const auto kernel = [](Team& team, Category category, Path path) {
        Stencil s;
        s.category = category;
        s.path = path;
        s.threads = GetParam().threads;
        s.rows = 13;
        s.columns = 21;
        s.iterations = 15;
        s.depth = 16;
        s.repetitions = 2;
        const StencilResult result = run_stencil(team, s);
        // Each row of each process has a neighbour on either side.
        if (result.messages != 13u * GetParam().processes * 2 * s.iterations)
            return std::string("messages");
        if (result.seconds.size() != 2) return std::string("repetitions");
        return result.wrong;
    };
    EXPECT_EQ(in_all_ways(GetParam().processes, kernel), 0);
}

INSTANTIATE_TEST_SUITE_P(Each, StencilKernel,
                         testing::Values(Size{1, 1}, Size{1, 3}, Size{2, 1}, Size{2, 2}, Size{3, 2},
                                         Size{4, 1}),
                         text);

class GlobalArrayKernel : public testing::TestWithParam<Size> {};

std::string global_array_in(PostMode mode, std::uint32_t threads, Team& team, Category category,
                            Path path) {
    GlobalArray g;
    g.category = category;
    g.path = path;
    g.mode = mode;
    g.threads = threads;
    g.matrix = 14;  // and smaller tiles at the edges
    g.tile = 4;
    g.depth = 16;
    g.repetitions = 2;
    const GlobalArrayResult result = run_global_array(team, g);
    // Four tiles in a row: the rows of the tiles of A, B and C in all products.
    const std::uint64_t writes = mode == PostMode::kConservative ? 4 * 4 * 14 : 4 * 14;
    if (result.reads != 2 * 4 * 4 * 14 || result.writes != writes) return "messages";
    return result.wrong;
}

TEST_P(GlobalArrayKernel, IsThatOfOneThread) {
    const auto kernel = [](Team& team, Category category, Path path) {
        const std::string wrong =
            global_array_in(PostMode::kConservative, GetParam().threads, team, category, path);
        return !wrong.empty()
                   ? wrong
                   : global_array_in(PostMode::kBatched, GetParam().threads, team, category, path);
    };
    EXPECT_EQ(in_all_ways(2, kernel), 0);
}

INSTANTIATE_TEST_SUITE_P(Each, GlobalArrayKernel,
                         testing::Values(Size{2, 1}, Size{2, 2}, Size{2, 4}, Size{2, 20}), text);

// The check reports a wrong result.
template <class Parameters, class Run>
std::string spoiled(Run run, void (*spoil)(std::span<double>)) {
    std::string wrong;
    TeamOptions options;
    options.processes = 2;
    Parameters parameters;
    parameters.repetitions = 1;
    parameters.spoil = spoil;
    run_team(options, [&](Team& team) {
        wrong = run(team, parameters).wrong;
        return 0;
    });
    return wrong;
}

TEST(Kernels, FindAProductThatIsWrong) {
    const std::string wrong = spoiled<GlobalArray>(run_global_array, [](std::span<double> c) {
        c[128 * 3 + 5] += 1;  // of 128 columns
    });
    EXPECT_NE(wrong.find("(3, 5)"), std::string::npos) << wrong;
}

TEST(Kernels, FindAGridThatIsWrongInTheLastBit) {
    const std::string wrong = spoiled<Stencil>(run_stencil, [](std::span<double> grid) {
        double& element = grid[64 * 200 + 7];  // of 64 columns
        element = std::nextafter(element, 2.0);
    });
    EXPECT_NE(wrong.find("(200, 7)"), std::string::npos) << wrong;
}

TEST(Kernels, FindWhatIsMissing) {
    const std::vector<double> expected = example_matrix(4, 1);
    std::vector<double> got = expected;
    EXPECT_EQ(first_difference(got, expected, 4), "");
    got[6] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_NE(first_difference(got, expected, 4), "");
    got = expected;
    got.pop_back();
    EXPECT_NE(first_difference(got, expected, 4), "");
}

// The references against textbook implementations.
TEST(Kernels, HaveReferencesThatAreRight) {
    constexpr std::uint32_t n = 9;
    const std::vector<double> a = example_matrix(n, 1), b = example_matrix(n, 2);
    const std::vector<double> c = serial_product(a, b, n);
    for (std::uint32_t i = 0; i < n; ++i)
        for (std::uint32_t j = 0; j < n; ++j) {
            double sum = 0;
            for (std::uint32_t k = 0; k < n; ++k)
                sum += a[i * n + k] * b[k * n + j];
            ASSERT_EQ(c[i * n + j], sum);
        }
    std::vector<double> grid = initial_grid(n, n);
    for (int iteration = 0; iteration < 5; ++iteration) {
        const std::vector<double> old = grid;
        for (std::uint32_t i = 1; i <= n; ++i)
            for (std::uint32_t j = 0; j < n; ++j) {
                const std::uint32_t row = i * n, left = (j + n - 1) % n, right = (j + 1) % n;
                grid[row + j] = (old[row + j] + old[row - n + j] + old[row + n + j] +
                                 old[row + left] + old[row + right]) /
                                5;
            }
    }
    const std::vector<double> computed = serial_stencil(n, n, 5);
    for (std::size_t i = 0; i < grid.size(); ++i)
        ASSERT_NEAR(computed[i], grid[i], 1e-14);
}

// Every element belongs to one thread of one process, and left and right are each other's opposite.
TEST(Kernels, DivideTheGrid) {
    for (const std::uint32_t processes : {1u, 2u, 3u, 5u})
        for (const std::uint32_t threads : {1u, 2u, 4u}) {
            const Partition p{processes, threads, 37, 11};
            EXPECT_EQ(p.first_row(0), 0u);
            EXPECT_EQ(p.first_row(threads), 37u);
            EXPECT_EQ(p.first_column(0), 0u);
            EXPECT_EQ(p.first_column(processes), 11u);
            for (std::uint32_t t = 0; t < threads; ++t)
                EXPECT_GT(p.rows_of(t), 0u);
            for (std::uint32_t process = 0; process < processes; ++process) {
                EXPECT_GT(p.columns_of(process), 0u);
                EXPECT_EQ(p.left_of(p.right_of(process)), process);
                EXPECT_LT(p.right_of(process), processes);
            }
        }
}

// When a process ends early, the others report it and end.
TEST(Teams, HearThatAProcessIsGone) {
    TeamOptions options;
    options.processes = 3;
    const auto begin = std::chrono::steady_clock::now();
    const auto body = [](Team& team) -> int {
        if (team.rank() == 2) std::_Exit(7);
        team.barrier();
        return 0;
    };
    EXPECT_THROW(run_team(options, body), TeamError);
    EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 20);
}

TEST(Teams, GatherByRank) {
    TeamOptions options;
    options.processes = 4;
    const auto body = [](Team& team) {
        // More bytes than a socket buffers.
        const std::string mine(300000 * team.rank(), static_cast<char>('a' + team.rank()));
        const std::vector<std::string> all = team.all_gather(mine);
        for (std::uint32_t r = 0; r < 4; ++r)
            if (all[r] != std::string(300000 * r, static_cast<char>('a' + r))) return 1;
        return 0;
    };
    EXPECT_EQ(run_team(options, body), 0);
    EXPECT_EQ(run_team(options, [](Team& team) { return team.rank() == 3 ? 5 : 0; }), 1);
}

}  // namespace
}  // namespace heddle::bench
