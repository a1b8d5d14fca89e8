// SPDX-License-Identifier: BSD-2-Clause
// softhca_floor [--json] [--repetitions N]: how far the software HCA is from what the machine can
// do. Two processes on two cores measure, interleaved, in N repetitions: a bare ping-pong of flags
// in shared memory (one way); RDMA WRITE of 8 bytes as ib_write_lat and SEND as ib_send_lat do it;
// RDMA WRITE of 1 MiB as ib_write_bw does it, beside plain memcpy between buffers of the same kind
// in shared memory, and with --memory cma beside bare process_vm_writev between the very same
// buffers; and ibv_poll_cq of an empty CQ in a process with 1 and with 1000 idle QPs. The times are
// those of software on this machine: the software HCA models function, not time.
//
// The program starts itself under the `softhca` beside it, once for each part.

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>

#include "experiments/common/measure.h"
#include "rc_endpoint.h"
#include "under_softhca.h"

namespace heddle::bench {
namespace {

using Json = nlohmann::ordered_json;

// Turns of a ping-pong: as many as take about 3 ms (less than a time slice), going by the one
// before.
constexpr std::uint32_t kFewTurns = 10, kManyTurns = 20000;
constexpr double kPingPongUs = 3000;
constexpr std::size_t kLarge = 1 << 20;
constexpr std::uint32_t kLargeCount = 32;
// Behind the buffer of the large writes: where small messages leave from and arrive.
constexpr std::size_t kOut = kLarge, kIn = kLarge + 4096, kReceive = kLarge + 8192;
constexpr std::size_t kMemory = kLarge + 12288;
constexpr std::uint32_t kDepth = 128;
constexpr int kPolls = 20000;

enum class What : std::uint32_t { kFlag, kWrite, kSend, kQuit };
struct Order {
    What what;
    std::uint32_t turns;
};

struct alignas(128) Flag {
    std::atomic<std::uint32_t> value;
};

// Shared by both processes from before the fork.
struct Shared {
    Flag there, back;
    alignas(4096) std::uint8_t source[kLarge];
    alignas(4096) std::uint8_t target[kLarge];
};

void tell(int socket, const void* data, std::size_t size) {
    if (send(socket, data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) give_up("send");
}

void hear(int socket, void* data, std::size_t size) {
    if (recv(socket, data, size, MSG_WAITALL) != static_cast<ssize_t>(size))
        give_up("the other process is gone");
}

// One half of each ping-pong; the first side starts. Returns microseconds one way.
double flags(Shared& shared, bool first, std::uint32_t turns) {
    std::atomic<std::uint32_t>& mine = first ? shared.there.value : shared.back.value;
    std::atomic<std::uint32_t>& its = first ? shared.back.value : shared.there.value;
    const std::uint32_t start = mine.load();
    const double begin = now_us();
    for (std::uint32_t turn = start + 1; turn <= start + turns; ++turn) {
        if (first) mine.store(turn, std::memory_order_release);
        while (its.load(std::memory_order_acquire) != turn) {
        }
        if (!first) mine.store(turn, std::memory_order_release);
    }
    return (now_us() - begin) / (2.0 * turns);
}

// ib_write_lat: both sides poll the last byte that the other writes, then write back.
double writes(RcEndpoint& e, bool first, std::uint32_t turns) {
    auto* incoming = reinterpret_cast<volatile std::uint8_t*>(e.memory() + kIn + 7);
    std::uint8_t* outgoing = e.memory() + kOut + 7;
    // Continued from one ping-pong to the next: the first write may be there before we look.
    static std::uint8_t sent = 0;
    static std::uint8_t got = 0;
    const double begin = now_us();
    for (std::uint32_t turn = 0; turn < 2 * turns; ++turn) {
        const bool my_turn = (turn % 2 == 0) == first;
        if (my_turn) {
            *outgoing = ++sent;
            e.post(IBV_WR_RDMA_WRITE, kOut, kIn, 8, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
            RcEndpoint::wait(e.send_cq());
        } else {
            ++got;
            while (*incoming != got) {
            }
        }
    }
    return (now_us() - begin) / (2.0 * turns);
}

// ib_send_lat: poll the receive, post another one, send.
double sends(RcEndpoint& e, bool first, std::uint32_t turns) {
    const double begin = now_us();
    for (std::uint32_t turn = 0; turn < 2 * turns; ++turn) {
        if ((turn % 2 == 0) == first) {
            e.post(IBV_WR_SEND, kOut, 0, 8, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
            RcEndpoint::wait(e.send_cq());
        } else {
            RcEndpoint::wait(e.receive_cq());
            e.post_receive(kReceive, 8);
        }
    }
    return (now_us() - begin) / (2.0 * turns);
}

// ib_write_bw: up to kDepth writes of 1 MiB under way. GB/s.
double large_writes(RcEndpoint& e) {
    const double begin = now_us();
    for (std::uint32_t i = 0; i < kLargeCount; ++i)
        e.post(IBV_WR_RDMA_WRITE, 0, 0, kLarge, IBV_SEND_SIGNALED);
    RcEndpoint::wait(e.send_cq(), kLargeCount);
    return kLargeCount * static_cast<double>(kLarge) / (now_us() - begin) * 1e-3;
}

double copies(Shared& shared) {
    const double begin = now_us();
    for (std::uint32_t i = 0; i < kLargeCount; ++i) {
        std::memcpy(shared.target, shared.source, kLarge);
        asm volatile("" ::: "memory");
    }
    return kLargeCount * static_cast<double>(kLarge) / (now_us() - begin) * 1e-3;
}

// 0 when the system refuses it.
double system_copies(const RcEndpoint& e, pid_t peer) {
    const iovec local = {e.memory(), kLarge};
    const iovec remote = {reinterpret_cast<void*>(e.remote().address), kLarge};
    const double begin = now_us();
    for (std::uint32_t i = 0; i < kLargeCount; ++i) {
        if (process_vm_writev(peer, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(kLarge))
            continue;
        if (errno == EPERM || errno == ENOSYS) return 0;
        give_up("process_vm_writev");
    }
    return kLargeCount * static_cast<double>(kLarge) / (now_us() - begin) * 1e-3;
}

[[noreturn]] void partner(int socket, Shared& shared, int core) {
    pin_to(core);
    std::memset(shared.target, 1, kLarge);
    RcEndpoint e(kMemory, kDepth);
    RemoteSide address = e.address();
    tell(socket, &address, sizeof address);
    hear(socket, &address, sizeof address);
    e.connect(address);
    for (std::uint32_t i = 0; i < 64; ++i)
        e.post_receive(kReceive, 8);
    for (;;) {
        char ready = 'r';
        tell(socket, &ready, 1);
        Order order;
        hear(socket, &order, sizeof order);
        if (order.what == What::kQuit) _exit(0);
        if (order.what == What::kFlag) flags(shared, false, order.turns);
        if (order.what == What::kWrite) writes(e, false, order.turns);
        if (order.what == What::kSend) sends(e, false, order.turns);
    }
}

// Both processes; `cma`: only what concerns payload that is not shared.
Json measure_pair(int repetitions, bool cma) {
    const auto cores = allowed_cores();
    auto* shared = static_cast<Shared*>(
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (shared == MAP_FAILED) give_up("mmap");
    std::memset(shared->source, 2, kLarge);
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) give_up("socketpair");
    const pid_t peer = fork();
    if (peer < 0) give_up("fork");
    if (peer == 0) {
        close(sockets[0]);
        partner(sockets[1], *shared, cores[1]);
    }
    close(sockets[1]);
    const int socket = sockets[0];
    pin_to(cores[0]);
    RcEndpoint e(kMemory, kDepth);
    RemoteSide address = e.address();
    tell(socket, &address, sizeof address);
    hear(socket, &address, sizeof address);
    e.connect(address);
    for (std::uint32_t i = 0; i < 64; ++i)
        e.post_receive(kReceive, 8);
    const auto order = [&](What what, std::uint32_t turns = 0) {
        char ready;
        hear(socket, &ready, 1);
        const Order message = {what, turns};
        tell(socket, &message, sizeof message);
        return turns;
    };
    // One ping-pong; each also says how many turns the next one of its kind has.
    std::uint32_t turns[3] = {kFewTurns, kFewTurns, kFewTurns};
    const auto ping_pong = [&](What what) {
        std::uint32_t& mine = turns[static_cast<std::size_t>(what)];
        order(what, mine);
        const double us = what == What::kFlag    ? flags(*shared, true, mine)
                          : what == What::kWrite ? writes(e, true, mine)
                                                 : sends(e, true, mine);
        mine = static_cast<std::uint32_t>(
            std::clamp(kPingPongUs / us, double{kFewTurns}, double{kManyTurns}));
        return us;
    };

    std::vector<double> flag_us, write_us, send_us, write_gb, copy_gb;
    for (int i = -1; i < repetitions; ++i) {  // the first one warms up
        if (!cma) {
            flag_us.push_back(ping_pong(What::kFlag));
            write_us.push_back(ping_pong(What::kWrite));
            send_us.push_back(ping_pong(What::kSend));
        }
        copy_gb.push_back(cma ? system_copies(e, peer) : copies(*shared));
        if (copy_gb.back() > 0) write_gb.push_back(large_writes(e));
        if (i < 0)
            for (auto* list : {&flag_us, &write_us, &send_us, &write_gb, &copy_gb})
                list->clear();
    }
    order(What::kQuit);
    waitpid(peer, nullptr, 0);

    Json json;
    if (cma) {
        if (median(copy_gb) <= 0) return {{"cma_bw_over_process_vm_writev", nullptr}};
        json["cma_bw_over_process_vm_writev"] = median_ratio(write_gb, copy_gb);
        json["cma_bw_gb_s"] = median(write_gb);
        json["process_vm_writev_gb_s"] = median(copy_gb);
        return json;
    }
    json["write_lat_over_floor"] = median_ratio(write_us, flag_us);
    json["send_lat_over_floor"] = median_ratio(send_us, flag_us);
    json["write_bw_over_memcpy"] = median_ratio(write_gb, copy_gb);
    json["floor_us"] = median(flag_us);
    json["write_lat_us"] = median(write_us);
    json["send_lat_us"] = median(send_us);
    json["write_bw_gb_s"] = median(write_gb);
    json["memcpy_gb_s"] = median(copy_gb);
    return json;
}

// A process with `idle` connected QPs that nobody uses; polls when told to, answers nanoseconds.
[[noreturn]] void poller(int socket, int idle, int core) {
    pin_to(core);
    RcEndpoint e(4096, 16);
    const RemoteSide self = e.address();
    e.connect(self);
    for (int i = 1; i < idle; ++i) {
        ibv_qp* qp = e.create_qp(16);
        RcEndpoint::connect(qp, qp->qp_num, self.lid);
    }
    double ns = 0;
    tell(socket, &ns, sizeof ns);
    char order;
    while (recv(socket, &order, 1, MSG_WAITALL) == 1) {
        ibv_wc wc;
        const double begin = now_us();
        for (int i = 0; i < kPolls; ++i)
            if (ibv_poll_cq(e.send_cq(), 1, &wc) != 0) give_up("the CQ is not empty");
        ns = (now_us() - begin) * 1e3 / kPolls;
        tell(socket, &ns, sizeof ns);
    }
    _exit(0);
}

Json measure_polls(int repetitions) {
    const int counts[] = {1, 1000};
    int sockets[2][2];
    pid_t children[2];
    for (int i = 0; i < 2; ++i) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets[i]) != 0)
            give_up("socketpair");
        children[i] = fork();
        if (children[i] < 0) give_up("fork");
        if (children[i] == 0) {
            close(sockets[0][0]);
            close(sockets[i][0]);
            poller(sockets[i][1], counts[i], allowed_cores()[0]);
        }
        close(sockets[i][1]);
        double ready;
        hear(sockets[i][0], &ready, sizeof ready);
    }
    std::vector<double> ns[2];
    for (int r = -1; r < repetitions; ++r) {
        for (int i = 0; i < 2; ++i) {
            double value;
            tell(sockets[i][0], "p", 1);
            hear(sockets[i][0], &value, sizeof value);
            if (r >= 0) ns[i].push_back(value);
        }
    }
    for (int i = 0; i < 2; ++i) {
        close(sockets[i][0]);
        waitpid(children[i], nullptr, 0);
    }
    Json json;
    json["empty_poll_1000_over_1"] = median_ratio(ns[1], ns[0]);
    json["empty_poll_1_ns"] = median(ns[0]);
    json["empty_poll_1000_ns"] = median(ns[1]);
    return json;
}

// Runs this program again under softhca for one part and reads its line.
Json run_part(const char* part, const char* memory, int repetitions) {
    const std::string fabric = "floor-" + std::to_string(getpid()) + "-" + part;
    return run_under_softhca({"--memory", memory, "--fabric", fabric},
                             {"--part", part, "--repetitions", std::to_string(repetitions)});
}

void print_table(const Json& j) {
    const auto number = [&](const char* key) {
        return j.contains(key) && j[key].is_number() ? j[key].get<double>() : 0.0;
    };
    std::printf("software HCA, median of %d interleaved repetitions, cores %d and %d\n\n",
                j["repetitions"].get<int>(), j["cores"][0].get<int>(), j["cores"][1].get<int>());
    std::printf("%-44s %12s %12s %8s\n", "", "measured", "beside", "ratio");
    const auto line = [&](const char* what, const char* unit, const char* key, const char* beside,
                          const char* ratio, double scale = 1) {
        std::printf("%-44s %9.3f %s %9.3f %s %8.2f\n", what, number(key) * scale, unit,
                    number(beside) * scale, unit, number(ratio));
    };
    line("RDMA WRITE 8 B, one way, beside a flag", "us", "write_lat_us", "floor_us",
         "write_lat_over_floor");
    line("SEND 8 B, one way, beside a flag", "us", "send_lat_us", "floor_us",
         "send_lat_over_floor");
    line("RDMA WRITE 1 MiB beside memcpy, GB/s", "  ", "write_bw_gb_s", "memcpy_gb_s",
         "write_bw_over_memcpy");
    if (j["cma_bw_over_process_vm_writev"].is_null())
        std::printf("%-44s %s\n", "RDMA WRITE 1 MiB by CMA",
                    "not measured: process_vm_writev is refused here");
    else
        line("the same by CMA beside process_vm_writev", "  ", "cma_bw_gb_s",
             "process_vm_writev_gb_s", "cma_bw_over_process_vm_writev");
    line("empty poll, 1000 idle QPs beside 1", "ns", "empty_poll_1000_ns", "empty_poll_1_ns",
         "empty_poll_1000_over_1");
}

int usage() {
    std::fprintf(stderr, "usage: softhca_floor [--json] [--repetitions N]\n");
    return 2;
}

int run(int argc, char** argv) {
    bool json = false;
    int repetitions = 41;
    std::string part;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--json") {
            json = true;
        } else if (word == "--repetitions" && i + 1 < argc) {
            repetitions = std::atoi(argv[++i]);
        } else if (word == "--part" && i + 1 < argc) {
            part = argv[++i];
        } else {
            return usage();
        }
    }
    if (repetitions < 1 || repetitions > 10000) return usage();
    const auto cores = allowed_cores();
    if (cores.size() < 2) {
        std::fprintf(stderr, "softhca_floor: two cores are needed; this process may use %zu\n",
                     cores.size());
        return 1;
    }
    if (!part.empty()) {
        const Json result =
            part == "polls" ? measure_polls(repetitions) : measure_pair(repetitions, part == "cma");
        std::printf("%s\n", result.dump().c_str());
        return 0;
    }
    Json all = run_part("shared", "auto", repetitions);
    all.update(run_part("cma", "cma", repetitions));
    all.update(run_part("polls", "auto", repetitions));
    all["repetitions"] = repetitions;
    all["cores"] = {cores[0], cores[1]};
    all["device"] = "software HCA";
    all["version"] = SOFTHCA_VERSION;
    if (json)
        std::printf("%s\n", all.dump().c_str());
    else
        print_table(all);
    return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
