// SPDX-License-Identifier: BSD-2-Clause
// The commands of `softhca`, each in a file of its own. add_X_command declares the command and its
// options; when the command line names it, CLI11 calls back and `*status` becomes its exit status.
// Failures are CommandError.
#pragma once

#include <CLI/CLI.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "softhca/base/options.h"

namespace softhca::cli {

// Exit statuses of all commands but `run` (for that see program.h).
inline constexpr int kSuccess = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;

class CommandError : public std::runtime_error {
public:
    explicit CommandError(const std::string& what, int status = kFailed)
        : std::runtime_error(what), status_(status) {}
    int status() const noexcept { return status_; }

private:
    int status_;
};

// `command` is what follows the options of `softhca run`.
void add_run_command(CLI::App& app, const std::vector<std::string>& command, int* status);
void add_stat_command(CLI::App& app, int* status);
void add_top_command(CLI::App& app, int* status);
void add_list_command(CLI::App& app, int* status);
void add_clean_command(CLI::App& app, int* status);
void add_port_command(CLI::App& app, int* status);
void add_env_command(CLI::App& app, int* status);
void add_traits_command(CLI::App& app, int* status);

// Adds the flag of a declared option. The text is checked by option_value().
CLI::Option* add_declared_option(CLI::App& app, const OptionDeclaration& declaration,
                                 std::string* text);

// The value of this option: the flag, else the environment, else the default. Throws CommandError
// (kUsage) that names which of them is wrong and what is possible.
std::string option_value(const OptionDeclaration& declaration, const CLI::Option& flag);

// `--fabric NAME`, for the commands that look at a fabric, and the name that holds in the end.
CLI::Option* add_fabric_option(CLI::App& app, std::string* text);
std::string fabric_name(const CLI::Option& flag);

// The declaration of an environment variable that is known to exist.
const OptionDeclaration& declaration_of(const char* variable);

}  // namespace softhca::cli
