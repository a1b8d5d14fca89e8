// SPDX-License-Identifier: BSD-2-Clause
// Many endpoints of one process that each send to many processes: how queue pairs and memory grow.
// docs/architecture/protocol.md: with XRC a process of T endpoints has one connection of each to a
// peer process, whatever number of endpoints that one has: T x P.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "tests/endpoint/device_stat.h"
#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

constexpr unsigned kMostPeers = 64;
// docs/architecture/protocol.md, "What a peer costs": of one that was sent to.
constexpr std::size_t kBytesForPeer = 3072;

// What the processes tell each other: memory of all of them.
struct ScaleBoard {
    std::byte names[kMostPeers][kNameBytes];
    std::atomic<unsigned> named, received, wrong, hub_done, leave;
    std::size_t bytes_before, bytes_after, bare_bytes;
    // What the last peer takes for each endpoint of the hub, from which it only receives.
    std::size_t bytes_for_sender, bare_target_bytes;
};

std::size_t allocated() {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

template <class Condition>
bool wait_at_most(Condition&& condition, std::chrono::seconds patience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        usleep(1000);
    }
    return true;
}
constexpr std::chrono::seconds kLong{90};

// Makes many with make(context, pd, cq) and returns the memory of one.
template <class Make>
std::size_t bytes_of_queue_pair(Make&& make) {
    ibv_device** const list = ibv_get_device_list(nullptr);
    ibv_context* const context = ibv_open_device(list[0]);
    ibv_pd* const pd = ibv_alloc_pd(context);
    ibv_cq* const cq = ibv_create_cq(context, 64, nullptr, nullptr, 0);
    constexpr unsigned kCount = 64;
    std::vector<ibv_qp*> made(kCount);
    const std::size_t before = allocated();
    for (ibv_qp*& qp : made) {
        qp = make(context, pd, cq);
        if (qp == nullptr) return 0;
    }
    const std::size_t bytes = (allocated() - before) / kCount;
    for (ibv_qp* const qp : made)
        ibv_destroy_qp(qp);
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
    ibv_free_device_list(list);
    return bytes;
}

// A queue pair like those that the provider makes where it is asked, but made without it.
std::size_t bare_target() {
    ibv_xrcd* domain = nullptr;
    return bytes_of_queue_pair([&](ibv_context* context, ibv_pd*, ibv_cq*) {
        if (domain == nullptr) {
            ibv_xrcd_init_attr wanted{};
            wanted.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
            wanted.fd = -1;
            wanted.oflags = O_CREAT;
            domain = ibv_open_xrcd(context, &wanted);
        }
        ibv_qp_init_attr_ex attributes{};
        attributes.qp_type = IBV_QPT_XRC_RECV;
        attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
        attributes.xrcd = domain;
        return ibv_create_qp_ex(context, &attributes);
    });
}

// One endpoint; each of the hub's sends it a message with its number.
int peer(ScaleBoard& board, unsigned number, unsigned endpoints) {
    World world;
    Station station(world);
    station.enable();
    std::memcpy(board.names[number], station.name, kNameBytes);
    std::vector<std::uint64_t> data(endpoints, ~0ull);
    for (unsigned i = 0; i < endpoints; ++i)
        if (fi_trecv(station.ep.get(), &data[i], sizeof data[i], nullptr, FI_ADDR_UNSPEC, i, 0,
                     nullptr) != 0)
            return 1;
    board.bare_target_bytes = bare_target();
    const std::size_t before = allocated();
    ++board.named;
    const auto end = std::chrono::steady_clock::now() + kLong;
    for (unsigned got = 0; got < endpoints;) {
        fi_cq_tagged_entry entry;
        const ssize_t result = fi_cq_read(station.receive.get(), &entry, 1);
        if (result == 1) {
            ++got;
            if (got == endpoints) board.bytes_for_sender = (allocated() - before) / endpoints;
            if (entry.len != 8 || data[entry.tag] != entry.tag * 1000 + number) ++board.wrong;
            ++board.received;
        } else if (result != -FI_EAGAIN || std::chrono::steady_clock::now() > end) {
            return 1;
        } else {
            usleep(200);
        }
    }
    return wait_at_most([&] { return board.leave.load() != 0; }, kLong) ? 0 : 1;
}

// The same of a queue pair that sends.
std::size_t bare_queue_pair() {
    return bytes_of_queue_pair([](ibv_context* context, ibv_pd* pd, ibv_cq* cq) {
        ibv_qp_init_attr_ex attributes{};
        attributes.qp_type = IBV_QPT_XRC_SEND;
        attributes.send_cq = cq;
        attributes.cap.max_send_wr = 128;
        attributes.cap.max_send_sge = 2;
        attributes.cap.max_inline_data = 152;
        attributes.pd = pd;
        attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
        return ibv_create_qp_ex(context, &attributes);
    });
}

