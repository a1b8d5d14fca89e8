// SPDX-License-Identifier: BSD-2-Clause
// post_instructions [--json]: instructions of one 8-byte inline RDMA write, posted and its
// completion polled: by verbs with the QP's lock, by verbs in a thread domain, and directly.
// "Leveraging mlx5 direct verbs" compares the software between MPI and the adapter so; counted here
// by callgrind, the difference of two runs of different lengths, without what the software HCA does
// itself.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/programs/callgrind.h"
#include "experiments/programs/self_writes.h"
#include "heddle/endpoint.h"

namespace heddle::bench {
namespace {

struct MeasuredPath {
    const char* name;
    const char* label;
    Category category;
    Path path;
};
constexpr MeasuredPath kParts[] = {
    {"verbs-locked", "verbs, QP locked", Category::kMpiEverywhere, Path::kVerbs},
    {"verbs-thread-domain", "verbs, thread domain", Category::kDynamic, Path::kVerbs},
    {"direct", "direct, thread domain", Category::kDynamic, Path::kDirect},
};
constexpr int kFew = 500, kMany = 2500;

// What is counted: the loop of a program that writes one message after another.
void write_messages(const MeasuredPath& part, int count) {
    EndpointOptions options;
    options.path = part.path;
    EndpointSet set("", part.category, 1, options);
    Endpoint& e = set[0];
    e.connect(e.address());
    write_to_itself(e, count);
}

Count measure(const MeasuredPath& part) {
    const auto run = [&](int count) {
        return run_callgrind({}, {"--part", part.name, std::to_string(count)}, part.label);
    };
    return count_each(run(kMany), run(kFew), kMany - kFew);
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
    using namespace heddle::bench;
    const std::string first = argc > 1 ? argv[1] : "";
    if (first == "--part" && argc == 4) {
        for (const MeasuredPath& part : kParts)
            if (part.name == std::string(argv[2])) {
                try {
                    write_messages(part, std::atoi(argv[3]));
                    return 0;
                } catch (const heddle::VerbsError& error) {
                    std::fprintf(stderr, "post_instructions: %s\n", error.what());
                    return 1;
                }
            }
        return 2;
    }
    if (!first.empty() && first != "--json") {
        std::fprintf(stderr,
                     "usage: post_instructions [--json]\n"
                     "Counts the instructions of posting and polling by each path; needs valgrind "
                     "and an mlx5 device, for instance `softhca run -- post_instructions`.\n");
        return first == "--help" ? 0 : 2;
    }
    std::vector<Count> counts;
    for (const MeasuredPath& part : kParts)
        counts.push_back(measure(part));
    if (first == "--json") {
        nlohmann::ordered_json line;
        for (std::size_t i = 0; i < std::size(kParts); ++i)
            line[kParts[i].name] = {{"instructions", counts[i].total},
                                    {"by_object", counts[i].by_object}};
        std::printf("%s\n", line.dump().c_str());
        return 0;
    }
    std::printf(
        "Instructions of one 8-byte inline RDMA write and the poll of its completion\n"
        "(callgrind; without the software HCA's own)\n");
    for (std::size_t i = 0; i < std::size(kParts); ++i)
        print_count(kParts[i].label, counts[i]);
    return 0;
}
