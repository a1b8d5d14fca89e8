// SPDX-License-Identifier: BSD-2-Clause
// How halos are exchanged: after each row of halo the sender writes the row's number on the same
// QP. A receiver that sees the number has the row, since RDMA writes of a QP are placed in order
// (unless the memory region is registered with relaxed ordering). There are two slots for each
// neighbour, used in turn. That is enough: a neighbour writes row s + 2 after it has computed state
// s + 2, for which it needs row s + 1 of this side, which goes after row s has been used.
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

constexpr std::uint32_t kUp = 0, kDown = 1, kSides = 2;  // a thread's QPs
constexpr std::size_t kLine = 64;

std::uint32_t other(std::uint32_t side) { return 1 - side; }

// One row: out = the mean of the five around each element. Everybody uses this one, in one order of
// operations, so results are equal to the last bit.
[[gnu::noinline]] void relax(const double* above, const double* row, const double* below,
                             double* out, std::uint32_t columns) {
    for (std::uint32_t j = 1; j <= columns; ++j)
        out[j] = 0.2 * (row[j] + above[j] + below[j] + row[j - 1] + row[j + 1]);
}

// What lies where in the registered buffer of a thread; the same for all, so that each knows where
// its neighbours' halos are. Rows have the border's element at both ends.
class Layout {
public:
    Layout(const Stencil& s, const Partition& p)
        : row_((std::size_t{s.columns} + 2) * sizeof(double)),
          row_stride_((row_ + kLine - 1) / kLine * kLine),
          rows_((p.rows + p.workers() - 1) / p.workers()) {}

    std::size_t row_bytes() const { return row_; }
    static std::size_t flag(std::uint32_t side, std::uint64_t step) {
        HEDDLE_DEBUG_ASSERT(side < kSides);
        return (side * 2 + step % 2) * kLine;
    }
    std::size_t halo(std::uint32_t side, std::uint64_t step) const {
        return kFlags + (side * 2 + step % 2) * row_stride_;
    }
    // A row of the block in the state after `step` steps; two states are kept.
    std::size_t block(std::uint32_t row, std::uint64_t step) const {
        return kFlags + 2 * kSides * row_stride_ + (step % 2 * rows_ + row) * row_stride_;
    }
    std::size_t bytes() const { return block(0, 0) + 2 * std::size_t{rows_} * row_stride_; }

private:
    static constexpr std::size_t kFlags = 2 * kSides * kLine;
    std::size_t row_, row_stride_;
    std::uint32_t rows_;
};

// What a neighbour needs of a thread.
struct CellAddress {
    QpAddress qps[kSides];
    std::uint64_t memory = 0;
    std::uint32_t key = 0;
};

class StencilWorker {
public:
    StencilWorker(const Stencil& s, const Partition& p, const Layout& layout, std::uint32_t index,
                  Endpoint& endpoint)
        : s_(s),
          layout_(layout),
          endpoint_(endpoint),
          first_(p.first_row(index)),
          rows_(p.first_row(index + 1) - first_),
          has_{index != 0, index + 1 != p.workers()} {
        HEDDLE_ASSERT(rows_ != 0 && first_ + rows_ <= p.rows, "each worker has rows of the grid");
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
        for (std::uint32_t row = 0; row < rows_; ++row)
            for (std::uint64_t state = 0; state < 2; ++state)
                copy_row(grid, first_ + row + 1, layout_.block(row, state));
        // the border, where there is no neighbour; else it is overwritten before it is used
        for (std::uint64_t slot = 0; slot < 2; ++slot) {
            copy_row(grid, first_, layout_.halo(kUp, slot));
            copy_row(grid, first_ + rows_ + 1, layout_.halo(kDown, slot));
        }
    }

    template <class Poster>
    void run(Poster& poster, Workers& workers) {
        for (std::uint32_t i = 0; i < s_.iterations; ++i, ++step_) {
            for (std::uint32_t side = 0; side < kSides; ++side)
                if (has_[side]) send(poster, side);
            for (std::uint32_t side = 0; side < kSides; ++side)
                if (has_[side]) receive(poster, workers, side);
            for (std::uint32_t row = 0; row < rows_; ++row)
                relax(row == 0 ? at(layout_.halo(kUp, step_)) : at(layout_.block(row - 1, step_)),
                      at(layout_.block(row, step_)),
                      row + 1 == rows_ ? at(layout_.halo(kDown, step_))
                                       : at(layout_.block(row + 1, step_)),
                      at(layout_.block(row, step_ + 1)), s_.columns);
            // The next iteration overwrites the rows that were sent.
            poster.finish();
        }
    }

