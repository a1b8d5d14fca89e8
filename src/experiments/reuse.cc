// SPDX-License-Identifier: BSD-2-Clause
// The operations of two teams of processes, and their turns.
#include "experiments/reuse.h"

#include <rdma/fi_rma.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>

#include "experiments/common/measure.h"
#include "experiments/member.h"
#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "protocol/reuse/reuse_rounds.h"
#include "protocol/transport/process.h"
#include "verbs/open_device.h"

namespace heddle::bench {
namespace {

using protocol::ReuseCosts;

constexpr std::uint32_t kMostProcesses = Turns::kMostProcesses;
constexpr std::size_t kMeasurements = 9;
// Where other programs take the processors, a hand-over takes milliseconds, and a spectrum of all
// buffers would take longer than the patience of a turn.
constexpr std::uint32_t kFirstLook = 64;  // operations
constexpr double kLongestTurn = 100;      // times the time that is meant for one
constexpr std::size_t kSame = 4 << 20;

// Memory of all processes. Fields of a side are written by its process 0, or the one that drives,
// while the others sleep.
struct ReuseBoard {
    struct Side {
        // The target buffer of RMA, in process 1.
        std::uint64_t target = 0, key = 0;
        double seconds = 0;
        std::uint64_t gathered = 0;
        protocol::ReuseCounts reuse;
    };
    Side sides[2];
    // What the sides do next.
    ReuseCase command;
    std::uint32_t iterations = 0;
};

// The distance from one buffer to the next, in bytes.
std::size_t apart(const ReuseCase& c) {
    HEDDLE_ASSERT(c.buffers != 0 && c.bytes != 0, "a case has a buffer");
    return c.separate_pages ? (c.bytes + 4095) / 4096 * 4096 : c.bytes;
}

// Memory for the buffers of all cases.
struct Area {
    std::size_t bytes = 0;
    bool same = false;
};

std::size_t area_of(const ReuseCase& c, std::uint32_t processes) {
    return c.buffers * apart(c) + (c.kind == ReuseKind::kScatter ? processes * c.bytes : 0) + 4096;
}

// Addresses for many buffers, and little memory: it is the same again and again.
std::byte* map_same(std::size_t bytes) {
    const int file = ::memfd_create("heddle-bench", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, kSame) != 0) throw std::runtime_error("no memory file");
    void* const all =
        ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) throw std::runtime_error("no room for buffers");
    auto* const begin = static_cast<std::byte*>(all);
    for (std::size_t at = 0; at < bytes; at += kSame)
        if (::mmap(begin + at, std::min(kSame, bytes - at), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_FIXED | MAP_POPULATE, file, 0) == MAP_FAILED)
            throw std::runtime_error("no room for buffers");
    ::close(file);
    return begin;
}

