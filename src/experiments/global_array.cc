// SPDX-License-Identifier: BSD-2-Clause
#include "experiments/global_array.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>

#include "endpoint/measure.h"
#include "heddle/detail/assert.h"
#include "verbs/handles.h"

namespace heddle::bench {
namespace {

using Clock = std::chrono::steady_clock;
using post::Opcode;
using post::WorkRequest;

constexpr std::uint32_t kMostThreads = 1024, kServer = 0, kPostList = 32;

// What a process tells the other so that QPs can be connected and memory reached.
struct Address {
    QpAddress qps[kMostThreads];
    std::uint64_t memory = 0;
    std::uint32_t key = 0;
};

// What the threads did in one repetition, as far as the result needs it.
struct Report {
    double seconds = 0, read_rate = 0, write_rate = 0;
    std::uint64_t reads = 0, writes = 0;
};

std::size_t elements(const GlobalArray& g) { return std::size_t{g.matrix} * g.matrix; }

// QPs that one process has: one of each thread, or one for all.
std::uint32_t qp_count(const GlobalArray& g) {
    return sharing_of(g.category, g.threads).qp > 1 ? 1 : g.threads;
}

EndpointOptions options_of(const GlobalArray& g) {
    EndpointOptions options;
    options.path = g.path;
    options.depth = g.depth;
    options.post_list = g.mode == PostMode::kBatched ? kPostList : 1;
    return options;
}

Address exchange(Team& team, const EndpointSet& set, std::uint32_t qps) {
    HEDDLE_ASSERT(team.size() == 2 && qps != 0 && qps <= kMostThreads && qps <= set.size());
    Address mine;
    for (std::uint32_t i = 0; i < qps; ++i)
        mine.qps[i] = set[i].address();
    mine.memory = address_of(set[0].buffer());
    mine.key = set[0].mr()->rkey;
    const Address other = team.all_gather_values(mine)[1 - team.rank()];
    for (std::uint32_t i = 0; i < qps; ++i)
        set[i].connect(other.qps[i]);
    team.barrier();  // both sides of each are connected
    return other;
}

void add_up(GlobalArrayResult& result, const Report& report) {
    result.seconds.push_back(report.seconds);
    result.reads = report.reads;
    result.writes = report.writes;
    result.read_mmsgs_per_s.push_back(report.read_rate);
    result.write_mmsgs_per_s.push_back(report.write_rate);
}

// The process with the matrices: A, B and C one after the other, all of them in one region.
GlobalArrayResult serve(Team& team, const GlobalArray& g) {
    const std::uint32_t qps = qp_count(g);
    Sharing sharing = sharing_of(Category::kStatic, qps);
    sharing.buffer = qps;
    EndpointOptions options = options_of(g);
    options.path = Path::kVerbs;  // it posts nothing
    options.buffer_bytes = 3 * elements(g) * sizeof(double);
    EndpointSet set(g.device, sharing, qps, options);
    auto* const memory = reinterpret_cast<double*>(set[0].buffer());
    const std::span<double> a(memory, elements(g)), b(a.data() + a.size(), a.size()),
        c(b.data() + b.size(), b.size());
    std::ranges::copy(example_matrix(g.matrix, 1), a.begin());
    std::ranges::copy(example_matrix(g.matrix, 2), b.begin());
    HEDDLE_ASSERT(
        c.data() + c.size() == reinterpret_cast<double*>(set[0].buffer() + options.buffer_bytes),
        "the three matrices fill the region");
    const std::vector<double> expected = serial_product(a, b, g.matrix);
    exchange(team, set, qps);

    GlobalArrayResult result;
    for (int r = -1; r < g.repetitions; ++r) {
        // a value that no thread writes is wrong
        std::ranges::fill(c, std::numeric_limits<double>::quiet_NaN());
        team.barrier();
        const Report report = team.all_gather_values(Report{})[1];
        if (g.spoil) g.spoil(c);
        if (result.wrong.empty()) result.wrong = first_difference(c, expected, g.matrix);
        if (r >= 0) add_up(result, report);
    }
    return result;
}

// c += a b, of tiles whose rows follow each other.
void multiply(const double* a, const double* b, double* c, std::uint32_t rows, std::uint32_t inner,
              std::uint32_t columns) {
    for (std::uint32_t i = 0; i < rows; ++i)
        for (std::uint32_t k = 0; k < inner; ++k) {
            const double factor = a[i * inner + k];
            for (std::uint32_t j = 0; j < columns; ++j)
                c[i * columns + j] += factor * b[k * columns + j];
        }
}

// The category's sharing. But each thread has regions of its own: the paper's QPs have three each.
Sharing sharing_with_own_regions(const GlobalArray& g) {
    Sharing sharing = sharing_of(g.category, g.threads);
    sharing.mr = 1;
    if (!device(g.device).thread_domains) sharing.placement = Placement::kDriver;
    return sharing;
}

// A tile in the memory of a thread, and the region that covers it.
struct Tile {
    double* elements;
    std::uint32_t key;
};

// Further tiles of an endpoint, beside the one in its buffer. Each begins on a cache line.
class OwnTile {
public:
    explicit OwnTile(std::size_t bytes)
        : bytes_(bytes), lines_(new Line[(bytes + sizeof(Line) - 1) / sizeof(Line)]()) {}

