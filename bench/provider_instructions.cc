// SPDX-License-Identifier: BSD-2-Clause
// provider_instructions [--json] [--copied | --parts]: what the provider costs between an MPI
// library and the adapter, for a message of 8 bytes: from fi_tinject and fi_tsend to the doorbell,
// fi_trecv of a receive that finds no message, and from a completion in the device's queue to the
// entry that fi_cq_read gives for the receive it matches, and to that for a send. For a message
// that is read before it has a receive: that read, the receive that finds it, and the read of its
// entry. And what looking for buffers that are used again adds to fi_tsend of a message that is
// copied. Counted by callgrind within these calls, without what the software HCA does itself. One
// thread (FI_THREAD_DOMAIN).
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "experiments/programs/callgrind.h"

namespace {

struct MeasuredCall {
    const char* name;
    const char* label;
    const char* counted;  // the function
};
constexpr MeasuredCall kParts[] = {
    {"tinject", "fi_tinject", "counted_inject"},
    {"tsend", "fi_tsend", "counted_send"},
    {"sent_entry", "fi_cq_read, its entry", "counted_read"},
    {"trecv", "fi_trecv, posted", "counted_receive"},
    {"read", "fi_cq_read, a message", "counted_read"},
    {"early_read", "fi_cq_read, a message without a receive", "counted_read"},
    {"early_trecv", "fi_trecv, which finds it", "counted_receive"},
    {"early_entry", "fi_cq_read, its entry", "counted_read"},
};
// Messages that are copied; of the provider alone, as how the C library copies is its own affair.
struct Copied {
    const char *name, *label;
    const char* reuse;  // FI_HEDDLE_REUSE
    bool again;         // from one buffer; else each from another
    int messages;
};
// A table that finds nothing rests, and looks again from time to time: so many messages see it do
// both, and grow; but the first 4096 it looks for all.
constexpr int kFewMessages = 2048, kManyMessages = 32768;
constexpr Copied kCopied[] = {
    {"off", "off", "off", true, kManyMessages},
    {"never_again", "never used again", "16", false, kManyMessages},
    {"too_seldom", "used too seldom", "65535", true, kManyMessages},  // below its threshold
    {"off_first", "off, the first", "off", true, kFewMessages},
    {"never_again_first", "never, the first", "16", false, kFewMessages},
};
constexpr std::size_t kCopiedBytes[] = {1024, 4096};
constexpr double kMostAdded = 40;
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
[[gnu::noinline]] ssize_t counted_copied(fid_ep* ep, const void* data, std::size_t bytes,
                                         fi_addr_t to) {
    return fi_tsend(ep, data, bytes, nullptr, to, 1, nullptr);
}
[[gnu::noinline]] ssize_t counted_receive(fid_ep* ep, void* data, std::size_t bytes) {
    return fi_trecv(ep, data, bytes, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr);
}
[[gnu::noinline]] ssize_t counted_read(fid_cq* cq, fi_cq_tagged_entry* entry) {
    return fi_cq_read(cq, entry, 1);
}
}

