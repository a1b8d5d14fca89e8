// SPDX-License-Identifier: BSD-2-Clause
// provider_peers [--json] [--peers N] [--processes P] [--depth D] [--most BYTES]: what a peer costs
// an endpoint that has N peers (4096), in memory and in time to connect. The peers are endpoints of
// P processes (4) and share what they can. In RC mode each has a connection of its own. Measured on
// both paths (verbs, direct) and on both sides: an endpoint that sends a message of 8 bytes to all,
// one that all send to, and one that does both. Each in processes of their own.
//
// Memory is what malloc has given out, and not yet got back, when all messages have come. It is
// split into an entry of the address vector, the queue pair, and the rest. A queue pair's share is
// that of equal ones which this program makes without the provider. They may have D entries (128),
// and begin with 32 at most; there is no burst here. With --most the program fails where a peer
// costs more beyond its queue pair, address included.
//
// The program starts itself under the `softhca` beside it, once for each path and side.
#include <infiniband/verbs.h>
#include <malloc.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/common/measure.h"
#include "under_softhca.h"

namespace heddle::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kName = 48;
constexpr unsigned kMostPeers = 16384;
constexpr unsigned kFirstEntries = 32;  // of a send queue that has not been full
constexpr double kPatienceUs = 240e6;

struct Settings {
    unsigned peers = 4096, processes = 4, depth = 128;
    std::string part;  // SIDE-PATH, in a program under softhca
};

// Shared by all processes.
struct Board {
    std::byte hub[kName];
    std::byte peers[kMostPeers][kName];
    std::atomic<unsigned> named, hub_named, ready, may_send, received, failed, leave;
};

void must(long result, const char* what) {
    if (result >= 0) return;
    std::fprintf(stderr, "provider_peers: %s: %s\n", what, fi_strerror(static_cast<int>(-result)));
    _exit(1);
}