// Memory at addresses that this process has never had: what was learnt of others is of no use.
class FreshArea {
public:
    explicit FreshArea(std::size_t bytes) : bytes_(bytes), memory_(map_memory(bytes)) {
        std::memset(memory_, 1, bytes_);
    }
    FreshArea(const FreshArea&) = delete;
    FreshArea& operator=(const FreshArea&) = delete;
    // The pages go, and the addresses stay taken, so that no later area has them.
    ~FreshArea() {
        (void)::mmap(memory_, bytes_, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    std::byte* begin() const noexcept { return memory_; }

private:
    std::size_t bytes_;
    std::byte* memory_;
};

// One process of a side.
class Player final : public Member {
public:
    Player(Turns& turns, ReuseBoard& board, std::uint32_t side, std::uint32_t rank,
           std::uint32_t size, const protocol::Options& options, std::size_t most_bytes,
           const Area& area)
        : Member(turns, side, rank, size, options),
          board_(board),
          side_(board.sides[side]),
          memory_(area.same ? map_same(area.bytes) : map_memory(area.bytes)),
          into_(map_memory(most_bytes * kMostProcesses)),
          target_(map_memory(most_bytes)),
          region_(domain_->register_memory(target_, most_bytes, FI_REMOTE_READ | FI_REMOTE_WRITE)) {
        if (!area.same) std::memset(memory_, 1, area.bytes);
        std::memset(into_, 1, most_bytes * kMostProcesses);
        open();
        if (rank != 1) return;
        side_.target = reinterpret_cast<std::uintptr_t>(target_);
        side_.key = region_->key();
    }

private:
    void turn() override {
        const std::uint64_t before = gathered();
        const ReuseCase& what = board_.command;
        std::optional<FreshArea> fresh;
        if (what.fresh) fresh.emplace(area_of(what, size_));
        const double seconds = run(what, fresh ? fresh->begin() : memory_, board_.iterations);
        if (rank_ != 0) return;
        side_.seconds = seconds;
        side_.reuse = endpoint_->reuse_counts();
        HEDDLE_ASSERT(gathered() >= before, "a counter does not go back");
        side_.gathered = (gathered() - before) / messages(board_.command);
    }

    // Seconds of an operation.
    double run(const ReuseCase& what, std::byte* memory, std::uint32_t iterations) {
        HEDDLE_ASSERT(iterations != 0, "the time of an operation is a mean");
        HEDDLE_ASSERT(!what.spectrum || iterations == spectrum_messages(what.buffers),
                      "a turn is the whole spectrum");
        barrier();
        const double begin = now(what);
        if (what.spectrum) {
            // In rounds: all buffers, then all but the first, ...
            for (std::uint32_t first = 0; first < what.buffers; ++first)
                for (std::uint32_t i = first; i < what.buffers; ++i)
                    once(what, memory + i * apart(what));
        } else {
            for (std::uint32_t i = 0; i < iterations; ++i)
                once(what, memory + number_++ % what.buffers * apart(what));
        }
        const double end = now(what);
        barrier();
        return (end - begin) * 1e-6 / iterations / (what.kind == ReuseKind::kPingPong ? 2 : 1);
    }

    // A process that sends to itself measures its own processor time: other processes do not slow
    // it down.
    static double now(const ReuseCase& what) {
        return what.kind == ReuseKind::kSelf ? thread_cpu_seconds() * 1e6 : now_us();
    }

    std::uint64_t gathered() const {
        const protocol::EndpointCounts counts = endpoint_->counts();
        return counts.gathered + counts.rma_direct;
    }

    // Messages of what is one operation to its user: on process 0.
    std::uint64_t messages(const ReuseCase& what) const {
        switch (what.kind) {
            case ReuseKind::kBroadcast:
                return tree_depth(size_);
            case ReuseKind::kScatter:
                return size_ - 1;
            default:
                return 1;
        }
    }

    void rma(bool read, void* buffer, std::size_t bytes) {
        HEDDLE_ASSERT(side_.target != 0, "process 1 has told of its memory");
        const iovec iov{buffer, bytes};
        const protocol::RmaSegment there{side_.target, bytes, side_.key};
        protocol::RmaArguments a;
        a.iov = &iov;
        a.iov_count = 1;
        a.to = 1;
        a.remote = &there;
        a.remote_count = 1;
        a.flags = (read ? FI_READ : FI_WRITE) | FI_COMPLETION;
        insist([&] { return endpoint_->rma(a); });
        take(sent_);
    }

    void once(const ReuseCase& what, std::byte* from) {
        switch (what.kind) {
            case ReuseKind::kPingPong:
                if (rank_ == 0) {
                    post(1, into_, what.bytes);
                    send(1, from, what.bytes);
                    take(received_);
                } else if (rank_ == 1) {
                    receive(0, into_, what.bytes);
                    send(0, from, what.bytes);
                }
                break;
            case ReuseKind::kSelf:
                post(0, into_, what.bytes);
                send(0, from, what.bytes);
                take(received_);
                break;
            case ReuseKind::kPut:
            case ReuseKind::kGet:
                if (rank_ == 0) rma(what.kind == ReuseKind::kGet, from, what.bytes);
                break;
            case ReuseKind::kBroadcast:
                broadcast(rank_ == 0 ? from : into_, what.bytes);
                barrier_by_messages();
                break;
            case ReuseKind::kScatter:
                if (rank_ == 0)
                    for (std::uint32_t to = 1; to < size_; ++to)
                        send(to, from + to * what.bytes, what.bytes);
                else
                    receive(0, into_, what.bytes);
                barrier_by_messages();
                break;
        }
    }

    // A binomial tree: a process that has the data sends it to the one a power of two away.
    void broadcast(void* buffer, std::size_t bytes) {
        std::uint32_t bit = 1;
        for (; bit < size_; bit *= 2)
            if (rank_ & bit) {
                receive(rank_ - bit, buffer, bytes);
                break;
            }
        for (bit /= 2; bit != 0; bit /= 2)
            if (rank_ + bit < size_) send(rank_ + bit, buffer, bytes);
    }

    // So that operations do not run into each other: empty messages to process 0 and back.
    void barrier_by_messages() {
        if (rank_ == 0) {
            for (std::uint32_t i = 1; i < size_; ++i)
                receive(i, nullptr, 0);
            for (std::uint32_t i = 1; i < size_; ++i)
                send(i, nullptr, 0);
        } else {
            send(0, nullptr, 0);
            receive(0, nullptr, 0);
        }
    }

    ReuseBoard& board_;
    ReuseBoard::Side& side_;
    std::byte *memory_, *into_, *target_;
    std::unique_ptr<protocol::Region> region_;
    std::uint32_t number_ = 0;  // of operations, over all turns
};

// Until each buffer has been used as often as is wanted.
std::uint32_t operations_before(const ReuseCase& each, const protocol::Options& options,
                                const ReuseCosts& costs) {
    if (each.kind == ReuseKind::kSelf) return kUntilAtRest;
    const std::uint32_t wanted = uses_before(each, options, costs);
    std::uint32_t uses = 16;
    if (wanted != ReuseCosts::kNever) uses += std::min(wanted, 20000u) * 3 / 2;
    return uses * each.buffers;
}

}  // namespace

std::uint32_t uses_before(const ReuseCase& each, const protocol::Options& options,
                          const ReuseCosts& costs) {
    if (options.reuse.after) return *options.reuse.after;
    const auto way = way_of(each.kind, options.rings.peers != 0);
    return costs.uses_for(each.bytes, way, options.reuse.speculation);
}

ReuseCosts measure_reuse_costs(const protocol::Options& options,
                               const std::optional<ReuseCosts>& before) {
    const SharedObject<ReuseCosts> costs;
    Turns turns;
    turns.start(0, [&](std::uint32_t) {
        const verbs::Context context = verbs::open_device(options.device).context;
        const verbs::ProtectionDomain pd(ibv_alloc_pd(context.get()));
        if (!pd) throw std::runtime_error("no protection domain");
        *costs = protocol::ReuseRounds::measure(context.get(), pd.get(), 8192, kMeasurements)
                     .settled(before);
        turns.done(0);
    });
    turns.wait_until_done(0);
    return *costs;
}

std::vector<ReuseResult> run_reuse(const ReuseRequest& request, const ReuseCosts& costs,
                                   ProgressReport report) {
    const SharedObject<ReuseBoard> board;
    Turns turns;
    protocol::Options options[2] = {request.options, request.options};
    options[1].reuse.after = 0;
    HEDDLE_ASSERT(request.processes != 0 && request.processes <= kMostProcesses,
                  "the board has places for so many");
    std::size_t most = 0;
    Area area;
    for (const ReuseCase& each : request.cases) {
        most = std::max(most, each.bytes);
        area.bytes = std::max(area.bytes, area_of(each, request.processes));
        area.same |= each.kind == ReuseKind::kSelf;
    }
    for (std::uint32_t side = 0; side < 2; ++side) {
        for (std::uint32_t i = 0; i < request.processes; ++i)
            turns.start(side, [&, side](std::uint32_t rank) {
                Player(turns, *board, side, rank, request.processes, options[side], most, area)
                    .take_part();
            });
        turns.wait_until_done(side);
    }
    const auto turn = [&](std::uint32_t side, std::uint32_t iterations) {
        board->iterations = iterations;
        turns.turn(side);
        return board->sides[side].seconds;
    };

    std::vector<ReuseResult> results;
    for (ReuseCase each : request.cases) {
        report(std::to_string(each.bytes) + " bytes");
        // Before the spectrum each buffer of the area that stays is used as often as the others.
        board->command = each;
        board->command.spectrum = board->command.fresh = false;
        if (each.spectrum) {
            const double seconds = std::max(turn(0, kFirstLook), turn(1, kFirstLook));
            const auto operations = static_cast<std::uint32_t>(
                std::clamp(kLongestTurn * request.seconds / seconds, 1.0, 1e9));
            // A number of buffers with so few operations before, and in the spectrum.
            const std::uint32_t uses = operations_before(each, options[0], costs) / each.buffers;
            while (each.buffers > 1 && (each.buffers * uses > operations ||
                                        spectrum_messages(each.buffers) > operations))
                --each.buffers;
            board->command.buffers = each.buffers;
        }
        const std::uint32_t before = operations_before(each, options[0], costs);
        std::uint32_t iterations = 0;
        for (std::uint32_t side = 0; side < 2; ++side) {
            const double seconds = turn(side, before);
            HEDDLE_ASSERT(seconds > 0, "an operation takes some time");
            iterations = std::max<std::uint32_t>(
                {iterations, static_cast<std::uint32_t>(request.seconds / seconds), 16});
        }
        board->command = each;
        if (each.spectrum) iterations = spectrum_messages(each.buffers);
        if (!each.again)
            iterations = std::min(iterations, (each.buffers - before) / (request.repetitions + 1));
        HEDDLE_ASSERT(each.again || before + iterations * (request.repetitions + 1) <= each.buffers,
                      "no buffer is used twice");
        ReuseResult result;
        result.buffers = each.buffers;
        turns.repeat(2, request.repetitions, [&](std::uint32_t side) {
            (side == 0 ? result.with : result.without).push_back(turn(side, iterations));
        });
        turn(0, iterations);
        result.gathered = static_cast<double>(board->sides[0].gathered) / iterations;
        result.reuse = board->sides[0].reuse;
        HEDDLE_ASSERT(result.with.size() == request.repetitions &&
                          result.without.size() == request.repetitions,
                      "each side had its turn in each repetition");
        results.push_back(result);
    }
    turns.end();
    return results;
}

}  // namespace heddle::bench