namespace {

// What is sent, and how.
struct Messages {
    std::string part;       // a name of kParts; else "copied"
    std::size_t bytes = 8;  // also from one to the next
    bool again = true;
    int count = kMessages;
};

// Both sides, connected, and a message at a time from one to the other.
class Run {
public:
    explicit Run(const Messages& what)
        : what_(what),
          data_(what.bytes * (what.again ? 1 : static_cast<std::size_t>(what.count) + 1)),
          got_(what.bytes),
          hints_(fi_allocinfo()) {
        hints_->caps = FI_TAGGED;
        hints_->ep_attr->type = FI_EP_RDM;
        hints_->domain_attr->threading = FI_THREAD_DOMAIN;
        must(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints_, &info_), "fi_getinfo");
        must(fi_fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
        // domains of their own: reading b's queue is nothing of a's
        a_.open(fabric_, info_);
        b_.open(fabric_, info_);
        to_b_ = a_.add(b_);
        b_.add(a_);  // as MPI libraries do
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    ~Run() {
        a_.close();
        b_.close();
        must(fi_close(&fabric_->fid), "fi_close");
        fi_freeinfo(info_);
        fi_freeinfo(hints_);
    }

    // More than the first entries of a send queue, which is full then.
    void burst() {
        constexpr int kBurst = 64;
        constexpr std::uint64_t kTag = 2;
        for (int i = 0; i < kBurst; ++i)
            must(fi_trecv(b_.ep, got_.data(), got_.size(), nullptr, FI_ADDR_UNSPEC, kTag, 0,
                          nullptr),
                 "fi_trecv");
        for (int i = 0; i < kBurst; ++i)
            while (fi_tinject(a_.ep, data_.data(), 8, to_b_, kTag) == -FI_EAGAIN) {
            }
        fi_cq_tagged_entry entry;
        for (int got = 0; got < kBurst;) {
            if (read(false, entry) == 1) ++got;
            fi_cq_read(a_.sent, nullptr, 0);
        }
    }

    void message(int number) {
        const bool counts = number != 0;
        const bool is_early = counts && what_.part.starts_with("early_");
        if (!is_early) receive(counts && what_.part == "trecv");
        std::byte* const data =
            data_.data() + (what_.again ? 0 : what_.bytes * static_cast<std::size_t>(number));
        std::memcpy(data, &number, sizeof number);
        ssize_t result = -FI_EAGAIN;
        while (result == -FI_EAGAIN)
            result = send(number, data);
        must(result, "a send");
        if (is_early) {
            fi_cq_tagged_entry nothing;
            if (read(what_.part == "early_read", nothing) != -FI_EAGAIN)
                must(-FI_EOTHER, "a message that has no receive");
            receive(what_.part == "early_trecv");
        }
        const bool counted = counts && (what_.part == "read" || what_.part == "early_entry");
        fi_cq_tagged_entry entry;
        while ((result = read(counted, entry)) == -FI_EAGAIN)
            fi_cq_read(a_.sent, nullptr, 0);
        must(result, "fi_cq_read");
        if (std::memcmp(got_.data(), data, what_.bytes) != 0) must(-FI_EOTHER, "the message");
        if (number != 0 && has_entry())
            while ((counts && what_.part == "sent_entry"
                        ? counted_read(a_.sent, &entry)
                        : fi_cq_read(a_.sent, &entry, 1)) == -FI_EAGAIN) {
            }
        else
            fi_cq_read(a_.sent, nullptr, 0);
    }

private:
    void receive(bool counted) {
        must(counted ? counted_receive(b_.ep, got_.data(), got_.size())
                     : fi_trecv(b_.ep, got_.data(), got_.size(), nullptr, FI_ADDR_UNSPEC, 1, 0,
                                nullptr),
             "fi_trecv");
    }
    ssize_t read(bool counted, fi_cq_tagged_entry& entry) {
        return counted ? counted_read(b_.received, &entry) : fi_cq_read(b_.received, &entry, 1);
    }
    // The first one waits for the connection, and is not counted.
    ssize_t send(int number, const std::byte* data) {
        if (number == 0) return fi_tinject(a_.ep, data, 8, to_b_, 1);
        if (what_.part == "copied") return counted_copied(a_.ep, data, what_.bytes, to_b_);
        return has_entry() ? counted_send(a_.ep, data, to_b_) : counted_inject(a_.ep, data, to_b_);
    }
    // One that tells of its end.
    bool has_entry() const {
        return what_.part == "tsend" || what_.part == "sent_entry" || what_.part == "copied";
    }

    const Messages what_;
    std::vector<std::byte> data_, got_;
    fi_info *hints_, *info_ = nullptr;
    fid_fabric* fabric_ = nullptr;
    Side a_, b_;
    fi_addr_t to_b_ = FI_ADDR_NOTAVAIL;
};

void run(const Messages& what) {
    Run run(what);
    run.message(0);
    run.burst();
    // A deeper send queue is connected meanwhile, by threads that need their turns.
    for (int i = 0; i < 10; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        run.message(0);
    }
    for (int i = 0; i <= what.count; ++i)
        run.message(i);
}

using heddle::bench::Costs;
using heddle::bench::Count;
using heddle::bench::run_callgrind;

Costs counted(const std::string& function, const std::vector<std::string>& part,
              const char* label) {
    return run_callgrind({"--toggle-collect=" + function}, part, label);
}

// The provider's instructions of a message that is copied.
double copied(const Copied& part, std::size_t bytes) {
    const Costs costs =
        counted("counted_copied", {"--copied-part", part.name, std::to_string(bytes)}, part.label);
    long sum = 0;
    for (const auto& [function, cost] : costs.at("libheddle-fi.so"))
        sum += cost;
    return static_cast<double>(sum) / part.messages;
}

nlohmann::ordered_json measure_copied(bool json, const std::vector<std::size_t>& sizes) {
    nlohmann::ordered_json all;
    if (!json) {
        std::printf(
            "\nInstructions of fi_tsend for a message that is copied, without and with "
            "FI_HEDDLE_REUSE\n(the provider's alone; at most %.0f may be added, averaged over many "
            "messages)\n\n%-8s",
            kMostAdded, "bytes");
        for (const Copied& part : kCopied)
            std::printf("%22s", part.label);
    }
    for (const std::size_t bytes : sizes) {
        nlohmann::ordered_json& row = all[std::to_string(bytes)];
        if (!json) std::printf("\n%-8zu", bytes);
        double off = 0;  // of as many messages: the device has not yet reported the last ones
        for (const Copied& part : kCopied) {
            const double count = copied(part, bytes);
            row[part.name] = count;
            if (std::string_view(part.reuse) == "off") off = count;
            if (json) continue;
            char cell[40];
            std::snprintf(cell, sizeof cell, "%.1f (+%.1f)", count, count - off);
            std::printf("%22s", cell);
            std::fflush(stdout);
        }
    }
    if (!json) std::printf("\n");
    all["most_added"] = kMostAdded;
    return all;
}

nlohmann::ordered_json measure_parts(bool json) {
    nlohmann::ordered_json all;
    if (!json)
        std::printf(
            "Instructions of the provider for a message of 8 bytes\n"
            "(callgrind; libfabric's own and the software HCA's left out)\n");
    for (const MeasuredCall& part : kParts) {
        const Costs costs = counted(part.counted, {"--part", part.name}, part.label);
        const Count count = heddle::bench::count_each(costs, {}, kMessages);
        if (!json) print_count(part.label, count);
        all[part.name] = {{"instructions", count.total}, {"by_object", count.by_object}};
    }
    return all;
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() == 2 && words[0] == "--part") {
        run({words[1]});
        return 0;
    }
    if (words.size() == 3 && words[0] == "--copied-part") {
        for (const Copied& part : kCopied)
            if (part.name == words[1]) {
                setenv("FI_HEDDLE_REUSE", part.reuse, 1);
                setenv("FI_HEDDLE_UNEXPECTED_SIZE", "64M", 1);  // none by rendezvous
                run({"copied", std::stoul(words[2]), part.again, part.messages});
            }
        return 0;
    }
    bool json = false, copied_alone = false, parts_alone = false;
    for (const std::string& word : words) {
        json |= word == "--json";
        copied_alone |= word == "--copied";
        parts_alone |= word == "--parts";
        if (word == "--json" || word == "--copied" || word == "--parts") continue;
        std::fprintf(stderr,
                     "usage: provider_instructions [--json] [--copied | --parts]\n"
                     "Counts the provider's instructions for a message of 8 bytes, and those that "
                     "looking for\nbuffers that are used again adds to one that is copied: at most "
                     "%.0f (--copied: only\nthese, and of %zu bytes; --parts: only those). Needs "
                     "valgrind and an mlx5 "
                     "device, for instance\n`softhca run -- provider_instructions`.\n",
                     kMostAdded, kCopiedBytes[0]);
        return word == "--help" ? 0 : 2;
    }
    // The provider beside this program, unless another one is asked for.
    const auto beside =
        std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib";
    setenv("FI_PROVIDER_PATH", beside.c_str(), 0);
    setenv("FI_PROVIDER", "heddle", 1);
    nlohmann::ordered_json line;
    if (!copied_alone) line = measure_parts(json);
    if (!parts_alone)
        line["copied"] = measure_copied(
            json,
            {std::begin(kCopiedBytes), copied_alone ? kCopiedBytes + 1 : std::end(kCopiedBytes)});
    if (json) std::printf("%s\n", line.dump().c_str());
    return 0;
}