std::size_t allocated() {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

// Calls `step` until `condition` holds.
template <class Condition, class Step>
void wait_for(const Board& board, Condition&& condition, Step&& step, const char* what) {
    const double end = now_us() + kPatienceUs;
    while (!condition()) {
        if (board.failed.load() != 0 || now_us() > end) must(-FI_ETIMEDOUT, what);
        step();
    }
}
void pause() { usleep(200); }

// Endpoints of one domain, with one address vector and two completion queues.
class Side {
public:
    explicit Side(unsigned endpoints) {
        fi_info* const hints = fi_allocinfo();
        hints->caps = FI_TAGGED;
        hints->ep_attr->type = FI_EP_RDM;
        hints->domain_attr->threading = FI_THREAD_DOMAIN;
        must(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info_), "fi_getinfo");
        must(fi_fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
        must(fi_domain(fabric_, info_, &domain_, nullptr), "fi_domain");
        fi_av_attr addresses{};
        addresses.type = FI_AV_TABLE;
        must(fi_av_open(domain_, &addresses, &av_, nullptr), "fi_av_open");
        fi_cq_attr entries{};
        entries.format = FI_CQ_FORMAT_TAGGED;
        must(fi_cq_open(domain_, &entries, &sent_, nullptr), "fi_cq_open");
        must(fi_cq_open(domain_, &entries, &received_, nullptr), "fi_cq_open");
        endpoints_.resize(endpoints);
        for (fid_ep*& ep : endpoints_) {
            must(fi_endpoint(domain_, info_, &ep, nullptr), "fi_endpoint");
            must(fi_ep_bind(ep, &av_->fid, 0), "fi_ep_bind");
            must(fi_ep_bind(ep, &sent_->fid, FI_TRANSMIT), "fi_ep_bind");
            must(fi_ep_bind(ep, &received_->fid, FI_RECV), "fi_ep_bind");
            must(fi_enable(ep), "fi_enable");
        }
        fi_freeinfo(hints);
    }
    void name(unsigned endpoint, std::byte* to) const {
        std::size_t bytes = kName;
        must(fi_getname(&endpoints_[endpoint]->fid, to, &bytes), "fi_getname");
    }
    void insert(const std::byte* names, unsigned count) const {
        for (unsigned i = 0; i < count; ++i)
            must(fi_av_insert(av_, names + i * kName, 1, nullptr, 0, nullptr) - 1, "fi_av_insert");
    }
    // Room for a message with that tag.
    void expect(unsigned endpoint, std::uint64_t tag, std::uint64_t& room) const {
        must(fi_trecv(endpoints_[endpoint], &room, sizeof room, nullptr, FI_ADDR_UNSPEC, tag, 0,
                      nullptr),
             "fi_trecv");
    }
    void send(unsigned endpoint, fi_addr_t to, std::uint64_t tag) {
        const std::uint64_t data = ~tag;
        ssize_t result = -FI_EAGAIN;
        while ((result = fi_tinject(endpoints_[endpoint], &data, sizeof data, to, tag)) ==
               -FI_EAGAIN)
            progress();
        must(result, "fi_tinject");
    }
    // Reads what has come: returns how many messages.
    unsigned progress() {
        fi_cq_read(sent_, nullptr, 0);
        fi_cq_tagged_entry entry[16];
        const ssize_t got = fi_cq_read(received_, entry, 16);
        if (got == -FI_EAGAIN) return 0;
        must(got, "fi_cq_read");
        return static_cast<unsigned>(got);
    }

private:
    fi_info* info_ = nullptr;
    fid_fabric* fabric_ = nullptr;
    fid_domain* domain_ = nullptr;
    fid_av* av_ = nullptr;
    fid_cq *sent_ = nullptr, *received_ = nullptr;
    std::vector<fid_ep*> endpoints_;
};

// One of many queue pairs like the provider's senders, or like its targets.
double bytes_of_queue_pair(bool sends, unsigned depth) {
    ibv_device** const list = need(ibv_get_device_list(nullptr), "ibv_get_device_list");
    ibv_context* const context = need(ibv_open_device(list[0]), "ibv_open_device");
    ibv_pd* const pd = need(ibv_alloc_pd(context), "ibv_alloc_pd");
    ibv_cq* const cq = need(ibv_create_cq(context, 64, nullptr, nullptr, 0), "ibv_create_cq");
    ibv_srq_init_attr receives{nullptr, {16, 1, 0}};
    ibv_srq* const srq = need(ibv_create_srq(pd, &receives), "ibv_create_srq");
    std::vector<ibv_qp*> made(256);
    const std::size_t before = allocated();
    for (ibv_qp*& qp : made) {
        ibv_qp_init_attr attributes{};
        attributes.qp_type = IBV_QPT_RC;
        attributes.send_cq = attributes.recv_cq = cq;
        attributes.srq = srq;
        attributes.cap.max_send_wr = sends ? depth : 1;
        attributes.cap.max_send_sge = sends ? 3 : 1;
        attributes.cap.max_inline_data = sends ? 152 : 0;
        qp = need(ibv_create_qp(pd, &attributes), "ibv_create_qp");
    }
    const double bytes =
        static_cast<double>(allocated() - before) / static_cast<double>(made.size());
    for (ibv_qp* const qp : made)
        ibv_destroy_qp(qp);
    ibv_destroy_srq(srq);
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
    ibv_free_device_list(list);
    return bytes;
}

// Endpoints first to first + count - 1 of the peers.
void peers(Board& board, const Settings& s, unsigned first, unsigned count) {
    Side side(count);
    std::vector<std::uint64_t> room(count);
    for (unsigned i = 0; i < count; ++i) {
        side.name(i, board.peers[first + i]);
        side.expect(i, first + i, room[i]);
    }
    board.named += count;
    wait_for(
        board, [&] { return board.hub_named.load() != 0; }, pause, "the hub's name");
    side.insert(board.hub, 1);
    ++board.ready;
    bool has_sent = false;
    const auto step = [&] {
        if (!has_sent && board.may_send.load() != 0) {
            has_sent = true;
            for (unsigned i = 0; i < count; ++i)
                side.send(i, 0, first + i);
        }
        if (const unsigned got = side.progress(); got != 0)
            board.received += got;
        else
            sched_yield();
    };
    wait_for(
        board, [&] { return board.leave.load() != 0; }, step, "the end");
    for (unsigned i = 0; i < count; ++i)
        if (s.part.starts_with("receives") != (room[i] == 0) ||
            (room[i] != 0 && room[i] != ~std::uint64_t{first + i}))
            must(-FI_EOTHER, "what a message says");
}

Json hub(Board& board, const Settings& s) {
    const bool sends = !s.part.starts_with("receives"), receives = !s.part.starts_with("sends");
    const double sender = bytes_of_queue_pair(true, std::min(s.depth, kFirstEntries)),
                 target = bytes_of_queue_pair(false, 0);
    Side side(1);
    std::vector<std::uint64_t> room(s.peers);
    side.name(0, board.hub);
    ++board.hub_named;
    wait_for(
        board, [&] { return board.ready.load() == s.processes; }, pause, "the peers");
    if (receives)
        for (unsigned i = 0; i < s.peers; ++i)
            side.expect(0, i, room[i]);
    const auto each = [&](std::size_t bytes) { return static_cast<double>(bytes) / s.peers; };
    const std::size_t at_first = allocated();
    side.insert(board.peers[0], s.peers);
    const std::size_t inserted = allocated();
    const double begin = now_us();
    if (sends) {
        for (unsigned i = 0; i < s.peers; ++i)
            side.send(0, i, i);
        wait_for(
            board, [&] { return board.received.load() == s.peers; }, [&] { side.progress(); },
            "messages to the peers");
    }
    if (receives) {
        ++board.may_send;
        unsigned got = 0;
        wait_for(
            board, [&] { return got == s.peers; }, [&] { got += side.progress(); },
            "messages of the peers");
        for (unsigned i = 0; i < s.peers; ++i)
            if (room[i] != ~std::uint64_t{i}) must(-FI_EOTHER, "what a message says");
    }
    const double end = now_us();
    // An endpoint returns the memory of a burst's requests when it has nothing to do.
    for (int i = 0; i < 8192; ++i)
        side.progress();
    const double queue_pairs = (sends ? sender : 0) + (receives ? target : 0);
    return {{"address_bytes", each(inserted - at_first)},
            {"queue_pair_bytes", queue_pairs},
            {"other_bytes", each(allocated() - inserted) - queue_pairs},
            {"seconds", (end - begin) * 1e-6},
            {"us_each", (end - begin) / (s.peers * (sends && receives ? 2.0 : 1.0))}};
}

// All processes of one part; the hub prints what it finds.
int run_here(const Settings& s) {
    void* const memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) give_up("mmap");
    Board& board = *static_cast<Board*>(memory);
    std::vector<pid_t> children;
    for (unsigned i = 0; i <= s.processes; ++i) {
        const pid_t child = fork();
        if (child < 0) give_up("fork");
        if (child == 0) {
            const unsigned first = s.peers * i / s.processes;
            if (i < s.processes) {
                peers(board, s, first, s.peers * (i + 1) / s.processes - first);
            } else {
                std::printf("%s\n", hub(board, s).dump().c_str());
                std::fflush(stdout);
                ++board.leave;
            }
            _exit(0);
        }
        children.push_back(child);
    }
    int result = 0;
    for (std::size_t i = 0; i < children.size(); ++i) {
        int status = 0;
        if (wait(&status) < 0) give_up("wait");
        if (status != 0) ++board.failed, result = 1;
    }
    return result;
}

