// SPDX-License-Identifier: BSD-2-Clause
// The command lines of `softhca run` and `heddle run`, which end in another program's.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace softhca::cli {

// The options of `run` end at "--" or at the first word that is neither an option nor an option's
// value; the rest is the program's, whatever it looks like. `arguments` begins with the command's
// name. Cuts the program's part off it.
std::vector<std::string> cut_command(const CLI::App& run, std::vector<std::string>* arguments);

// The subcommand of this name, or nullptr.
const CLI::App* find_command(const CLI::App& app, const std::string& name);

}  // namespace softhca::cli
