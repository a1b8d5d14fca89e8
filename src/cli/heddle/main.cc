// SPDX-License-Identifier: BSD-2-Clause
// The command `heddle`. This file parses the command line; each command has a file of its own.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/heddle/commands.h"
#include "cli/words.h"
#include "heddle/error.h"

int main(int argc, char** argv) {
    CLI::App app(
        "Scalable communication endpoints for MPI+threads on InfiniBand and RoCE.\n"
        "MPI programs: heddle run -- mpiexec ...\n"
        "The other commands without RDMA hardware: softhca run -- heddle ...");
    app.name("heddle");
    app.set_version_flag("--version", "heddle " HEDDLE_VERSION);
    app.require_subcommand(1);
    int status = 0;
    std::vector<std::string> program;  // what `heddle run` is to start
    heddle::cli::add_run_command(app, program, &status);
    heddle::cli::add_top_command(app, &status);
    heddle::cli::add_info_command(app, &status);
    heddle::cli::add_plan_command(app, &status);
    heddle::cli::add_bench_command(app, &status);
    heddle::cli::add_options_command(app, &status);
    heddle::cli::add_calibrate_command(app, &status);
    heddle::cli::add_report_commands(app, &status);
    try {
        std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
        if (!arguments.empty() && arguments.front() == "run")
            program =
                softhca::cli::cut_command(*softhca::cli::find_command(app, "run"), &arguments);
        std::reverse(arguments.begin(), arguments.end());  // as CLI::App::parse wants them
        app.parse(std::move(arguments));
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : heddle::cli::kUsage;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "heddle: %s\n", error.what());
        return heddle::cli::kFailed;
    }
    return status;
}
