// SPDX-License-Identifier: BSD-2-Clause
#include "cli/common/help.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <vector>

#include "cli/common/text.h"
#include "heddle/detail/assert.h"

namespace cli_common {
namespace {

constexpr std::size_t kIndent = 18;

std::string entry(const std::string& name, const std::string& description) {
    std::string head = "  " + name;
    std::string text = wrapped(description, kIndent, kColumns);
    HEDDLE_ASSERT(text.empty() || text.size() > kIndent, "each line begins behind the indent");
    if (head.size() + 2 <= kIndent && !text.empty()) {
        head.resize(kIndent, ' ');
        return head + text.substr(kIndent);
    }
    return head + "\n" + text;
}

// CLI11 describes a value as "UINT:INT in [1 - 16]" or "TEXT:{auto,never}": its type, then what its
// validators say.
std::string type_of(const CLI::Option& option) {
    const std::string text = option.get_type_name();
    return text.substr(0, text.find(':'));
}

// The word that stands for the value: a number is N; a text has the last word of the option's name
// (--stats-file FILE), unless the option names it.
std::string value_name(const CLI::Option& option) {
    const std::string type = type_of(option);
    if (type == "UINT" || type == "INT" || type == "FLOAT") return "N";
    if (type != "TEXT") return type;
    std::string name = option.get_name();
    name = name.substr(name.find_last_of("-,") + 1);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return name;
}

// "1 to 16", or "auto, never" if the description leaves out one of these words; else empty.
std::string possible_values(const CLI::Option& option) {
    const std::string text = option.get_type_name();
    if (const std::size_t range = text.find(" in ["); range != std::string::npos) {
        HEDDLE_ASSERT(text.find(']', range) != std::string::npos, "CLI11 closes its bracket");
        std::string values = text.substr(range + 5, text.find(']', range) - range - 5);
        const std::size_t middle = values.find(" - ");
        return middle == std::string::npos ? values : values.replace(middle, 3, " to ");
    }
    const std::size_t begin = text.find(":{"), end = text.find('}');
    if (begin == std::string::npos || end == std::string::npos) return {};
    std::istringstream words(text.substr(begin + 2, end - begin - 2));
    std::string values;
    bool are_described = true;
    for (std::string word; std::getline(words, word, ',');) {
        are_described = are_described && option.get_description().find(word) != std::string::npos;
        values += (values.empty() ? "" : ", ") + word;
    }
    return are_described ? std::string() : values;
}

// Empty where there is none, or where the description tells it.
std::string default_value(const CLI::Option& option) {
    std::string value = option.get_default_str();
    if (value.size() > 1 && value.front() == '[' && value.back() == ']')  // of several
        value = value.substr(1, value.size() - 2);
    const bool is_flag = option.get_items_expected_max() == 0;
    if (is_flag || option.get_required() ||
        option.get_description().find("default") != std::string::npos)
        return {};
    return value;
}

}  // namespace

std::string full_name(const CLI::App& app) {
    const CLI::App* const parent = app.get_parent();
    HEDDLE_ASSERT(!app.get_name().empty(), "each command has a name");
    return (parent ? full_name(*parent) + " " : "") + app.get_name();
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
    std::istringstream lines(app->get_description());
    std::string text;
    for (std::string line; std::getline(lines, line);)
        text += wrapped(line, 0, kColumns);
    return text;
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string /*name*/) const {
    std::string text = "Usage: " + full_name(*app);
    for (const CLI::Option* option : app->get_options())
        if (option->get_required()) text += " " + option->get_name() + make_option_opts(option);
    if (!app->get_subcommands([](const CLI::App*) { return true; }).empty())
        return text + " COMMAND ...\n";
    return text + " [OPTION...]" +
           (app->get_name() == "run" ? " [--] COMMAND [ARGUMENT...]\n" : "\n");
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool positional) const {
    return entry(make_option_name(option, positional) + make_option_opts(option),
                 make_option_desc(option));
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
    const std::string name =
        option->get_items_expected_max() == 0 ? std::string() : value_name(*option);
    return name.empty() ? "" : " " + name;
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
    std::string facts = possible_values(*option);
    if (const std::string value = default_value(*option); !value.empty())
        facts += (facts.empty() ? "" : "; ") + std::string("default ") + value;
    return option->get_description() + (facts.empty() ? "" : " [" + facts + "]");
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
    return entry(command->get_name(), command->get_description());
}

}  // namespace cli_common
