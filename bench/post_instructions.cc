// SPDX-License-Identifier: BSD-2-Clause
// post_instructions [--json]: instructions of one 8-byte inline RDMA write, posted and its
// completion polled: by verbs with the QP's lock, by verbs in a thread domain, and directly.
// "Leveraging mlx5 direct verbs" compares the software between MPI and the adapter so; counted here
// by callgrind, the difference of two runs of different lengths, without what the software HCA does
// itself.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "heddle/endpoint.h"

namespace heddle::bench {
namespace {

struct Part {
    const char* name;
    const char* label;
    Category category;
    Path path;
};
constexpr Part kParts[] = {
    {"verbs-locked", "verbs, QP locked", Category::kMpiEverywhere, Path::kVerbs},
    {"verbs-thread-domain", "verbs, thread domain", Category::kDynamic, Path::kVerbs},
    {"direct", "direct, thread domain", Category::kDynamic, Path::kDirect},
};
constexpr int kFew = 500, kMany = 2500;

// Self cost of each function of each object (short name), as callgrind.out has it: "ob=", "fn=" set
// where costs belong, a line behind "calls=" is what the callee cost. Names are given once, with a
// number in brackets, and then by that number.
using Costs = std::map<std::string, std::map<std::string, long>>;

class Names {
public:
    std::string operator()(const std::string& text) {
        const std::size_t end = text.find(')');
        if (text.empty() || text[0] != '(' || end == std::string::npos) return text;
        std::string& name = known_[text.substr(0, end + 1)];
        if (text.size() > end + 2) name = text.substr(end + 2);
        return name;
    }

private:
    std::map<std::string, std::string> known_;
};

Costs read_costs(const std::filesystem::path& file) {
    std::ifstream in(file);
    Costs costs;
    Names objects, functions;
    std::string line, object, function;
    bool of_callee = false;
    while (std::getline(in, line)) {
        const auto value = [&](const char* key) -> const char* {
            const std::size_t n = std::strlen(key);
            return line.compare(0, n, key) == 0 ? line.c_str() + n : nullptr;
        };
        if (const char* ob = value("ob=")) {
            object = std::filesystem::path(objects(ob)).filename();
        } else if (const char* fn = value("fn=")) {
            function = functions(fn);
        } else if (const char* cob = value("cob=")) {
            objects(cob);
        } else if (const char* cfn = value("cfn=")) {
            functions(cfn);
        } else if (value("calls=")) {
            of_callee = true;
        } else if (!line.empty() && (std::isdigit(static_cast<unsigned char>(line[0])) ||
                                     line[0] == '+' || line[0] == '-' || line[0] == '*')) {
            const std::size_t space = line.find(' ');
            if (!of_callee && space != std::string::npos)
                costs[object][function] += std::atol(line.c_str() + space);
            of_callee = false;
        }
    }
    return costs;
}

// What is counted: the loop of a program that writes one message after another.
void write_messages(const Part& part, int count) {
    EndpointOptions options;
    options.path = part.path;
    EndpointSet set("", part.category, 1, options);
    Endpoint& e = set[0];
    e.connect(e.address());
    const auto address = reinterpret_cast<std::uintptr_t>(e.buffer());
    const std::uint32_t local_key = e.mr()->lkey, remote_key = e.mr()->rkey;
    e.visit([&](auto& queues) {
        auto& send = queues.send();
        auto& completions = queues.completions();
        post::Completion completion;
        for (int i = 0; i < count; ++i) {
            // as a runtime does it: which operation is known when it is compiled, of what is not
            const ibv_sge piece{address, 8, local_key};
            post::Work work;
            work.opcode = post::Opcode::kWrite;
            work.flags = post::kInline | post::kSignaled;
            work.pieces = {&piece, 1};
            work.remote_address = address + 64;
            work.remote_key = remote_key;
            work.id = static_cast<std::uint64_t>(i);
            if (send.post_now(work) != post::Posted::kOk) std::abort();
            while (completions.poll(&completion, 1) == 0) {
            }
            if (completion.status != IBV_WC_SUCCESS) std::abort();
        }
    });
}

Costs run_callgrind(const Part& part, int count, const std::filesystem::path& file) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const std::string out = "--callgrind-out-file=" + file.string(), n = std::to_string(count);
    const char* arguments[] = {"valgrind", "--tool=callgrind", "-q",      out.c_str(), self.c_str(),
                               "--part",   part.name,          n.c_str(), nullptr};
    pid_t child;
    if (const int error = posix_spawnp(&child, "valgrind", nullptr, nullptr,
                                       const_cast<char**>(arguments), environ)) {
        std::fprintf(stderr, "post_instructions: cannot start valgrind: %s%s\n",
                     std::strerror(error), error == ENOENT ? " (install valgrind)" : "");
        std::exit(1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) {
        std::fprintf(stderr,
                     "post_instructions: the run of %s below valgrind failed; is there an mlx5 "
                     "device? (softhca run -- post_instructions)\n",
                     part.label);
        std::exit(1);
    }
    return read_costs(file);
}

struct Result {
    const Part* part;
    double total = 0;
    std::map<std::string, double> by_object;
    std::vector<std::pair<double, std::string>> functions;  // most first
};

Result measure(const Part& part, const std::filesystem::path& scratch) {
    const Costs few = run_callgrind(part, kFew, scratch / "few");
    const Costs many = run_callgrind(part, kMany, scratch / "many");
    Result result;
    result.part = &part;
    for (const auto& [object, functions] : many) {
        if (object.starts_with("libsofthca")) continue;
        for (const auto& [function, cost] : functions) {
            long before = 0;
            if (const auto o = few.find(object); o != few.end())
                if (const auto f = o->second.find(function); f != o->second.end())
                    before = f->second;
            const double each = static_cast<double>(cost - before) / (kMany - kFew);
            if (each < 0.5) continue;  // something of the start that differed
            // neither path makes system calls: it is softhca that wakes its thread
            if (function == "syscall") continue;
            result.total += each;
            result.by_object[object] += each;
            result.functions.emplace_back(each, function + " (" + object + ")");
        }
    }
    std::sort(result.functions.rbegin(), result.functions.rend());
    return result;
}

void print(const std::vector<Result>& results) {
    std::printf(
        "Instructions of one 8-byte inline RDMA write and the poll of its completion\n"
        "(callgrind; without the software HCA's own)\n");
    for (const Result& r : results) {
        std::printf("\n%-24s %6.0f", r.part->label, r.total);
        for (const auto& [object, cost] : r.by_object)
            std::printf("   %s %.0f", object.c_str(), cost);
        std::printf("\n");
        for (std::size_t i = 0; i < std::min<std::size_t>(r.functions.size(), 6); ++i)
            std::printf("  %6.0f  %.90s\n", r.functions[i].first, r.functions[i].second.c_str());
    }
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
    using namespace heddle::bench;
    const std::string first = argc > 1 ? argv[1] : "";
    if (first == "--part" && argc == 4) {
        for (const Part& part : kParts)
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
    char scratch[] = "/tmp/post-instructions-XXXXXX";
    if (mkdtemp(scratch) == nullptr) {
        std::perror("post_instructions: mkdtemp");
        return 1;
    }
    std::vector<Result> results;
    for (const Part& part : kParts)
        results.push_back(measure(part, scratch));
    std::filesystem::remove_all(scratch);
    if (first == "--json") {
        nlohmann::ordered_json line;
        for (const Result& r : results)
            line[r.part->name] = {{"instructions", r.total}, {"by_object", r.by_object}};
        std::printf("%s\n", line.dump().c_str());
    } else {
        print(results);
    }
    return 0;
}
