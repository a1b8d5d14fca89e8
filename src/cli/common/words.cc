// SPDX-License-Identifier: BSD-2-Clause
#include "cli/common/words.h"

#include <algorithm>

#include "heddle/detail/assert.h"

namespace cli_common {
namespace {

// The distance of Damerau and Levenshtein, without changing a pair twice.
std::size_t distance(const std::string& a, const std::string& b) {
    std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) {
        for (std::size_t j = 0; j <= b.size(); ++j) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            const std::size_t replaced = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replaced});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    HEDDLE_ASSERT(d[a.size()][b.size()] <= std::max(a.size(), b.size()),
                  "no word is farther than all of its letters");
    return d[a.size()][b.size()];
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
        names.push_back(command->get_name());
    return names;
}

std::vector<std::string> long_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options())
        for (const std::string& name : option->get_lnames())
            names.push_back("--" + name);
    return names;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
    const std::string near = nearest_word(word, known);
    return near.empty() ? near : "; did you mean '" + near + "'?";
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// The option that `word` names: "--bytes", "--bytes=8", "-n", "-n4".
const CLI::Option* option_of(const CLI::App& app, const std::string& word) {
    const bool is_long = word.starts_with("--");
    return app.get_option_no_throw(is_long ? word.substr(0, word.find('=')) : word.substr(0, 2));
}

bool has_value_within(const std::string& word) {
    return word.starts_with("--") ? word.find('=') != std::string::npos : word.size() > 2;
}

}  // namespace

std::vector<std::string> cut_command(const CLI::App& run, std::vector<std::string>* arguments,
                                     const Spellings& spellings) {
    HEDDLE_ASSERT(!arguments->empty() && arguments->front() == run.get_name(),
                  "the first word is the command's name");
    std::size_t i = 1;
    for (; i < arguments->size(); ++i) {
        std::string& word = (*arguments)[i];
        if (word == "--" || word.size() < 2 || word[0] != '-') break;
        if (const auto spelling = spellings.find(word); spelling != spellings.end())
            word = spelling->second;
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

std::string command_names(const CLI::App& app) {
    std::string text;
    for (const std::string& name : names_of_commands(app))
        text += (text.empty() ? "" : ", ") + name;
    return text;
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
    std::string nearest;
    std::size_t least = 0;
    for (const std::string& each : known) {
        const std::size_t letters = distance(word, each);
        const std::size_t most = std::max<std::size_t>(std::max(word.size(), each.size()) / 3, 1);
        if (letters > most || (!nearest.empty() && letters >= least)) continue;
        nearest = each;
        least = letters;
    }
    return nearest;
}

std::string no_such_command(const CLI::App& app, const std::string& name) {
    const std::string meant = did_you_mean(name, names_of_commands(app));
    return "there is no command '" + name + "', but " + command_names(app) +
           (meant.empty() ? "." : meant);
}

WrongWord wrong_word(const CLI::App& app, const std::vector<std::string>& arguments) {
    const CLI::App* at = &app;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string& word = arguments[i];
        if (word == "--" || at->get_prefix_command()) break;
        if (!is_option(word)) {
            if (names_of_commands(*at).empty()) break;
            const CLI::App* const command = find_command(*at, word);
            if (command == nullptr) return {no_such_command(*at, word), at};
            at = command;
            continue;
        }
        const CLI::Option* const option = option_of(*at, word);
        if (option == nullptr)
            return {"there is no option " + word +
                        did_you_mean(word.substr(0, word.find('=')), long_names(*at)),
                    at};
        if (option == at->get_help_ptr()) break;
        if (has_value_within(word)) continue;
        const int most = option->get_items_expected_max();
        for (int value = 0; value < most && i + 1 < arguments.size() &&
                            (value == 0 || !is_option(arguments[i + 1]));
             ++value)
            ++i;
    }
    return {};
}

}  // namespace cli_common
