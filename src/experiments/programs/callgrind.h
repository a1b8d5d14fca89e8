// SPDX-License-Identifier: BSD-2-Clause
// Instructions, counted by callgrind: exact on any machine, however busy it is.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace heddle::bench {

// Self cost of each function of each object (short name).
using Costs = std::map<std::string, std::map<std::string, long>>;

constexpr int kNoValgrind = 77;  // the status then; what skipped tests end with

// Runs this program with those arguments below callgrind and reads what it counted. Ends the
// process with a message where that is not possible. `options`: of callgrind.
Costs run_callgrind(const std::vector<std::string>& options,
                    const std::vector<std::string>& arguments, const char* what);

struct Count {
    double total = 0;
    std::map<std::string, double> by_object;
    std::vector<std::pair<double, std::string>> functions;  // most first
};

// The instructions of one repetition, less those of `before`, without the software HCA's.
Count count_each(const Costs& costs, const Costs& before, int repetitions);

// Prints a line for the total, and one for each of the functions with most instructions.
void print_count(const char* label, const Count& count);

}  // namespace heddle::bench