int hub(ScaleBoard& board, unsigned endpoints, unsigned peers) {
    World world;
    std::vector<std::unique_ptr<Station>> stations;
    std::vector<std::vector<fi_addr_t>> addresses(endpoints);
    for (unsigned i = 0; i < endpoints; ++i) {
        stations.push_back(std::make_unique<Station>(world));
        stations.back()->enable();
    }
    board.bare_bytes = bare_queue_pair();
    if (!wait_at_most([&] { return board.named.load() == peers; }, kLong)) return 1;
    for (unsigned i = 0; i < endpoints; ++i) {
        addresses[i].resize(peers);
        for (unsigned p = 0; p < peers; ++p)
            if (fi_av_insert(stations[i]->av.get(), board.names[p], 1, &addresses[i][p], 0,
                             nullptr) != 1)
                return 1;
    }
    board.bytes_before = allocated();
    // Peer after peer: what waits for a connection takes memory, too, but not for good.
    for (unsigned p = 0; p < peers; ++p) {
        for (unsigned i = 0; i < endpoints; ++i) {
            const std::uint64_t data = i * 1000 + p;
            const auto send = [&] {
                return fi_tinject(stations[i]->ep.get(), &data, sizeof data, addresses[i][p], i);
            };
            if (insist(stations[i]->transmit.get(), send) != 0) return 1;
        }
        const auto end = std::chrono::steady_clock::now() + kLong;
        while (board.received.load() < endpoints * (p + 1)) {
            for (const auto& station : stations)
                fi_cq_read(station->transmit.get(), nullptr, 0);
            if (std::chrono::steady_clock::now() > end) return 1;
            sched_yield();
        }
    }
    board.bytes_after = allocated();
    ++board.hub_done;
    return wait_at_most([&] { return board.leave.load() != 0; }, kLong) ? 0 : 1;
}

template <class Run>
pid_t start(Run&& run) {
    const pid_t child = fork();
    if (child == 0) std::exit(run());
    return child;
}

struct Found {
    unsigned hub = 0, others = 0;  // queue pairs
    double bytes_for_peer = 0, bytes_for_sender = 0;
    std::size_t queue_pair_bytes = 0, target_bytes = 0;
};

Found connect_all(unsigned endpoints, unsigned peers) {
    auto* const board = static_cast<ScaleBoard*>(mmap(
        nullptr, sizeof(ScaleBoard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::vector<pid_t> children;
    for (unsigned p = 0; p < peers; ++p)
        children.push_back(start([&] { return peer(*board, p, endpoints); }));
    const pid_t hub_pid = start([&] { return hub(*board, endpoints, peers); });
    children.push_back(hub_pid);
    Found found;
    if (wait_at_most([&] { return board->hub_done.load() != 0; }, kLong)) {
        const auto stat = fabric_stat();
        for (const auto& process : stat["processes"]) {
            const auto pairs = process["qps"].get<unsigned>();
            (process["pid"] == hub_pid ? found.hub : found.others) += pairs;
        }
        const auto grown = static_cast<double>(board->bytes_after - board->bytes_before);
        found.bytes_for_peer = grown / (endpoints * peers) - static_cast<double>(board->bare_bytes);
        found.bytes_for_sender = static_cast<double>(board->bytes_for_sender) -
                                 static_cast<double>(board->bare_target_bytes);
        found.queue_pair_bytes = board->bare_bytes;
        found.target_bytes = board->bare_target_bytes;
    } else {
        ADD_FAILURE() << board->received << " of " << endpoints * peers << " messages, "
                      << board->named << " of " << peers << " peers";
    }
    ++board->leave;
    for (const pid_t child : children) {
        int status = 0;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0) << (child == hub_pid ? "of the hub" : "of a peer");
    }
    EXPECT_EQ(board->wrong.load(), 0u);
    munmap(board, sizeof(ScaleBoard));
    return found;
}

// `make test-long` sets 64.
unsigned scale() {
    const char* const wanted = std::getenv("HEDDLE_TEST_SCALE");
    return wanted != nullptr ? std::min(static_cast<unsigned>(std::atoi(wanted)), kMostPeers) : 8;
}

class Scale : public testing::TestWithParam<const char*> {};

TEST_P(Scale, QueuePairsGrowAsEndpointsTimesPeers) {
    setenv("FI_HEDDLE_POST", GetParam(), 1);
    setenv("FI_HEDDLE_RECEIVE_BUFFERS", "64", 1);
    setenv("FI_HEDDLE_EAGER_SIZE", "1024", 1);
    const unsigned n = scale();
    const Found few = connect_all(2, 2);
    const Found many = connect_all(n, n);
    // Besides those for messages a process has what does not depend on the number of its peers.
    const unsigned fixed = few.hub - 2 * 2;
    EXPECT_EQ(many.hub, n * n + fixed);
    EXPECT_EQ(many.others, n * n + n * (few.others - 2 * 2) / 2);
    std::printf(
        "%u endpoints, %u peers: %u queue pairs here, %u there; %.0f bytes for each peer "
        "of an endpoint beyond its queue pair, %.0f there for each that sends to it; "
        "queue pairs: %zu bytes here, %zu there\n",
        n, n, many.hub, many.others, many.bytes_for_peer, many.bytes_for_sender,
        many.queue_pair_bytes, many.target_bytes);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LE(many.bytes_for_peer, static_cast<double>(kBytesForPeer));
#endif
}

INSTANTIATE_TEST_SUITE_P(Paths, Scale, testing::Values("verbs", "direct"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace heddle::test
