// SPDX-License-Identifier: BSD-2-Clause
// heddle plan --rates: what each category would gain on a real adapter, beside what it takes here.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "heddle/category.h"

namespace heddle::cli {

struct RatesRequest {
    std::string kernel = "global-array", machine;
    std::uint32_t at_least = 90;  // % of the rate of mpi-everywhere that a recommendation keeps
};

// A category that has been made, and what it took.
struct MadeCategory {
    Category category;
    Category made_as;  // what the device made of it
    std::optional<std::uint32_t> uars;
    bool fits = false;  // the device and the budget
};

// The rate of a category, and its share of that of mpi-everywhere.
struct PredictedGain {
    Category category;
    double per_microsecond = 0, share = 0;
    std::optional<double> low, high;  // of the share, for 8 of 10 held-out ratios
    std::string limit;
    std::optional<double> uars;  // its share of those of mpi-everywhere
    bool fits = false;
};

struct PlanRates {
    std::string machine, kernel;
    std::vector<PredictedGain> gains;
    std::vector<std::string> warnings;
    std::string recommendation;  // a sentence
    std::optional<Category> recommended;
};

// For `processes` processes of so many threads.
// @throw predict::MachineFileError if the machine file is wrong
// @throw std::invalid_argument if there are too many threads to simulate
PlanRates predict_rates(const RatesRequest& request, const std::vector<MadeCategory>& made,
                        std::uint32_t threads, std::uint32_t processes,
                        std::uint32_t qps_per_thread, std::uint32_t depth);

void print(const PlanRates& rates);
nlohmann::ordered_json to_json(const PlanRates& rates);

}  // namespace heddle::cli
