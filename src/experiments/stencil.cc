// SPDX-License-Identifier: BSD-2-Clause
// How halos are exchanged: an element of a halo is its own flag, so the messages are the paper's
// and no others. A halo's place holds a NaN that no computation makes until the neighbour's element
// has arrived. The thread that has used it puts the NaN back. There are two states of a tile, used
// in turn, each with its halos. That is enough: a neighbour writes halo s + 2 after it has computed
// state s + 2. For that it needs halo s + 1 of this side, which this thread sends after it has used
// halo s and put the NaN back.
#include "experiments/stencil.h"

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "experiments/common/poster.h"
#include "experiments/global_array.h"
#include "heddle/detail/assert.h"

namespace heddle::bench {
namespace {

using post::Opcode;
using post::WorkRequest;

constexpr std::uint32_t kLeft = 0, kRight = 1, kSides = 2;  // a thread's QPs
constexpr std::uint64_t kAbsent = 0x7ff8'0000'6865'6464;    // a NaN

std::uint32_t other(std::uint32_t side) { return 1 - side; }

// One row: out = the mean of the five around each element. Everybody uses this one, in one order of
// operations, so results are equal to the last bit.
[[gnu::noinline]] void relax(const double* above, const double* row, const double* below,
                             double* out, std::uint32_t columns) {
    for (std::uint32_t j = 1; j <= columns; ++j)
        out[j] = 0.2 * (row[j] + above[j] + below[j] + row[j - 1] + row[j + 1]);
}

// Where the elements of a tile are in the registered buffer of its thread: rows follow each other,
// each with an element of halo at both ends.
struct Layout {
    std::uint32_t rows, columns;

    std::size_t width() const { return std::size_t{columns} + 2; }
    std::size_t element(std::uint64_t step, std::uint32_t row, std::size_t column) const {
        HEDDLE_DEBUG_ASSERT(row < rows && column < width(), "a tile has its own elements");
        return (std::size_t{step % 2} * rows + row) * width() + column;
    }
    std::size_t halo(std::uint32_t side) const { return side == kLeft ? 0 : columns + 1; }
    std::size_t bytes() const { return 2 * rows * width() * sizeof(double); }
};

// What a neighbour needs of a thread.
struct CellAddress {
    QpAddress qps[kSides];
    std::uint64_t memory = 0;
    std::uint32_t key = 0;
};

// The threads of a process wait for each other after each iteration, as the paper's do.
class IterationBarrier {
public:
    explicit IterationBarrier(std::uint32_t threads) : threads_(threads) {}
    // count: how often the thread has come here, this time included.
    void wait_for(std::uint64_t count, Workers& workers) {
        arrived_.fetch_add(1, std::memory_order_acq_rel);
        Wait wait(workers, "a thread of this process");
        while (arrived_.load(std::memory_order_acquire) < count * threads_)
            wait.again();
    }

private:
    const std::uint64_t threads_;
    alignas(64) std::atomic<std::uint64_t> arrived_{0};
};

class StencilWorker {
public:
    StencilWorker(const Stencil& s, const Partition& p, std::uint32_t process, std::uint32_t thread,
                  Endpoint& endpoint)
        : s_(s),
          p_(p),
          layout_{p.rows_of(thread), p.columns_of(process)},
          process_(process),
          thread_(thread),
          endpoint_(endpoint) {
        HEDDLE_ASSERT(layout_.rows != 0 && layout_.columns != 0, "each has a part of the grid");
        HEDDLE_ASSERT(layout_.bytes() <= endpoint.buffer_bytes());
    }

    CellAddress address() const {
        CellAddress a;
        for (std::uint32_t k = 0; k < kSides; ++k)
            a.qps[k] = endpoint_.address(k);
        a.memory = address_of(endpoint_.buffer());
        a.key = endpoint_.mr()->rkey;
        return a;
    }
    void set_neighbour(std::uint32_t side, const CellAddress& a) { neighbours_[side] = a; }

