// SPDX-License-Identifier: BSD-2-Clause
// Two teams of processes that sleep but for their turns, a board that all see, and the operations.
#include "experiments/reuse.h"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>

#include "common/measure.h"
#include "heddle/error.h"
#include "protocol/process.h"
#include "protocol/rdm_endpoint.h"
#include "verbs/open_device.h"

namespace heddle::bench {
namespace {

using protocol::Name;
using protocol::ReuseCosts;

constexpr std::uint32_t kMostProcesses = 8;
constexpr int kPatience = 60;  // seconds
constexpr int kMeasurements = 9;
constexpr std::uint64_t kTag = 7;

// Memory of all processes. Fields of a side are written by its processes, or the one that drives,
// while the others wait at a semaphore.
struct Board {
    struct Process {
        sem_t go;
        Name name;
        std::uint64_t target = 0, key = 0;  // of RMA
    };
    struct Side {
        Process processes[kMostProcesses];
        sem_t done;  // once for each process
        double seconds = 0;
        std::uint64_t gathered = 0;
        std::atomic<std::uint32_t> at_barrier{0};
    };
    Side sides[2];
    // What is next; iterations == 0: nothing any more.
    ReuseCase command;
    std::uint32_t iterations = 0;
    std::atomic<bool> failed{false};
    char why[200] = "";
    ReuseCosts costs;
};

Board* make_board() {
    void* const memory =
        ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory for a board");
    auto* const board = new (memory) Board;
    for (Board::Side& side : board->sides) {
        sem_init(&side.done, 1, 0);
        for (Board::Process& each : side.processes)
            sem_init(&each.go, 1, 0);
    }
    return board;
}

void fail(Board& board, const std::string& why) {
    if (!board.failed.exchange(true)) std::strncpy(board.why, why.c_str(), sizeof board.why - 1);
}

bool wait(Board& board, sem_t& semaphore) {
    timespec until{};
    ::clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += kPatience;
    while (::sem_timedwait(&semaphore, &until) != 0)
        if (errno != EINTR) {
            fail(board, "a process does not come");
            return false;
        }
    return !board.failed;
}

// From one buffer to the next.
std::size_t apart(const ReuseCase& c) {
    return c.separate_pages ? (c.bytes + 4095) / 4096 * 4096 : c.bytes;
}

// One process of a side.
class Player {
public:
    Player(Board& board, Board::Side& side, std::uint32_t rank, std::uint32_t size,
           const protocol::Options& options, std::size_t most_bytes, std::size_t area)
        : board_(board),
          side_(side),
          rank_(rank),
          size_(size),
          domain_(std::make_shared<protocol::Domain>(options)),
          memory_(map(area)),
          into_(map(most_bytes * kMostProcesses)),
          target_(map(most_bytes)),
          region_(domain_->register_memory(target_, most_bytes, FI_REMOTE_READ | FI_REMOTE_WRITE)) {
        std::memset(memory_, 1, area);
        std::memset(into_, 1, most_bytes * kMostProcesses);
        protocol::Bindings bindings;
        bindings.transmit = &sent_;
        bindings.receive = &received_;
        endpoint_ = std::make_unique<protocol::RdmEndpoint>(domain_, addresses_, bindings);
        Board::Process& own = side.processes[rank];
        own.name = endpoint_->name();
        own.target = reinterpret_cast<std::uintptr_t>(target_);
        own.key = region_->key();
    }

    void know_others() {
        for (std::uint32_t i = 0; i < size_; ++i)
            addresses_.insert(side_.processes[i].name);
    }