    // Appends the rows of the last state, from which process 0 assembles the grid.
    void append_result(std::vector<double>& to) const {
        for (std::uint32_t row = 0; row < rows_; ++row) {
            const double* from = at(layout_.block(row, step_));
            to.insert(to.end(), from, from + layout_.row_bytes() / sizeof(double));
        }
    }
    std::uint64_t messages() const { return 2ull * (has_[kUp] + has_[kDown]) * s_.iterations; }

private:
    double* at(std::size_t offset) const {
        return reinterpret_cast<double*>(endpoint_.buffer() + offset);
    }
    void copy_row(const std::vector<double>& grid, std::uint32_t row, std::size_t to) const {
        const std::size_t elements = layout_.row_bytes() / sizeof(double);
        HEDDLE_ASSERT((row + 1) * elements <= grid.size(), "the border is part of the grid");
        std::copy_n(grid.data() + row * elements, elements, at(to));
    }

    template <class Poster>
    void send(Poster& poster, std::uint32_t side) {
        const CellAddress& to = neighbours_[side];
        const ibv_sge row{address_of(at(layout_.block(side == kUp ? 0 : rows_ - 1, step_))),
                          static_cast<std::uint32_t>(layout_.row_bytes()), endpoint_.mr()->lkey};
        WorkRequest work;
        work.opcode = Opcode::kWrite;
        work.remote_key = to.key;
        work.sges = {&row, 1};
        // I am below the one above me.
        work.remote_address = to.memory + layout_.halo(other(side), step_);
        poster.post(work, side, false);
        const std::uint64_t number = step_ + 1;
        const ibv_sge flag{address_of(&number), sizeof number, 0};
        work.sges = {&flag, 1};
        work.flags = post::kInline;
        work.remote_address = to.memory + Layout::flag(other(side), step_);
        poster.post(work, side, true);
        poster.ring(side);
    }

    template <class Poster>
    void receive(Poster& poster, Workers& workers, std::uint32_t side) {
        auto* const word =
            reinterpret_cast<std::uint64_t*>(endpoint_.buffer() + Layout::flag(side, step_));
        const std::atomic_ref<std::uint64_t> flag(*word);
        Wait wait(workers, "a neighbour's halo");
        std::uint64_t number;
        while ((number = flag.load(std::memory_order_acquire)) < step_ + 1) {
            poster.poll();  // in mpi+threads, others may wait for completions that are here
            wait.again();
        }
        if (number != step_ + 1) throw TeamError("a halo was overwritten before it was used");
    }

    const Stencil& s_;
    const Layout& layout_;
    Endpoint& endpoint_;
    std::uint32_t first_, rows_;
    bool has_[kSides];
    CellAddress neighbours_[kSides];
    std::uint64_t step_ = 0;  // goes on from one repetition to the next
};

// The workers around a ring: the QPs of the first and the last that lead out of the grid are
// connected to each other, and not used.
void connect(Team& team, const Partition& p, bool shared_qps, EndpointSet& set,
             std::vector<StencilWorker>& workers) {
    std::vector<CellAddress> mine;
    for (const StencilWorker& worker : workers)
        mine.push_back(worker.address());
    const std::vector<std::vector<CellAddress>> all = team.all_gather_rows(mine);
    const auto address = [&](std::uint32_t index) -> const CellAddress& {
        return all[p.process_of(index)][p.thread_of(index)];
    };
    const std::uint32_t count = p.workers();
    HEDDLE_ASSERT(workers.size() == p.threads && all.size() == p.processes);
    for (std::uint32_t t = 0; t < p.threads; ++t) {
        const std::uint32_t index = p.worker(team.rank(), t);
        const CellAddress& above = address((index + count - 1) % count);
        const CellAddress& below = address((index + 1) % count);
        workers[t].set_neighbour(kUp, above);
        workers[t].set_neighbour(kDown, below);
        if (shared_qps && t != 0) continue;
        set[t].connect(above.qps[kDown], kUp);
        set[t].connect(below.qps[kUp], kDown);
    }
}