    // The grid as it is at the beginning. Not while a neighbour runs.
    void reset(const std::vector<double>& grid) {
        step_ = 0;
        for (std::uint32_t row = 0; row < layout_.rows; ++row) {
            std::copy_n(of_grid(grid, p_.first_row(thread_) + row + 1), layout_.columns,
                        at(0, row, 1));
            for (std::uint64_t state = 0; state < 2; ++state)
                for (std::uint32_t side = 0; side < kSides; ++side)
                    forget_halo(state, side, row);
        }
    }
    // The threads of the rows above and below, of the same process; nullptr: the grid ends there.
    void set_vertical(const StencilWorker* above, const StencilWorker* below,
                      const std::vector<double>& grid) {
        above_ = above;
        below_ = below;
        fixed_above_ = fixed_row(grid, 0);
        fixed_below_ = fixed_row(grid, p_.rows + 1);
    }

    template <class Poster>
    void run(Poster& poster, Workers& workers, IterationBarrier& barrier) {
        for (std::uint32_t i = 0; i < s_.iterations; ++i, ++step_) {
            for (std::uint32_t side = 0; side < kSides; ++side)
                send(poster, side);
            poster.finish();
            for (std::uint32_t side = 0; side < kSides; ++side)
                for (std::uint32_t row = 0; row < layout_.rows; ++row)
                    wait_for_halo(workers, side, row);
            for (std::uint32_t row = 0; row < layout_.rows; ++row)
                relax(above(row), at(step_, row, 0), below(row), at(step_ + 1, row, 0),
                      layout_.columns);
            for (std::uint32_t side = 0; side < kSides; ++side)
                for (std::uint32_t row = 0; row < layout_.rows; ++row)
                    forget_halo(step_, side, row);
            barrier.wait_for(++barriers_, workers);
        }
    }

    // Appends the rows of the last state, from which process 0 assembles the grid.
    void append_result(std::vector<double>& to) const {
        for (std::uint32_t row = 0; row < layout_.rows; ++row) {
            const double* const from = at(step_, row, 1);
            to.insert(to.end(), from, from + layout_.columns);
        }
    }

private:
    double* at(std::uint64_t step, std::uint32_t row, std::size_t column) const {
        return reinterpret_cast<double*>(endpoint_.buffer()) + layout_.element(step, row, column);
    }
    // The process's columns of a row of the grid, fixed rows included.
    const double* of_grid(const std::vector<double>& grid, std::size_t row) const {
        const std::size_t first = row * p_.columns + p_.first_column(process_);
        HEDDLE_ASSERT(first + layout_.columns <= grid.size(), "the tile is part of the grid");
        return grid.data() + first;
    }
    std::vector<double> fixed_row(const std::vector<double>& grid, std::size_t row) const {
        std::vector<double> fixed(layout_.width());  // nobody looks at its ends
        std::copy_n(of_grid(grid, row), layout_.columns, fixed.data() + 1);
        return fixed;
    }
    const double* above(std::uint32_t row) const {
        if (row != 0) return at(step_, row - 1, 0);
        return above_ != nullptr ? above_->at(step_, above_->layout_.rows - 1, 0)
                                 : fixed_above_.data();
    }
    const double* below(std::uint32_t row) const {
        if (row + 1 != layout_.rows) return at(step_, row + 1, 0);
        return below_ != nullptr ? below_->at(step_, 0, 0) : fixed_below_.data();
    }

    // The first or last column of the tile, into the halo of the neighbour on that side.
    template <class Poster>
    void send(Poster& poster, std::uint32_t side) {
        const CellAddress& to = neighbours_[side];
        const std::uint32_t neighbour =
            side == kLeft ? p_.left_of(process_) : p_.right_of(process_);
        const Layout theirs{layout_.rows, p_.columns_of(neighbour)};
        WorkRequest work;
        work.opcode = Opcode::kWrite;
        work.flags = post::kInline;
        work.remote_key = to.key;
        for (std::uint32_t row = 0; row < layout_.rows; ++row) {
            const ibv_sge element{address_of(at(step_, row, side == kLeft ? 1 : layout_.columns)),
                                  sizeof(double), endpoint_.mr()->lkey};
            work.sges = {&element, 1};
            // I am on the right of the one on my left.
            work.remote_address =
                to.memory + theirs.element(step_, row, theirs.halo(other(side))) * sizeof(double);
            poster.post(work, side, row + 1 == layout_.rows);
        }
    }

