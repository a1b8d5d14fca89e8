// SPDX-License-Identifier: BSD-2-Clause
// What the processes of a job counted, from the lines of JSON that they write at their end
// (FI_HEDDLE_STATS=FILE).
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "provider/stat_names.h"

namespace heddle::cli {

struct JobCounts {
    static constexpr std::size_t kCounters = std::size(provider::kStatNames);
    // One counter: of all processes together (the largest, of a peak), and of one of them.
    struct Counter {
        std::uint64_t all = 0, least = ~std::uint64_t{0}, most = 0;
    };
    using Reasons = std::map<std::string, std::uint64_t>;

    unsigned processes = 0;
    unsigned strange = 0;  // lines that are not of heddle
    std::array<Counter, kCounters> counters{};
    std::vector<std::uint64_t> copied, gathered;  // eager messages by size: up to 2^i bytes
    std::vector<std::uint64_t> by_uses;           // buffers by uses: 2^(i-1) to 2^i - 1
    Reasons declined, ended;                      // tuple queues
    std::set<std::string> devices, categories, rndv;
    std::vector<int> pids;
    bool software = false;  // the device is softhca's

    // A counter of kStatNames; of() is that of all processes.
    const Counter& counter(std::string_view key) const;
    std::uint64_t of(std::string_view key) const { return counter(key).all; }
    std::uint64_t sent() const;  // messages, by any way
};

// Lines of a running process (SIGUSR2) are left out: its last line has what they say.
JobCounts job_counts(const std::string& lines);

// "84 %", rounded; "<1 %" of little, "-" if there is no whole.
std::string percent_of(std::uint64_t part, std::uint64_t whole);
// "1 process", "4 processes".
std::string counted(std::uint64_t count, const std::string& one, const std::string& many);

}  // namespace heddle::cli
