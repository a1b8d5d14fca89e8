// SPDX-License-Identifier: BSD-2-Clause
// What machine files and revisions have in common: tables of parameters, and errors with the line.
#pragma once

#include <string>
#include <string_view>

#include "predict/machine_file.h"

namespace heddle::predict {
// @throw std::invalid_argument always
[[noreturn]] void on_broken_toml();
}  // namespace heddle::predict

// The parser of toml++ 3.3 asserts what a file may break ("[[[" does); with NDEBUG it lets the
// compiler assume it. Here it is an error of the file, which parse_table() turns into its own.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expression) \
    (static_cast<bool>(expression) ? void() : heddle::predict::on_broken_toml())
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace heddle::predict {

// @throw MachineFileError always: "where:line: what"
[[noreturn]] void fail_at(const std::string& where, const toml::node* node,
                          const std::string& what);
// @throw MachineFileError if it is no TOML
toml::table parse_table(std::string_view text, const std::string& where);
// A value of `table`, which an error calls `owner`. @throw MachineFileError unless it is finite and
// >= 0
double number_at(const toml::table& table, std::string_view key, const std::string& where,
                 const std::string& owner);
// The keys of a machine before its parameters: schema, name, threads, bytes, measured.
void read_head(MachineFile& file, const toml::table& table, const std::string& where);
// Tables [kind.NAME] with value, unit, source, low and high.
void read_parameters(MachineFile& file, const toml::table& table, std::string_view kind,
                     const std::string& where);

}  // namespace heddle::predict
