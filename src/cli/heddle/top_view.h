// SPDX-License-Identifier: BSD-2-Clause
// Running processes as tables and as JSON: what their endpoints do per second, and have waiting.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/heddle/live_processes.h"

namespace heddle::cli {

struct EndpointRates {
    std::uint64_t number = 0;
    double age = 0;  // seconds since it has shown itself: since it last made progress, about
    provider::EndpointValues values{};
    std::array<double, provider::kEndpointValues> rates{};  // of counters, per second
    double of(provider::EndpointValue value) const {
        return rates[static_cast<std::size_t>(value)];
    }
};
struct ProcessRates {
    RunningProcess process;
    std::vector<EndpointRates> endpoints;
    std::array<double, provider::kProcessValues> rates{};
    std::optional<double> rnr;
};
struct TopRates {
    double seconds = 0;
    unsigned other_versions = 0;
    std::vector<ProcessRates> processes;
    std::vector<AbsentProcess> absent;
};

// now_ns: CLOCK_MONOTONIC. A process that is not in `before` has no rates yet.
TopRates rates_between(const Running& before, const Running& now, double seconds,
                       std::uint64_t now_ns);

enum class TopView { kMessages, kQueues, kResources };
inline constexpr int kTopViews = 3;
struct TopForm {
    TopView view = TopView::kMessages;
    bool by_process = false;  // sums of a process's endpoints
    bool busiest_first = false;
    std::size_t first = 0;  // row at the top
};
// Rows that there is room for in so many lines.
constexpr std::size_t top_rows(std::size_t lines) { return lines > 6 ? lines - 6 : 1; }
// At most so wide and high; `form.first` is brought to where there are rows.
std::string top_text(const TopRates& rates, TopForm& form, std::size_t columns, std::size_t lines);
// What the columns are.
std::string top_help();
nlohmann::ordered_json top_json(const TopRates& rates);

}  // namespace heddle::cli
