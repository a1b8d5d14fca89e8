// SPDX-License-Identifier: BSD-2-Clause
#include "predict/toml_reader.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

namespace heddle::predict {
namespace {

void read_parameter(MachineFile& file, const std::string& owner, const std::string& name,
                    const toml::table& table, const std::string& where) {
    const Parameter* parameter = find_parameter(name);
    if (parameter == nullptr) fail_at(where, &table, "the model has no parameter '" + name + "'");
    const auto unit = table["unit"].value<std::string>();
    if (!unit || *unit != parameter->unit)
        fail_at(where, &table,
                owner + ": 'unit' has to be \"" + std::string(parameter->unit) + "\"");
    const auto source = table["source"].value<std::string>();
    if (!source || source->empty()) fail_at(where, &table, owner + " has no 'source'");
    const MachineFile::Origin origin{*source, number_at(table, "low", where, owner),
                                     number_at(table, "high", where, owner)};
    const double value = number_at(table, "value", where, owner);
    if (value < origin.low || value > origin.high)
        fail_at(where, table.get("value"), owner + ": 'value' is not between 'low' and 'high'");
    if (value < parameter->least)
        fail_at(where, table.get("value"),
                owner + ": 'value' has to be at least " + std::to_string(parameter->least));
    if (is_count(*parameter) && value != std::floor(value))
        fail_at(where, table.get("value"), owner + ": 'value' has to be a whole number");
    file.machine.*parameter->value = value;
    file.origins.emplace(name, origin);
}

bool is_ascii(std::string_view text) {
    return std::ranges::none_of(text, [](char c) { return (c & 0x80) != 0; });
}

// Where the comment or string that begins at `begin` ends; npos: with the text. One of several
// lines ends after all quotes that follow, since TOML lets it end in two quotes of its own.
std::size_t end_of_literal(std::string_view text, std::size_t begin) {
    const char quote = text[begin];
    if (quote == '#') return text.find('\n', begin);
    if (text.substr(begin, 3) == std::string(3, quote)) {
        const std::size_t close = text.find(std::string(3, quote), begin + 3);
        return close == text.npos ? close : text.find_first_not_of(quote, close);
    }
    for (std::size_t at = begin + 1; at < text.size() && text[at] != '\n'; ++at) {
        if (text[at] == quote) return at + 1;
        if (quote == '"' && text[at] == '\\') ++at;
    }
    return text.find('\n', begin);
}

// TOML 1.0 has characters beyond ASCII in comments and strings alone. They are refused elsewhere
// before toml++ looks: its 3.3 runs into __builtin_unreachable() when it asks whether one of
// U+00A1 to U+0499 is white space. It asks within strings of several lines too.
void refuse_beyond_ascii(std::string_view text, const std::string& where) {
    std::size_t at = 0;
    while (at < text.size()) {
        std::size_t end = at + 1;
        bool is_free = false;
        if (text[at] == '#' || text[at] == '"' || text[at] == '\'') {
            end = std::min(end_of_literal(text, at), text.size());
            is_free = text[at] == '#' || text.substr(at, 3) != std::string(3, text[at]);
        }
        if (!is_free && !is_ascii(text.substr(at, end - at)))
            throw MachineFileError(
                where + ":" +
                std::to_string(1 +
                               std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n')) +
                ": characters beyond ASCII are for comments and for strings of one line");
        at = end;
    }
}

}  // namespace

void on_broken_toml() { throw std::invalid_argument("this is no TOML"); }

void fail_at(const std::string& where, const toml::node* node, const std::string& what) {
    const std::string line =
        node != nullptr ? ":" + std::to_string(node->source().begin.line) : std::string();
    throw MachineFileError(where + line + ": " + what);
}

toml::table parse_table(std::string_view text, const std::string& where) {
    refuse_beyond_ascii(text, where);
    try {
        return toml::parse(text);
    } catch (const toml::parse_error& error) {
        throw MachineFileError(where + ":" + std::to_string(error.source().begin.line) + ": " +
                               std::string(error.description()));
    } catch (const std::invalid_argument& error) {
        throw MachineFileError(where + ": " + error.what());
    }
}

double number_at(const toml::table& table, std::string_view key, const std::string& where,
                 const std::string& owner) {
    const toml::node* node = table.get(key);
    if (node == nullptr) fail_at(where, &table, owner + " has no '" + std::string(key) + "'");
    const std::optional<double> value = node->value<double>();
    if (!value || !std::isfinite(*value) || *value < 0)
        fail_at(where, node, owner + ": '" + std::string(key) + "' has to be a number >= 0");
    return *value;
}

void read_head(MachineFile& file, const toml::table& table, const std::string& where) {
    if (table["schema"].value<std::int64_t>() != 1)
        fail_at(where, table.get("schema"), "'schema' has to be 1");
    file.name = table["name"].value_or(std::string());
    if (file.name.empty()) fail_at(where, nullptr, "it has no 'name'");
    const auto whole = [&](std::string_view key) {
        const double value = number_at(table, key, where, "the file");
        if (value != std::floor(value) || value < 1 || value > 1e6)
            fail_at(where, table.get(key),
                    "'" + std::string(key) + "' has to be a whole number from 1 to 1000000");
        return static_cast<std::uint32_t>(value);
    };
    file.threads = whole("threads");
    file.bytes = whole("bytes");
    file.is_measured = table["measured"].value_or(false);
}

void read_parameters(MachineFile& file, const toml::table& table, std::string_view kind,
                     const std::string& where) {
    const toml::table* parameters = table[kind].as_table();
    if (parameters == nullptr)
        fail_at(where, nullptr, "it has no table [" + std::string(kind) + ".NAME]");
    for (const auto& [key, node] : *parameters) {
        const std::string name(key.str()), owner = std::string(kind) + "." + name;
        const toml::table* entry = node.as_table();
        if (entry == nullptr) fail_at(where, &node, owner + " has to be a table");
        read_parameter(file, owner, name, *entry, where);
    }
}

}  // namespace heddle::predict
