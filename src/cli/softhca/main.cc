// SPDX-License-Identifier: BSD-2-Clause
// The command `softhca`: see man/softhca.1. This file parses the command line; each command has a
// file of its own.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/common/help.h"
#include "cli/common/program.h"
#include "cli/common/words.h"
#include "cli/softhca/commands.h"
#include "softhca/base/assert.h"

namespace {

using cli_common::command_names;
using cli_common::cut_command;
using cli_common::find_command;
using cli_common::kRunFailed;
using softhca::cli::CommandError;
using softhca::cli::kFailed;
using softhca::cli::kSuccess;
using softhca::cli::kUsage;

int complain(const std::string& who, const std::string& what, int status) {
    std::fprintf(stderr, "%s: %s\n", who.c_str(), what.c_str());
    if (status == kUsage || status == kRunFailed)
        std::fprintf(stderr, "Try '%s --help'.\n", who.c_str());
    return status;
}

void declare_commands(CLI::App& app, const std::vector<std::string>& program, int* status) {
    app.formatter(std::make_shared<cli_common::HelpFormatter>());
    app.set_version_flag("--version", "softhca " SOFTHCA_VERSION, "print the version");
    app.require_subcommand(1);
    softhca::cli::add_run_command(app, program, status);
    softhca::cli::add_stat_command(app, status);
    softhca::cli::add_top_command(app, status);
    softhca::cli::add_list_command(app, status);
    softhca::cli::add_clean_command(app, status);
    softhca::cli::add_port_command(app, status);
    softhca::cli::add_env_command(app, status);
    softhca::cli::add_traits_command(app, status);
    app.footer(
        "'softhca COMMAND --help' says more of each. First steps:\n"
        "  softhca run ibv_devinfo\n"
        "  softhca run ib_write_lat & softhca run ib_write_lat localhost");
    SOFTHCA_ASSERT(find_command(app, "run") != nullptr, "softhca_main() knows this command");
    for (CLI::App* command : app.get_subcommands({}))
        command->footer("");
}

// `who` is "softhca" or "softhca COMMAND"; `usage` and `failed` are its exit statuses for a wrong
// command line and for exceptions without a status of their own.
int execute(CLI::App& app, std::vector<std::string> arguments, const std::string& who,
            const int* status, int usage, int failed) {
    SOFTHCA_ASSERT(usage != kSuccess && failed != kSuccess, "a failure has an exit status");
    try {
        if (const std::string wrong = cli_common::wrong_word(app, arguments).what; !wrong.empty())
            return complain(who, wrong, usage);
        std::reverse(arguments.begin(), arguments.end());  // as CLI::App::parse wants them
        app.parse(std::move(arguments));
        return *status;
    } catch (const CLI::CallForHelp& request) {
        return app.exit(request);
    } catch (const CLI::CallForVersion& request) {
        return app.exit(request);
    } catch (const CLI::ParseError& error) {
        return complain(who, error.what(), usage);
    } catch (const CommandError& error) {
        return complain(who, error.what(), error.status() == kUsage ? usage : error.status());
    } catch (const std::exception& error) {
        return complain(who, error.what(), failed);
    }
}

int softhca_main(std::vector<std::string> arguments) {
    std::vector<std::string> program;  // what `softhca run` is to start
    int status = kFailed;
    CLI::App app{"A software ConnectX: runs unmodified verbs programs without an HCA.", "softhca"};
    declare_commands(app, program, &status);
    if (arguments.empty()) {
        std::fputs(app.help().c_str(), stderr);
        return kUsage;
    }
    const std::string name = arguments[0];
    if (name.starts_with('-')) return execute(app, arguments, "softhca", &status, kUsage, kFailed);
    const CLI::App* command = find_command(app, name);
    if (!command)
        return complain(
            "softhca",
            cli_common::no_such_command(app, name) + " To start a program: softhca run " + name,
            kUsage);
    if (name != "run") return execute(app, arguments, "softhca " + name, &status, kUsage, kFailed);
    program = cut_command(*command, &arguments);
    return execute(app, arguments, "softhca run", &status, kRunFailed, kRunFailed);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return softhca_main({argv + (argc > 0 ? 1 : 0), argv + argc});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "softhca: %s\n", error.what());
        return kFailed;
    }
}