    Tile registered_with(const Endpoint& endpoint) {
        region_.reset(ibv_reg_mr(endpoint.pd(), lines_.get(), bytes_, IBV_ACCESS_LOCAL_WRITE));
        if (!region_) throw VerbsError("registering a tile", errno);
        return {reinterpret_cast<double*>(lines_.get()), region_->lkey};
    }

private:
    struct alignas(64) Line {
        std::byte bytes[64];
    };
    std::size_t bytes_;
    std::unique_ptr<Line[]> lines_;
    verbs::MemoryRegion region_;
};

// One thread of the client: every threads-th tile of C is its own.
class Client {
public:
    Client(const GlobalArray& g, const Endpoint& endpoint, const Address& server)
        : g_(g),
          server_(server),
          endpoint_(endpoint),
          b_memory_(tile_bytes(g)),
          c_memory_(tile_bytes(g)) {
        HEDDLE_ASSERT(endpoint.buffer_bytes() >= tile_bytes(g), "the buffer has the tile of A");
    }
    static constexpr std::uint32_t kOwnRegions = 2;  // of a thread, beside its endpoint's
    void register_tiles() {
        a_ = {reinterpret_cast<double*>(endpoint_.buffer()), endpoint_.mr()->lkey};
        b_ = b_memory_.registered_with(endpoint_);
        c_ = c_memory_.registered_with(endpoint_);
    }
    static std::size_t tile_bytes(const GlobalArray& g) {
        return std::size_t{g.tile} * g.tile * sizeof(double);
    }

    template <class Poster>
    void run(Poster& poster, std::uint32_t thread) {
        const std::uint32_t tiles = (g_.matrix + g_.tile - 1) / g_.tile;
        reads = writes = 0;
        reading = writing = Seconds(0);
        for (std::uint32_t index = thread; index < tiles * tiles; index += g_.threads) {
            const std::uint32_t i = index / tiles, j = index % tiles;
            std::fill_n(c_.elements, size(i) * size(j), 0.0);
            for (std::uint32_t k = 0; k < tiles; ++k) {
                const auto begin = Clock::now();
                transfer(poster, Opcode::kRead, 0, i, k, a_, false);
                transfer(poster, Opcode::kRead, 1, k, j, b_, true);
                reads += size(i) + size(k);
                reading += Clock::now() - begin;
                multiply(a_.elements, b_.elements, c_.elements, size(i), size(k), size(j));
                if (g_.mode == PostMode::kConservative || k + 1 == tiles) write(poster, i, j);
            }
        }
    }
    // What run() must have written.
    static std::uint64_t all_writes(const GlobalArray& g) {
        const std::uint64_t tiles = (g.matrix + g.tile - 1) / g.tile;
        return tiles * g.matrix * (g.mode == PostMode::kConservative ? tiles : 1);
    }

    std::uint64_t reads = 0, writes = 0;
    Seconds reading{0}, writing{0};

private:
    std::uint32_t size(std::uint32_t i) const {
        HEDDLE_DEBUG_ASSERT(i * g_.tile < g_.matrix, "the matrix has no tile there");
        return std::min(g_.tile, g_.matrix - i * g_.tile);
    }
    template <class Poster>
    void write(Poster& poster, std::uint32_t i, std::uint32_t j) {
        const auto begin = Clock::now();
        transfer(poster, Opcode::kWrite, 2, i, j, c_, true);
        writes += size(i);
        writing += Clock::now() - begin;
    }

    // Tile (i, j) of the matrix-th matrix. Its rows are apart in the server's memory, and RDMA
    // gathers on one side only: one message each.
    template <class Poster>
    void transfer(Poster& poster, Opcode opcode, std::uint32_t matrix, std::uint32_t i,
                  std::uint32_t j, const Tile& local, bool finish) {
        WorkRequest work;
        work.opcode = opcode;
        work.remote_key = server_.key;
        const std::uint32_t rows = size(i), columns = size(j);
        const auto bytes = columns * static_cast<std::uint32_t>(sizeof(double));
        if (goes_inline(opcode, bytes)) work.flags = post::kInline;
        for (std::uint32_t r = 0; r < rows; ++r) {
            const ibv_sge piece{address_of(local.elements + std::size_t{r} * columns), bytes,
                                local.key};
            work.sges = {&piece, 1};
            const std::size_t element =
                (std::size_t{i} * g_.tile + r) * g_.matrix + std::size_t{j} * g_.tile;
            work.remote_address =
                server_.memory + (matrix * elements(g_) + element) * sizeof(double);
            poster.post(work, 0, finish && r + 1 == rows);
        }
        if (!finish) return;
        poster.ring(0);
        poster.finish();
    }
    bool goes_inline(Opcode opcode, std::uint32_t bytes) const {
        return g_.mode == PostMode::kConservative && opcode == Opcode::kWrite &&
               bytes <= EndpointOptions{}.max_inline;
    }