Json run_part(const Settings& s, const char* side, const char* path) {
    const std::string part = std::string(side) + "-" + path;
    const char* const prefix = std::getenv("HEDDLE_FABRIC_PREFIX");
    const std::string fabric = (prefix != nullptr ? std::string(prefix) : std::string()) +
                               "peers-" + std::to_string(getpid()) + "-" + part;
    setenv("FI_HEDDLE_POST", path, 1);
    return run_under_softhca({"--fabric", fabric},
                             {"--part", part, "--peers", std::to_string(s.peers), "--processes",
                              std::to_string(s.processes), "--depth", std::to_string(s.depth)});
}

int usage() {
    std::fprintf(stderr,
                 "usage: provider_peers [--json] [--peers N] [--processes P] [--depth D] [--most "
                 "BYTES]\nMeasures memory and time for each of N peers (4096) of an endpoint, "
                 "which are in P processes\n(4), with send queues of up to D entries (128). Fails "
                 "where one takes more than BYTES beyond\nits queue pair. N is at most %u.\n",
                 kMostPeers);
    return 2;
}

int run(int argc, char** argv) {
    Settings s;
    bool json = false;
    double most = 0;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto number = [&] { return static_cast<unsigned>(std::atoi(argv[++i])); };
        if (word == "--json") {
            json = true;
            continue;
        }
        if (i + 1 == argc) return usage();
        if (word == "--peers")
            s.peers = number();
        else if (word == "--processes")
            s.processes = number();
        else if (word == "--depth")
            s.depth = number();
        else if (word == "--most")
            most = number();
        else if (word == "--part")
            s.part = argv[++i];
        else
            return usage();
    }
    if (s.processes < 1 || s.peers < s.processes || s.peers > kMostPeers || s.depth < 16)
        return usage();
    if (!s.part.empty()) return run_here(s);
    // The provider of this build.
    const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    setenv("FI_PROVIDER_PATH", (folder.parent_path() / "lib").c_str(), 0);
    setenv("FI_PROVIDER", "heddle", 1);
    setenv("FI_HEDDLE_TRANSPORT", "rc", 1);
    setenv("FI_HEDDLE_SEND_DEPTH", std::to_string(s.depth).c_str(), 1);
    // Each endpoint has queues of its own, and so connections of its own. They are small.
    setenv("FI_HEDDLE_ENDPOINTS", "static", 1);
    setenv("FI_HEDDLE_RECEIVE_BUFFERS", "16", 1);
    setenv("FI_HEDDLE_EAGER_SIZE", "256", 1);
    setenv("FI_HEDDLE_RECEIVE_MEMORY", "0", 1);
    Json all = {{"peers", s.peers}, {"processes", s.processes}, {"depth", s.depth}};
    if (!json)
        std::printf(
            "%u peers of an endpoint, in %u processes: bytes and time for each\n\n"
            "%-10s%-8s%12s%12s%12s%12s%12s\n",
            s.peers, s.processes, "", "path", "address", "queue pairs", "the rest", "us each",
            "s in all");
    bool is_too_much = false;
    for (const char* side : {"sends", "receives", "both"})
        for (const char* path : {"verbs", "direct"}) {
            const Json found = run_part(s, side, path);
            const auto value = [&](const char* key) { return found[key].get<double>(); };
            const double cost = value("address_bytes") + value("other_bytes");
            is_too_much |= most != 0 && cost > most;
            all[side][path] = found;
            if (json) continue;
            std::printf("%-10s%-8s%12.0f%12.0f%12.0f%12.1f%12.2f\n", side, path,
                        value("address_bytes"), value("queue_pair_bytes"), value("other_bytes"),
                        value("us_each"), value("seconds"));
            std::fflush(stdout);
        }
    if (json) std::printf("%s\n", all.dump().c_str());
    if (is_too_much)
        std::fprintf(stderr,
                     "provider_peers: a peer takes more than %.0f bytes beyond its queue "
                     "pair\n",
                     most);
    return is_too_much ? 1 : 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
