// SPDX-License-Identifier: BSD-2-Clause
// The options that all experiments whose sides take turns have, and their progress line.
#pragma once

#include <cstdint>
#include <string>

#include "cli/heddle/commands.h"

namespace heddle::cli {

// The base of an experiment's own request.
struct TurnOptions {
    TurnOptions(std::uint32_t repetitions, double milliseconds)
        : repetitions(repetitions), milliseconds(milliseconds) {}
    std::string device;  // empty: the first with an active port
    std::uint32_t repetitions;
    double milliseconds;
    bool json = false;
};

// How its help names them.
struct TurnTexts {
    const char* json;
    const char* repetitions = "the median counts";
    const char* time = "of a repetition, in ms";
    int most_repetitions = 10000;
};

// --repetitions, --time, --device, --json. `options` lives as long as the command.
void add_turn_options(CLI::App& command, TurnOptions& options, const TurnTexts& texts);

// Reports how far an experiment is: a line on standard error, or nothing with --json.
using ProgressReport = void (*)(const std::string& what);
ProgressReport progress_report(const TurnOptions& options);

}  // namespace heddle::cli