// Puts the blocks of all together, within the border of `grid`.
void put_together(const Partition& p, std::uint32_t columns,
                  const std::vector<std::vector<double>>& blocks, std::vector<double>& grid) {
    const std::size_t width = std::size_t{columns} + 2;
    for (std::uint32_t process = 0; process < p.processes; ++process) {
        std::size_t from = 0;
        for (std::uint32_t t = 0; t < p.threads; ++t) {
            const std::uint32_t index = p.worker(process, t);
            const std::size_t first = p.first_row(index);
            const std::size_t elements = (p.first_row(index + 1) - first) * width;
            if (from + elements > blocks[process].size()) return;  // it will be found wrong
            std::copy_n(blocks[process].data() + from, elements, grid.data() + (first + 1) * width);
            from += elements;
        }
    }
}

}  // namespace

std::vector<double> initial_grid(std::uint32_t rows, std::uint32_t columns) {
    std::vector<double> grid((std::size_t{rows} + 2) * (std::size_t{columns} + 2));
    std::uint32_t state = 1;
    for (double& element : grid) {
        state = state * 1664525 + 1013904223;
        element = static_cast<double>(state >> 8) / (1 << 24);
    }
    return grid;
}

std::vector<double> serial_stencil(std::uint32_t rows, std::uint32_t columns,
                                   std::uint32_t iterations) {
    std::vector<double> now = initial_grid(rows, columns), next = now;
    const std::size_t width = std::size_t{columns} + 2;
    for (std::uint32_t i = 0; i < iterations; ++i) {
        for (std::size_t row = 1; row <= rows; ++row) {
            const double* const middle = now.data() + row * width;
            relax(middle - width, middle, middle + width, next.data() + row * width, columns);
        }
        now.swap(next);
    }
    return now;
}

StencilResult run_stencil(Team& team, const Stencil& s) {
    const Partition p{team.size(), s.threads, s.rows};
    if (s.rows < p.workers())
        throw TeamError("a grid of " + std::to_string(s.rows) + " rows for " +
                        std::to_string(p.workers()) + " threads: each needs one");
    const Layout layout(s, p);
    HEDDLE_ASSERT(p.first_row(0) == 0 && p.first_row(p.workers()) == s.rows,
                  "the workers have all rows");
    EndpointOptions options;
    options.path = s.path;
    options.depth = s.depth;
    options.post_list = 2;  // a row and its flag
    options.qps_per_thread = kSides;
    options.buffer_bytes = layout.bytes();
    EndpointSet set(s.device, s.category, s.threads, options);
    const bool shared_qps = sharing_of(s.category, s.threads).qp > 1;

    Workers threads(team, s.processors, team.rank() * s.threads);
    CompletionTracker tracker(s.threads, kSides);
    std::vector<StencilWorker> workers;
    std::vector<Posting> postings;
    for (std::uint32_t t = 0; t < s.threads; ++t) {
        workers.emplace_back(s, p, layout, p.worker(team.rank(), t), set[t]);
        postings.emplace_back(t, kSides, shared_qps ? s.depth / s.threads : s.depth,
                              PostMode::kBatched);
    }
    connect(team, p, shared_qps, set, workers);

    StencilResult result;
    std::uint64_t messages = 0;
    for (const StencilWorker& worker : workers)
        messages += worker.messages();
    for (const std::uint64_t count : team.all_gather_values(messages))
        result.messages += count;
    const std::vector<double> initial = initial_grid(s.rows, s.columns);
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
                workers[t].run(poster, threads);
            });
        });
        const auto all = team.all_gather_values(stretch);
        if (r >= 0) result.seconds.push_back(seconds_of(all));
        std::vector<double> block;
        for (const StencilWorker& worker : workers)
            worker.append_result(block);
        HEDDLE_ASSERT(block.size() % (std::size_t{s.columns} + 2) == 0, "a block has whole rows");
        const auto blocks = team.all_gather_rows(block);
        if (team.rank() != 0) continue;
        std::vector<double> grid = initial;
        put_together(p, s.columns, blocks, grid);
        if (s.spoil != nullptr) s.spoil(grid);
        if (result.wrong.empty()) result.wrong = first_difference(grid, expected, s.columns + 2);
    }
    result.wrong = team.all_gather(result.wrong)[0];
    result.usage = set.usage();
    return result;
}

}  // namespace heddle::bench
