// SPDX-License-Identifier: BSD-2-Clause
#include "experiments/programs/callgrind.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "heddle/detail/assert.h"

namespace heddle::bench {
namespace {

// callgrind.out: "ob=", "fn=" set
// where costs belong, a line behind "calls=" is what the callee cost. Names are given once, with a
// number in brackets, and then by that number.
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

}  // namespace

Costs run_callgrind(const std::vector<std::string>& options,
                    const std::vector<std::string>& arguments, const char* what) {
    char scratch[] = "/tmp/instructions-XXXXXX";
    if (mkdtemp(scratch) == nullptr) {
        std::perror("mkdtemp");
        std::exit(1);
    }
    const std::filesystem::path file = std::filesystem::path(scratch) / "out";
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    std::vector<std::string> words{"valgrind", "--tool=callgrind", "-q",
                                   "--callgrind-out-file=" + file.string()};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back(self);
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> list;
    for (std::string& word : words)
        list.push_back(word.data());
    list.push_back(nullptr);
    pid_t child;
    if (const int error =
            posix_spawnp(&child, "valgrind", nullptr, nullptr, list.data(), environ)) {
        std::fprintf(stderr, "cannot start valgrind: %s%s\n", std::strerror(error),
                     error == ENOENT ? " (install valgrind)" : "");
        std::exit(error == ENOENT ? kNoValgrind : 1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) {
        std::fprintf(stderr,
                     "the run of %s below valgrind failed; is there an mlx5 device? (softhca run "
                     "-- %s)\n",
                     what, self.c_str());
        std::exit(1);
    }
    const Costs costs = read_costs(file);
    std::filesystem::remove_all(scratch);
    return costs;
}

Count count_each(const Costs& costs, const Costs& before, int repetitions) {
    HEDDLE_ASSERT(repetitions > 0, "the count of one is a mean");
    Count result;
    for (const auto& [object, functions] : costs) {
        if (object.starts_with("libsofthca")) continue;
        for (const auto& [function, cost] : functions) {
            long less = 0;
            if (const auto o = before.find(object); o != before.end())
                if (const auto f = o->second.find(function); f != o->second.end()) less = f->second;
            const double each = static_cast<double>(cost - less) / repetitions;
            if (each < 0.5) continue;  // something of the start that differed
            // no path makes system calls: it is softhca that wakes its thread
            if (function == "syscall") continue;
            result.total += each;
            result.by_object[object] += each;
            result.functions.emplace_back(each, function).second.append(" (" + object + ")");
        }
    }
    double sum = 0;
    for (const auto& [object, each] : result.by_object)
        sum += each;
    HEDDLE_ASSERT(std::fabs(sum - result.total) <= 1e-6 * (1 + result.total),
                  "each function is of one object");
    std::sort(result.functions.rbegin(), result.functions.rend());
    return result;
}

void print_count(const char* label, const Count& count) {
    std::printf("\n%-24s %6.0f", label, count.total);
    for (const auto& [object, cost] : count.by_object)
        std::printf("   %s %.0f", object.c_str(), cost);
    std::printf("\n");
    for (std::size_t i = 0; i < std::min<std::size_t>(count.functions.size(), 24); ++i)
        std::printf("  %6.0f  %.90s\n", count.functions[i].first,
                    count.functions[i].second.c_str());
}

}  // namespace heddle::bench
