// SPDX-License-Identifier: BSD-2-Clause
// provider_instructions [--json]: what the provider costs between an MPI library and the adapter,
// for a message of 8 bytes: from fi_tinject and fi_tsend to the doorbell, and from a completion in
// the device's queue to the entry that fi_cq_read gives for the receive it matches. Counted by
// callgrind within these calls, without what the software HCA does itself. One thread
// (FI_THREAD_DOMAIN).
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/callgrind.h"

namespace {

struct Part {
    const char* name;
    const char* label;
    const char* counted;  // the function
};
constexpr Part kParts[] = {
    {"tinject", "fi_tinject", "counted_inject"},
    {"tsend", "fi_tsend", "counted_send"},
    {"read", "fi_cq_read, a message", "counted_read"},
};
constexpr int kMessages = 2048;

void must(long result, const char* what) {
    if (result >= 0) return;
    std::fprintf(stderr, "provider_instructions: %s: %s\n", what,
                 fi_strerror(static_cast<int>(-result)));
    std::exit(1);
}

// A domain with an endpoint.
struct Side {
    fid_domain* domain = nullptr;
    fid_av* av = nullptr;
    fid_cq *sent = nullptr, *received = nullptr;
    fid_ep* ep = nullptr;

    void open(fid_fabric* fabric, fi_info* info) {
        must(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
        fi_av_attr addresses{};
        addresses.type = FI_AV_TABLE;
        must(fi_av_open(domain, &addresses, &av, nullptr), "fi_av_open");
        fi_cq_attr entries{};
        entries.format = FI_CQ_FORMAT_TAGGED;
        must(fi_cq_open(domain, &entries, &sent, nullptr), "fi_cq_open");
        must(fi_cq_open(domain, &entries, &received, nullptr), "fi_cq_open");
        must(fi_endpoint(domain, info, &ep, nullptr), "fi_endpoint");
        must(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
        must(fi_ep_bind(ep, &sent->fid, FI_TRANSMIT), "fi_ep_bind");
        must(fi_ep_bind(ep, &received->fid, FI_RECV), "fi_ep_bind");
        must(fi_enable(ep), "fi_enable");
    }
    fi_addr_t add(const Side& other) {
        char name[256];
        std::size_t bytes = sizeof name;
        must(fi_getname(&other.ep->fid, name, &bytes), "fi_getname");
        fi_addr_t address = FI_ADDR_NOTAVAIL;
        must(fi_av_insert(av, name, 1, &address, 0, nullptr), "fi_av_insert");
        return address;
    }
    void close() {
        for (fid* each : {&ep->fid, &sent->fid, &received->fid, &av->fid, &domain->fid})
            must(fi_close(each), "fi_close");
    }
};

}  // namespace

// callgrind counts while it is in these.
extern "C" {
[[gnu::noinline]] ssize_t counted_inject(fid_ep* ep, const void* data, fi_addr_t to) {
    return fi_tinject(ep, data, 8, to, 1);
}
[[gnu::noinline]] ssize_t counted_send(fid_ep* ep, const void* data, fi_addr_t to) {
    return fi_tsend(ep, data, 8, nullptr, to, 1, nullptr);
}
[[gnu::noinline]] ssize_t counted_read(fid_cq* cq, fi_cq_tagged_entry* entry) {
    return fi_cq_read(cq, entry, 1);
}
}

namespace {

void run(const std::string& part) {
    fi_info* const hints = fi_allocinfo();
    hints->caps = FI_TAGGED;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    fi_info* info = nullptr;
    must(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info), "fi_getinfo");
    fid_fabric* fabric = nullptr;
    must(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
    Side a, b;  // domains of their own: reading b's queue is nothing of a's
    a.open(fabric, info);
    b.open(fabric, info);
    const fi_addr_t to_b = a.add(b);
    b.add(a);  // as MPI libraries do
    fi_cq_tagged_entry entry;
    std::uint64_t data = 0, got = 0;
    bool connected = false;
    for (int i = 0; i <= kMessages; ++i) {
        must(fi_trecv(b.ep, &got, sizeof got, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), "fi_trecv");
        ++data;
        ssize_t result = -FI_EAGAIN;
        // The first one waits for the connection, and is not counted.
        while (result == -FI_EAGAIN)
            result = !connected        ? fi_tinject(a.ep, &data, 8, to_b, 1)
                     : part == "tsend" ? counted_send(a.ep, &data, to_b)
                                       : counted_inject(a.ep, &data, to_b);
        must(result, "a send");
        while ((result = connected ? counted_read(b.received, &entry)
                                   : fi_cq_read(b.received, &entry, 1)) == -FI_EAGAIN)
            fi_cq_read(a.sent, nullptr, 0);
        must(result, "fi_cq_read");
        if (got != data) must(-FI_EOTHER, "the message");
        if (connected && part == "tsend")
            while ((result = fi_cq_read(a.sent, &entry, 1)) == -FI_EAGAIN) {
            }
        else
            fi_cq_read(a.sent, nullptr, 0);
        connected = true;
    }
    a.close();
    b.close();
    must(fi_close(&fabric->fid), "fi_close");
    fi_freeinfo(info);
    fi_freeinfo(hints);
}

}  // namespace

int main(int argc, char** argv) {
    using namespace heddle::bench;
    const std::string first = argc > 1 ? argv[1] : "";
    if (first == "--part" && argc == 3) {
        run(argv[2]);
        return 0;
    }
    if (!first.empty() && first != "--json") {
        std::fprintf(stderr,
                     "usage: provider_instructions [--json]\n"
                     "Counts the provider's instructions for a message of 8 bytes; needs valgrind "
                     "and an mlx5 device, for instance `softhca run -- provider_instructions`.\n");
        return first == "--help" ? 0 : 2;
    }
    // The provider beside this program, unless another one is asked for.
    const auto beside =
        std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib";
    setenv("FI_PROVIDER_PATH", beside.c_str(), 0);
    setenv("FI_PROVIDER", "heddle", 1);
    nlohmann::ordered_json line;
    if (first.empty())
        std::printf(
            "Instructions of the provider for a message of 8 bytes\n"
            "(callgrind; libfabric's own and the software HCA's left out)\n");
    for (const Part& part : kParts) {
        const Costs costs = run_callgrind({std::string("--toggle-collect=") + part.counted},
                                          {"--part", part.name}, part.label);
        const Count count = count_each(costs, {}, kMessages);
        if (first.empty()) print_count(part.label, count);
        line[part.name] = {{"instructions", count.total}, {"by_object", count.by_object}};
    }
    if (!first.empty()) std::printf("%s\n", line.dump().c_str());
    return 0;
}