    const GlobalArray& g_;
    const Address& server_;
    const Endpoint& endpoint_;
    OwnTile b_memory_, c_memory_;
    Tile a_{}, b_{}, c_{};
};

// One repetition of all threads.
Report report_of(const std::vector<Client>& clients, const Stretch& stretch, std::size_t running) {
    Report report;
    report.seconds = seconds_of({stretch});
    for (const Client& c : clients) {
        report.reads += c.reads;
        report.writes += c.writes;
        if (c.reads == 0) continue;  // more threads than tiles
        report.read_rate += static_cast<double>(c.reads) / c.reading.count() * 1e-6;
        report.write_rate += static_cast<double>(c.writes) / c.writing.count() * 1e-6;
    }
    // The paper's rate is the sum of the threads' own. If threads take turns, a phase is mostly
    // over before its thread's turn is, so the sum would count each core as often as it has
    // threads.
    const double share = static_cast<double>(running) / static_cast<double>(clients.size());
    report.read_rate *= share;
    report.write_rate *= share;
    return report;
}

GlobalArrayResult compute(Team& team, const GlobalArray& g) {
    EndpointOptions options = options_of(g);
    options.buffer_bytes = Client::tile_bytes(g);
    EndpointSet set(g.device, sharing_with_own_regions(g), g.threads, options);
    const Address server = exchange(team, set, qp_count(g));
    Workers workers(team, g.processors);
    CompletionTracker tracker(g.threads, 1);
    std::vector<Client> clients;
    std::vector<Posting> postings;
    clients.reserve(g.threads);
    for (std::uint32_t t = 0; t < g.threads; ++t) {
        clients.emplace_back(g, set[t], server);
        postings.emplace_back(t, 1, g.depth / (g.threads / qp_count(g)), g.mode);
    }
    const endpoint::Measurement measurement;
    for (Client& client : clients)
        client.register_tiles();
    Usage regions;
    measurement.finish({}, {}, regions);
    GlobalArrayResult result;
    for (int r = -1; r < g.repetitions; ++r) {
        team.barrier();
        const Stretch stretch = workers.run(g.threads, [&](std::uint32_t t) {
            set[t].visit([&](auto& queues) {
                Poster poster(queues, tracker, workers, postings[t]);
                clients[t].run(poster, t);
            });
        });
        const Report report = report_of(clients, stretch, workers.cores(g.threads));
        HEDDLE_ASSERT(report.writes == Client::all_writes(g),
                      "each tile of C is written a row at a time");
        team.all_gather_values(report);
        if (r >= 0) add_up(result, report);
    }
    result.usage = set.usage();
    result.usage.mrs += Client::kOwnRegions * g.threads;
    result.usage.bytes += regions.bytes;
    return result;
}

}  // namespace

std::vector<double> example_matrix(std::uint32_t n, std::uint32_t seed) {
    std::vector<double> matrix(std::size_t{n} * n);
    std::uint32_t state = seed;
    for (double& element : matrix) {
        state = state * 1664525 + 1013904223;
        element = static_cast<double>(state >> 28) - 8;
    }
    return matrix;
}

std::vector<double> serial_product(std::span<const double> a, std::span<const double> b,
                                   std::uint32_t n) {
    HEDDLE_ASSERT(a.size() == std::size_t{n} * n && b.size() == a.size());
    std::vector<double> c(std::size_t{n} * n, 0.0);
    multiply(a.data(), b.data(), c.data(), n, n, n);
    return c;
}

std::string first_difference(std::span<const double> got, std::span<const double> expected,
                             std::uint32_t columns) {
    HEDDLE_ASSERT(columns != 0, "an element is named by its row and column");
    for (std::size_t i = 0; i < expected.size(); ++i)
        // by bits: a NaN is no number, and the two zeros differ
        if (i >= got.size() ||
            std::bit_cast<std::uint64_t>(got[i]) != std::bit_cast<std::uint64_t>(expected[i]))
            return "element (" + std::to_string(i / columns) + ", " + std::to_string(i % columns) +
                   ") is " + (i < got.size() ? std::to_string(got[i]) : "not there") + " and not " +
                   std::to_string(expected[i]);
    return {};
}

GlobalArrayResult run_global_array(Team& team, const GlobalArray& g) {
    if (team.size() != 2) throw TeamError("the global array needs two processes");
    if (g.threads > kMostThreads) throw TeamError("the global array has at most 1024 threads");
    GlobalArrayResult result = team.rank() == kServer ? serve(team, g) : compute(team, g);
    result.usage = team.all_gather_values(result.usage)[1 - kServer];
    result.wrong = team.all_gather(result.wrong)[kServer];
    return result;
}

}  // namespace heddle::bench
