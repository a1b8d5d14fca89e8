// SPDX-License-Identifier: BSD-2-Clause
#include "cli/words.h"

namespace softhca::cli {

std::vector<std::string> cut_command(const CLI::App& run, std::vector<std::string>* arguments) {
    std::size_t i = 1;
    for (; i < arguments->size(); ++i) {
        const std::string& word = (*arguments)[i];
        if (word == "--" || word.size() < 2 || word[0] != '-') break;
        const CLI::Option* option = run.get_option_no_throw(word);
        if (option && option->get_items_expected_max() > 0) ++i;
    }
    if (i >= arguments->size()) return {};
    const bool separator = (*arguments)[i] == "--";
    const auto begin = arguments->begin() + static_cast<std::ptrdiff_t>(i);
    std::vector<std::string> command(begin + (separator ? 1 : 0), arguments->end());
    arguments->erase(begin, arguments->end());
    return command;
}

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
    const auto found =
        app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
    return found.empty() ? nullptr : found.front();
}

}  // namespace softhca::cli
