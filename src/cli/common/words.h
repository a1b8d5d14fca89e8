// SPDX-License-Identifier: BSD-2-Clause
// The words of a command line: where those of `softhca run` and `heddle run` end and another
// program's begin, and which of them is wrong.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace cli_common {

// Words that mean an option's name and that CLI11 cannot read as one: "-np" for "--np".
using Spellings = std::map<std::string, std::string>;

// The options of `run` end at "--" or at the first word that is neither an option nor an option's
// value; the rest is the program's, whatever it looks like. `arguments` begins with the command's
// name. Cuts the program's part off it, and replaces `spellings` in the options.
std::vector<std::string> cut_command(const CLI::App& run, std::vector<std::string>* arguments,
                                     const Spellings& spellings = {});

// The subcommand of this name, or nullptr.
const CLI::App* find_command(const CLI::App& app, const std::string& name);

// "run, stat, top": the subcommands.
std::string command_names(const CLI::App& app);

// The one of `known` that `word` is a misspelling of: the fewest letters to insert, remove, replace
// or swap with their neighbour, at most a third of the longer word and one at least. Empty if none
// is that near.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

// "there is no command 'runn', but run, stat; did you mean 'run'?"
std::string no_such_command(const CLI::App& app, const std::string& name);

// The first word that names neither a command nor an option of the command before it, as a message;
// `command` is where it stands. Empty if there is none: CLI11 judges the values.
struct WrongWord {
    std::string what;
    const CLI::App* command = nullptr;
};
WrongWord wrong_word(const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace cli_common
