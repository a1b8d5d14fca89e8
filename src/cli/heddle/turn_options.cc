// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/turn_options.h"

#include <cstdio>

#include "heddle/detail/assert.h"

namespace heddle::cli {

void add_turn_options(CLI::App& command, TurnOptions& options, const TurnTexts& texts) {
    HEDDLE_ASSERT(options.repetitions >= 1 &&
                      options.repetitions <= static_cast<std::uint32_t>(texts.most_repetitions) &&
                      options.milliseconds >= 0.1,
                  "a default is possible");
    command.add_option("--repetitions", options.repetitions, texts.repetitions)
        ->check(CLI::Range(1, texts.most_repetitions))
        ->capture_default_str();
    command.add_option("--time", options.milliseconds, texts.time)
        ->check(CLI::Range(0.1, 10000.0))
        ->capture_default_str();
    command.add_option("--device", options.device, "default: the first with an active port");
    command.add_flag("--json", options.json, texts.json);
}

ProgressReport progress_report(const TurnOptions& options) {
    if (options.json) return [](const std::string&) {};
    return
        [](const std::string& what) { std::fprintf(stderr, "heddle bench: %s\n", what.c_str()); };
}

}  // namespace heddle::cli
