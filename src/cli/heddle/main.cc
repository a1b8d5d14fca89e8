// SPDX-License-Identifier: BSD-2-Clause
// The command `heddle`. This file parses the command line; each command has a file of its own.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>

#include "cli/heddle/commands.h"
#include "heddle/error.h"

int main(int argc, char** argv) {
    CLI::App app(
        "Scalable communication endpoints for MPI+threads on InfiniBand and RoCE.\n"
        "Without RDMA hardware: softhca run -- heddle ...");
    app.name("heddle");
    app.set_version_flag("--version", "heddle " HEDDLE_VERSION);
    app.require_subcommand(1);
    int status = 0;
    heddle::cli::add_info_command(app, &status);
    heddle::cli::add_plan_command(app, &status);
    heddle::cli::add_bench_command(app, &status);
    heddle::cli::add_options_command(app, &status);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : heddle::cli::kUsage;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "heddle: %s\n", error.what());
        return heddle::cli::kFailed;
    }
    return status;
}
