// SPDX-License-Identifier: BSD-2-Clause
// reuse_lookup [--json]: what it costs to look up a buffer by address and length, of 1 to 10^6
// buffers that are used in turn: in the provider's table, in the hash of 2^20 chains of "Exploiting
// application buffer reuse" (section 3.3, figure 3), and in a balanced tree. And the instructions
// that the table takes for buffers that are never used again (callgrind; needs valgrind).
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "experiments/common/measure.h"
#include "experiments/programs/callgrind.h"
#include "heddle/detail/assert.h"
#include "memory/reuse_table.h"

namespace {

using heddle::memory::ReuseTable;
constexpr std::size_t kMostBuffers = 1'000'000, kBytes = 1024;
constexpr int kRepetitions = 9, kNew = 100'000;

const void* buffer(std::size_t number) {
    return reinterpret_cast<const void*>(std::uintptr_t{0x7f0000000000} + number * 1088);
}

// As the paper describes it.
class ChainedHash {
public:
    std::uint32_t use(const void* address, std::size_t bytes) {
        HEDDLE_DEBUG_ASSERT(chains_.size() == kChains, "the mask is one less than the chains");
        std::unique_ptr<Node>* at = &chains_[hash(address) & (kChains - 1)];
        while (*at != nullptr && ((*at)->address != address || (*at)->bytes != bytes))
            at = &(*at)->next;
        if (*at == nullptr) *at = std::make_unique<Node>(address, bytes);
        return ++(*at)->uses;
    }

private:
    static constexpr std::size_t kChains = 1 << 20;
    struct Node {
        Node(const void* its_address, std::size_t its_bytes)
            : address(its_address), bytes(its_bytes) {}
        const void* address;
        std::size_t bytes;
        std::uint32_t uses = 0;
        std::unique_ptr<Node> next;
    };
    static std::size_t hash(const void* address) {
        return reinterpret_cast<std::uintptr_t>(address) * 0x9e3779b97f4a7c15u >> 44;
    }
    std::vector<std::unique_ptr<Node>> chains_ = std::vector<std::unique_ptr<Node>>(kChains);
};

class Tree {
public:
    std::uint32_t use(const void* address, std::size_t bytes) { return ++uses_[{address, bytes}]; }

private:
    std::map<std::pair<const void*, std::size_t>, std::uint32_t> uses_;
};

class Ours {
public:
    std::uint32_t use(const void* address, std::size_t bytes) {
        const ReuseTable::Entry* const entry = table_.use(address, bytes);
        return entry != nullptr ? entry->uses() : 0;
    }

private:
    ReuseTable table_;
};

// Nanoseconds of a look-up.
template <class Table>
double measure(Table& table, std::size_t buffers) {
    HEDDLE_ASSERT(buffers != 0 && buffers <= kMostBuffers, "some buffers are used in turn");
    const std::size_t uses = std::max<std::size_t>(buffers, 20'000);
    std::uint32_t sum = 0;
    std::vector<double> times;
    for (int i = 0; i <= kRepetitions; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        for (std::size_t n = 0, at = 0; n < uses; ++n) {
            sum += table.use(buffer(at), kBytes);
            if (++at == buffers) at = 0;
        }
        const std::chrono::duration<double, std::nano> time =
            std::chrono::steady_clock::now() - begin;
        if (i != 0) times.push_back(time.count() / static_cast<double>(uses));
    }
    asm volatile("" ::"r"(sum));
    HEDDLE_ASSERT(times.size() == static_cast<std::size_t>(kRepetitions),
                  "the first is to warm up");
    return heddle::bench::median(times);
}

}  // namespace

extern "C" {
[[gnu::noinline]] const void* counted_use(ReuseTable& table, std::size_t number) {
    return table.use(buffer(number), kBytes);
}
}

int main(int argc, char** argv) {
    using namespace heddle::bench;
    const std::string first = argc > 1 ? argv[1] : "";
    if (first == "--part" && argc == 3) {
        ReuseTable table;
        const bool again = std::string(argv[2]) == "again";
        for (std::size_t i = 0; i < kNew; ++i)
            asm volatile("" ::"r"(counted_use(table, again ? i % 16 : i)));
        return 0;
    }
    const bool json = first == "--json";
    if (!first.empty() && !json) {
        std::fprintf(stderr,
                     "usage: reuse_lookup [--json]\nThe cost of looking up buffers, of 1 to 10^6: "
                     "the provider's table, the paper's chained hash, a balanced tree.\n");
        return first == "--help" ? 0 : 2;
    }
    if (!json)
        std::printf("%10s %12s %16s %12s   ns of a look-up, buffers in turn\n", "buffers", "ours",
                    "hash of 2^20", "tree");
    nlohmann::ordered_json line;
    for (std::size_t buffers = 1; buffers <= kMostBuffers; buffers *= 10) {
        const auto ours = std::make_unique<Ours>();
        const auto hash = std::make_unique<ChainedHash>();
        Tree tree;
        const double times[] = {measure(*ours, buffers), measure(*hash, buffers),
                                measure(tree, buffers)};
        if (json)
            line["lookup_ns"].push_back({{"buffers", buffers},
                                         {"ours", times[0]},
                                         {"chained_hash", times[1]},
                                         {"tree", times[2]}});
        else
            std::printf("%10zu %12.1f %16.1f %12.1f\n", buffers, times[0], times[1], times[2]);
        std::fflush(stdout);
    }
    for (const char* part : {"new", "again"}) {
        const Costs costs =
            run_callgrind({"--toggle-collect=counted_use"}, {"--part", part}, "looking up buffers");
        const double total = count_each(costs, {}, kNew).total;
        if (json)
            line["instructions"][part] = total;
        else
            std::printf("%s %.1f instructions a look-up\n",
                        part[0] == 'n' ? "never used again:" : "used again:      ", total);
    }
    if (json) std::printf("%s\n", line.dump().c_str());
    return 0;
}
