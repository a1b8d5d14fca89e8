// SPDX-License-Identifier: BSD-2-Clause
// The command `heddle`. This file parses the command line; each command has a file of its own.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "cli/common/help.h"
#include "cli/common/words.h"
#include "cli/heddle/commands.h"
#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "verbs/missing_device.h"

namespace {

using heddle::cli::kFailed;
using heddle::cli::kUsage;

// mpiexec's words, which CLI11 would read as several options of one letter.
const cli_common::Spellings kOfMpiexec{
    {"-np", "--np"}, {"-hosts", "--hosts"}, {"-hostfile", "--hostfile"}};

void declare_commands(CLI::App& app, const std::vector<std::string>& program, int* status) {
    app.formatter(std::make_shared<cli_common::HelpFormatter>());
    app.option_defaults()->always_capture_default();
    app.set_version_flag("--version", "heddle " HEDDLE_VERSION, "print the version");
    app.require_subcommand(1);
    heddle::cli::add_run_command(app, program, status);
    heddle::cli::add_compare_command(app, program, status);
    heddle::cli::add_top_command(app, status);
    heddle::cli::add_info_command(app, status);
    heddle::cli::add_doctor_command(app, status);
    heddle::cli::add_plan_command(app, status);
    heddle::cli::add_predict_command(app, status);
    heddle::cli::add_bench_command(app, status);
    heddle::cli::add_options_command(app, status);
    heddle::cli::add_calibrate_command(app, status);
    heddle::cli::add_check_hardware_command(app, status);
    heddle::cli::add_report_commands(app, status);
    app.footer(
        "'heddle COMMAND --help' says more of each. First steps:\n"
        "  heddle run -n 2 ./program\n"
        "  softhca run -- heddle info");
    for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
        if (command->get_footer() == app.get_footer()) command->footer("");
}

// The command that the words name, as far as CLI11 got.
const CLI::App& named_command(const CLI::App& app) {
    const std::vector<CLI::App*> commands = app.get_subcommands();
    return commands.empty() ? app : named_command(*commands.front());
}

int complain(const CLI::App& command, const std::string& what) {
    HEDDLE_ASSERT(!what.empty(), "a refusal has a reason");
    const std::string name = cli_common::full_name(command);
    std::fprintf(stderr, "%s: %s\nTry '%s --help'.\n", name.c_str(), what.c_str(), name.c_str());
    return kUsage;
}

// What to type after a command that found no device: the same, on the software one.
void propose_softhca(const std::vector<std::string>& arguments) {
    if (!heddle::verbs::why_no_device()) return;
    std::string line;
    for (const std::string& word : arguments)
        line += " " + word;
    std::fprintf(stderr, "On the software HCA: softhca run -- heddle%s\n", line.c_str());
}

int heddle_main(std::vector<std::string> arguments) {
    CLI::App app(
        "Scalable communication endpoints for MPI+threads on InfiniBand and RoCE.\n"
        "MPI programs: heddle run -- mpiexec ...\n"
        "The other commands without RDMA hardware: softhca run -- heddle ...",
        "heddle");
    int status = 0;
    std::vector<std::string> program;  // what `heddle run` or `compare` is to start
    declare_commands(app, program, &status);
    if (arguments.empty()) {
        std::fputs(app.help().c_str(), stderr);
        return kUsage;
    }
    HEDDLE_ASSERT(cli_common::find_command(app, "run") && cli_common::find_command(app, "compare"),
                  "these two start a program");
    if (arguments.front() == "doctor") {
        for (std::string& word : arguments)
            if (const auto spelling = kOfMpiexec.find(word); spelling != kOfMpiexec.end())
                word = spelling->second;
    }
    if (arguments.front() == "run" || arguments.front() == "compare")
        program = cli_common::cut_command(*cli_common::find_command(app, arguments.front()),
                                          &arguments, kOfMpiexec);
    if (const auto wrong = cli_common::wrong_word(app, arguments); !wrong.what.empty())
        return complain(*wrong.command, wrong.what);
    try {
        std::vector<std::string> words(arguments.rbegin(), arguments.rend());
        app.parse(std::move(words));  // which wants the last one first
    } catch (const CLI::CallForHelp& request) {
        return app.exit(request);
    } catch (const CLI::CallForVersion& request) {
        return app.exit(request);
    } catch (const CLI::ParseError& error) {
        const CLI::App& command = named_command(app);
        const std::string names = cli_common::command_names(command);
        return complain(command, names.empty() ? error.what() : "a command is missing: " + names);
    } catch (const heddle::VerbsError& error) {
        std::fprintf(stderr, "heddle: %s\n", error.what());
        if (error.error() == ENODEV) propose_softhca(arguments);
        return kFailed;
    }
    return status;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return heddle_main({argv + (argc > 0 ? 1 : 0), argv + argc});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "heddle: %s\n", error.what());
        return kFailed;
    }
}
