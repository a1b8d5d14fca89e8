// SPDX-License-Identifier: BSD-2-Clause
// Snapshots as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "softhca/view/snapshot.h"

namespace softhca::cli {

// Tables for people: objects by process, then counters by context, queue pair, CQ and SRQ.
std::string stat_text(const view::Snapshot& snapshot);
// Everything, for programs. Field names stand in man/softhca.1 and do not change.
nlohmann::ordered_json stat_json(const view::Snapshot& snapshot);

// Counters per second between two snapshots, by process.
struct ProcessRates {
    int pid = 0;
    std::string command;
    double rate[std::size(view::kCounterFields)] = {};
};
struct Rates {
    std::string fabric;
    double seconds = 0;
    std::vector<ProcessRates> processes;  // the busiest first
    ProcessRates total;
};
Rates rates_between(const view::Snapshot& earlier, const view::Snapshot& later, double seconds);

// At most `columns` wide and `lines` high.
std::string top_text(const Rates& rates, std::size_t columns, std::size_t lines);
nlohmann::ordered_json top_json(const Rates& rates);

}  // namespace softhca::cli