    std::atomic_ref<std::uint64_t> halo(std::uint64_t step, std::uint32_t side,
                                        std::uint32_t row) const {
        return std::atomic_ref(
            *reinterpret_cast<std::uint64_t*>(at(step, row, layout_.halo(side))));
    }
    // The device writes it. A post orders this store before a neighbour's next write.
    void forget_halo(std::uint64_t step, std::uint32_t side, std::uint32_t row) const {
        halo(step, side, row).store(kAbsent, std::memory_order_relaxed);
    }
    void wait_for_halo(Workers& workers, std::uint32_t side, std::uint32_t row) const {
        const auto element = halo(step_, side, row);
        Wait wait(workers, "a neighbour's halo");
        while (element.load(std::memory_order_acquire) == kAbsent)
            wait.again();
    }

    const Stencil& s_;
    const Partition& p_;
    const Layout layout_;
    const std::uint32_t process_, thread_;
    Endpoint& endpoint_;
    CellAddress neighbours_[kSides];
    const StencilWorker *above_ = nullptr, *below_ = nullptr;
    std::vector<double> fixed_above_, fixed_below_;
    std::uint64_t step_ = 0;      // of this repetition
    std::uint64_t barriers_ = 0;  // of all
};

// A thread's left QP leads to the right QP of the same thread on the left.
void connect(Team& team, const Partition& p, bool shared_qps, EndpointSet& set,
             std::vector<StencilWorker>& workers) {
    std::vector<CellAddress> mine;
    for (const StencilWorker& worker : workers)
        mine.push_back(worker.address());
    const std::vector<std::vector<CellAddress>> all = team.all_gather_rows(mine);
    HEDDLE_ASSERT(workers.size() == p.threads && all.size() == p.processes);
    for (std::uint32_t t = 0; t < p.threads; ++t) {
        const CellAddress& left = all[p.left_of(team.rank())][t];
        const CellAddress& right = all[p.right_of(team.rank())][t];
        workers[t].set_neighbour(kLeft, left);
        workers[t].set_neighbour(kRight, right);
        if (shared_qps && t != 0) continue;
        set[t].connect(left.qps[kRight], kLeft);
        set[t].connect(right.qps[kLeft], kRight);
    }
}

// Puts the tiles of all processes into the grid. `tiles`: of each process, row by row.
void put_together(const Partition& p, const std::vector<std::vector<double>>& tiles,
                  std::vector<double>& grid) {
    for (std::uint32_t process = 0; process < p.processes; ++process) {
        const std::size_t columns = p.columns_of(process);
        if (tiles[process].size() != columns * p.rows) continue;  // it will be found wrong
        for (std::size_t row = 0; row < p.rows; ++row)
            std::copy_n(tiles[process].data() + row * columns, columns,
                        grid.data() + (row + 1) * p.columns + p.first_column(process));
    }
}

void refuse_a_grid_too_small(const Partition& p) {
    const auto refuse = [](std::uint32_t has, const char* what, std::uint32_t parts,
                           const char* whose) {
        if (has < parts)
            throw TeamError("a grid of " + std::to_string(has) + " " + what + " for " +
                            std::to_string(parts) + " " + whose + ": each needs one");
    };
    refuse(p.rows, "rows", p.threads, "threads of a process");
    refuse(p.columns, "columns", p.processes, "processes");
}

}  // namespace

std::vector<double> initial_grid(std::uint32_t rows, std::uint32_t columns) {
    std::vector<double> grid((std::size_t{rows} + 2) * columns);
    std::uint32_t state = 1;
    for (double& element : grid) {
        state = state * 1664525 + 1013904223;
        element = static_cast<double>(state >> 8) / (1 << 24);
    }
    return grid;
}

std::vector<double> serial_stencil(std::uint32_t rows, std::uint32_t columns,
                                   std::uint32_t iterations) {
    const std::vector<double> initial = initial_grid(rows, columns);
    const std::size_t width = std::size_t{columns} + 2;
    // Each row with its neighbours around the ring at both ends.
    std::vector<double> now((std::size_t{rows} + 2) * width), next(now.size());
    for (std::size_t row = 0; row < std::size_t{rows} + 2; ++row)
        for (std::vector<double>* const state : {&now, &next})
            std::copy_n(initial.data() + row * columns, columns, state->data() + row * width + 1);
    for (std::uint32_t i = 0; i < iterations; ++i) {
        for (std::size_t row = 1; row <= rows; ++row) {
            double* const middle = now.data() + row * width;
            middle[0] = middle[columns];
            middle[columns + 1] = middle[1];
            relax(middle - width, middle, middle + width, next.data() + row * width, columns);
        }
        now.swap(next);
    }
    std::vector<double> grid(initial.size());
    for (std::size_t row = 0; row < std::size_t{rows} + 2; ++row)
        std::copy_n(now.data() + row * width + 1, columns, grid.data() + row * columns);
    return grid;
}

StencilResult run_stencil(Team& team, const Stencil& s) {
    const Partition p{team.size(), s.threads, s.rows, s.columns};
    refuse_a_grid_too_small(p);
    HEDDLE_ASSERT(p.first_row(p.threads) == s.rows && p.first_column(p.processes) == s.columns,
                  "the workers have all of the grid");
    EndpointOptions options;
    options.path = s.path;
    options.depth = s.depth;
    options.qps_per_thread = kSides;
    for (std::uint32_t t = 0; t < s.threads; ++t)
        options.buffer_bytes =
            std::max(options.buffer_bytes, Layout{p.rows_of(t), p.columns_of(team.rank())}.bytes());
    EndpointSet set(s.device, s.category, s.threads, options);
    const bool shared_qps = sharing_of(s.category, s.threads).qp > 1;

    const std::vector<double> initial = initial_grid(s.rows, s.columns);
    Workers threads(team, s.processors, team.rank() * s.threads);
    IterationBarrier barrier(s.threads);
    CompletionTracker tracker(s.threads, kSides);
    std::vector<StencilWorker> workers;
    std::vector<Posting> postings;
    workers.reserve(s.threads);  // they point to each other
    for (std::uint32_t t = 0; t < s.threads; ++t) {
        workers.emplace_back(s, p, team.rank(), t, set[t]);
        postings.emplace_back(t, kSides, shared_qps ? s.depth / s.threads : s.depth,
                              PostMode::kConservative);
    }
    for (std::uint32_t t = 0; t < s.threads; ++t)
        workers[t].set_vertical(t != 0 ? &workers[t - 1] : nullptr,
                                t + 1 != s.threads ? &workers[t + 1] : nullptr, initial);
    connect(team, p, shared_qps, set, workers);

    StencilResult result;
    result.messages = std::uint64_t{kSides} * s.rows * p.processes * s.iterations;
    // by one process alone: with all cores busy it would take as many times as long
    std::vector<double> expected;
    if (team.rank() == 0) expected = serial_stencil(s.rows, s.columns, s.iterations);
    for (int r = -1; r < s.repetitions; ++r) {
        for (StencilWorker& worker : workers)
            worker.reset(initial);
        team.barrier();
        const Stretch stretch = threads.run(s.threads, [&](std::uint32_t t) {
            set[t].visit([&](auto& queues) {
                Poster poster(queues, tracker, threads, postings[t]);
                workers[t].run(poster, threads, barrier);
            });
        });
        const auto all = team.all_gather_values(stretch);
        if (r >= 0) result.seconds.push_back(seconds_of(all));
        std::vector<double> tile;
        for (const StencilWorker& worker : workers)
            worker.append_result(tile);
        HEDDLE_ASSERT(tile.size() == std::size_t{s.rows} * p.columns_of(team.rank()),
                      "the threads have all rows of a process");
        const auto tiles = team.all_gather_rows(tile);
        if (team.rank() != 0) continue;
        std::vector<double> grid = initial;
        put_together(p, tiles, grid);
        if (s.spoil) s.spoil(grid);
        if (result.wrong.empty()) result.wrong = first_difference(grid, expected, s.columns);
    }
    result.wrong = team.all_gather(result.wrong)[0];
    result.usage = set.usage();
    return result;
}

}  // namespace heddle::bench