    // Seconds of an operation.
    double run(const ReuseCase& what, std::uint32_t iterations) {
        barrier();
        const double begin = now_us();
        for (std::uint32_t i = 0; i < iterations; ++i)
            once(what, i);
        const double end = now_us();
        barrier();
        return (end - begin) * 1e-6 / iterations / (what.kind == ReuseKind::kPingPong ? 2 : 1);
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

private:
    static std::byte* map(std::size_t bytes) {
        void* const memory =
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::runtime_error("no memory for buffers");
        return static_cast<std::byte*>(memory);
    }

    std::byte* buffer(const ReuseCase& what, std::uint32_t number) const {
        return memory_ + number % what.buffers * apart(what);
    }

    void progress() {
        endpoint_->progress();
        if (++polls_ % 1024 == 0) {
            ::sched_yield();  // more processes than processors
            if (board_.failed) throw std::runtime_error("another process has failed");
        }
    }
    void take(protocol::Completions& from) {
        while (from.empty())
            progress();
        if (from.front().error != 0) throw std::runtime_error("an operation has failed");
        from.pop();
    }
    template <class Call>
    void insist(const Call& call) {
        ssize_t result = call();
        for (; result == -FI_EAGAIN; result = call())
            progress();
        if (result != 0) throw std::runtime_error("an operation is not taken");
    }

    // Arguments of a message, but for its peer.
    template <class Arguments>
    static Arguments message(const iovec& iov) {
        Arguments a;
        a.iov = &iov;
        a.iov_count = 1;
        a.tag = kTag;
        a.flags = FI_TAGGED | FI_COMPLETION;
        return a;
    }
    // As MPI_Send and MPI_Recv do: until the buffer may be used again.
    void send(std::uint32_t to, const void* from, std::size_t bytes) {
        const iovec iov{const_cast<void*>(from), bytes};
        auto a = message<protocol::SendArguments>(iov);
        a.to = to;
        insist([&] { return endpoint_->send(a); });
        take(sent_);
    }
    void post(std::uint32_t from, void* to, std::size_t bytes) {
        const iovec iov{to, bytes};
        auto a = message<protocol::ReceiveArguments>(iov);
        a.from = from;
        insist([&] { return endpoint_->receive(a); });
    }
    void receive(std::uint32_t from, void* to, std::size_t bytes) {
        post(from, to, bytes);
        take(received_);
    }
    void rma(bool read, void* buffer, std::size_t bytes) {
        const iovec iov{buffer, bytes};
        const protocol::RmaSegment there{side_.processes[1].target, bytes, side_.processes[1].key};
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

    void once(const ReuseCase& what, std::uint32_t number) {
        std::byte* const from = buffer(what, number);
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

    // A binomial tree: who has it sends to who is a power of two away.
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

    // Of the side, with progress meanwhile.
    void barrier() {
        const std::uint32_t round = side_.at_barrier.fetch_add(1) / size_ + 1;
        while (side_.at_barrier.load() < round * size_)
            progress();
    }

    Board& board_;
    Board::Side& side_;
    const std::uint32_t rank_, size_;
    std::shared_ptr<protocol::Domain> domain_;
    protocol::AddressVector addresses_;
    protocol::Completions sent_, received_;
    std::byte *memory_, *into_, *target_;
    std::unique_ptr<protocol::Region> region_;
    std::unique_ptr<protocol::RdmEndpoint> endpoint_;
    std::uint32_t polls_ = 0;
};

std::size_t area_of(const ReuseCase& c, std::uint32_t processes) {
    return c.buffers * apart(c) + (c.kind == ReuseKind::kScatter ? processes * c.bytes : 0) + 4096;
}

void play(Board& board, Board::Side& side, std::uint32_t rank, const ReuseRequest& request,
          const protocol::Options& options) {
    std::size_t most = 0, area = 0;
    for (const ReuseCase& each : request.cases) {
        most = std::max(most, each.bytes);
        area = std::max(area, area_of(each, request.processes));
    }
    Player player(board, side, rank, request.processes, options, most, area);
    ::sem_post(&side.done);
    bool introduced = false;
    while (wait(board, side.processes[rank].go)) {
        if (!std::exchange(introduced, true)) player.know_others();
        if (board.iterations == 0) break;
        const std::uint64_t before = player.gathered();
        const double seconds = player.run(board.command, board.iterations);
        if (rank == 0) {
            side.seconds = seconds;
            side.gathered = (player.gathered() - before) / player.messages(board.command);
        }
        ::sem_post(&side.done);
    }
}

pid_t start(Board& board, const std::function<void()>& run) {
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("no more processes");
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    try {
        run();
    } catch (const std::exception& error) {
        fail(board, error.what());
        for (Board::Side& side : board.sides)
            ::sem_post(&side.done);
        ::_exit(1);
    }
    ::_exit(0);
}

// Those that were started end, however this does.
struct Children {
    std::vector<pid_t> all;
    ~Children() {
        for (const pid_t each : all)
            ::kill(each, SIGKILL);
        wait_for_all();
    }
    void wait_for_all() {
        for (const pid_t each : all)
            ::waitpid(each, nullptr, 0);
        all.clear();
    }
};

struct Unmap {
    void operator()(Board* board) const noexcept { ::munmap(board, sizeof *board); }
};

void throw_if_failed(const Board& board) {
    if (board.failed) throw std::runtime_error(board.why);
}

}  // namespace

ReuseCosts measure_reuse_costs(const protocol::Options& options) {
    const std::unique_ptr<Board, Unmap> board(make_board());
    Children children;
    children.all.push_back(start(*board, [&] {
        const std::string device = heddle::device(options.device).name;
        const verbs::Context context = verbs::open_device(device);
        const verbs::ProtectionDomain pd(ibv_alloc_pd(context.get()));
        if (!pd) throw std::runtime_error("no protection domain");
        // One of them would be of one moment of the machine.
        std::vector<ReuseCosts> all;
        for (int i = 0; i < kMeasurements; ++i)
            all.push_back(ReuseCosts::measure(context.get(), pd.get(), 8192));
        for (std::size_t i = 0; i < ReuseCosts::kSizes; ++i) {
            const auto of_all = [&](auto&& field) {
                std::vector<double> values;
                for (ReuseCosts& each : all)
                    values.push_back(field(each.costs[i]));
                field(board->costs.costs[i]) = median(values);
            };
            using Cost = ReuseCosts::Cost;
            of_all([](Cost& c) -> double& { return c.registration; });
            of_all([](Cost& c) -> double& { return c.copy; });
            of_all([](Cost& c) -> double& { return c.lookup; });
            for (std::size_t way = 0; way < ReuseCosts::kWays; ++way) {
                of_all([way](Cost& c) -> double& { return c.copied[way]; });
                of_all([way](Cost& c) -> double& { return c.gathered[way]; });
            }
        }
    }));
    children.wait_for_all();
    throw_if_failed(*board);
    return board->costs;
}

std::vector<ReuseResult> run_reuse(const ReuseRequest& request, const ReuseCosts& costs,
                                   Told told) {
    const std::unique_ptr<Board, Unmap> board(make_board());
    Children children;
    protocol::Options options[2] = {request.options, request.options};
    options[1].reuse_after = 0;
    for (int side = 0; side < 2; ++side)
        for (std::uint32_t rank = 0; rank < request.processes; ++rank)
            children.all.push_back(start(*board, [&, side, rank] {
                play(*board, board->sides[side], rank, request, options[side]);
            }));
    const auto all_done = [&](int side) {
        for (std::uint32_t i = 0; i < request.processes; ++i)
            wait(*board, board->sides[side].done);
        throw_if_failed(*board);
    };
    const auto turn = [&](int side, std::uint32_t iterations) {
        board->iterations = iterations;
        for (std::uint32_t i = 0; i < request.processes; ++i)
            ::sem_post(&board->sides[side].processes[i].go);
        all_done(side);
        return board->sides[side].seconds;
    };
    for (int side = 0; side < 2; ++side)
        all_done(side);

    std::vector<ReuseResult> results;
    for (const ReuseCase& each : request.cases) {
        told(std::to_string(each.bytes) + " bytes");
        board->command = each;
        // Until each buffer has been used as often as is wanted.
        std::uint32_t uses = 16;
        const auto way = each.kind == ReuseKind::kPut || each.kind == ReuseKind::kGet
                             ? ReuseCosts::kOneSided
                         : options[0].rings != 0 ? ReuseCosts::kRing
                                                 : ReuseCosts::kSend;
        const std::uint32_t wanted = options[0].reuse_after
                                         ? *options[0].reuse_after
                                         : costs.uses_for(each.bytes, way, options[0].speculation);
        if (wanted != ReuseCosts::kNever) uses += std::min(wanted, 20000u) * 3 / 2;
        std::uint32_t iterations = 0;
        for (int side = 0; side < 2; ++side) {
            const double seconds = turn(side, uses * each.buffers);
            iterations = std::max<std::uint32_t>(
                {iterations, static_cast<std::uint32_t>(request.seconds / seconds), 16});
        }
        ReuseResult result;
        for (std::uint32_t i = 0; i < request.repetitions; ++i)
            for (int n = 0; n < 2; ++n) {
                const int side = static_cast<int>(i + static_cast<std::uint32_t>(n)) % 2;
                const double seconds = turn(side, iterations);
                (side == 0 ? result.with : result.without).push_back(seconds);
            }
        turn(0, iterations);
        result.gathered = static_cast<double>(board->sides[0].gathered) / iterations;
        results.push_back(result);
    }
    board->iterations = 0;
    for (int side = 0; side < 2; ++side)
        for (std::uint32_t i = 0; i < request.processes; ++i)
            ::sem_post(&board->sides[side].processes[i].go);
    children.wait_for_all();
    return results;
}

}  // namespace heddle::bench
