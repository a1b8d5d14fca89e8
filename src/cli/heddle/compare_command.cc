// SPDX-License-Identifier: BSD-2-Clause
// heddle compare: runs a program without heddle and over it, and says what to use.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/common/program.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/compare_report.h"
#include "cli/heddle/compare_runs.h"
#include "cli/heddle/compare_verdict.h"

namespace heddle::cli {

namespace {

using cli_common::ProgramError;

int compare(CompareRequest request, const std::vector<std::string>& command) {
    if (command.empty())
        throw ProgramError(cli_common::kRunFailed,
                           "no command to run; for instance: heddle compare -n 4 ./program");
    if (request.json) request.format = "json";
    const ComparedRuns all = measure_runs(request, command);
    if (request.format == "json")
        print_compared_json(request, all);
    else if (request.format == "csv")
        print_compared_csv(all);
    else
        print_compared_text(request, all);
    if (request.format == "csv")
        std::fprintf(stderr, "heddle compare: %s\n", recommendation(request, all).c_str());
    return all_well(all) ? 0 : kFailed;
}

}  // namespace

void add_compare_command(CLI::App& app, const std::vector<std::string>& command, int* status) {
    CLI::App* const compare_app = app.add_subcommand(
        "compare",
        "Time a program without heddle, over it, and with the options that its messages suggest");
    auto request = std::make_shared<CompareRequest>();
    compare_app->footer(
        "The options end at -- or at the first word that is none. For instance:\n"
        "  heddle compare -n 4 ./program\n"
        "  heddle compare --rounds 15 -- mpiexec -n 2 ./program\n"
        "Runs take turns; their input is /dev/null. Exit status 1: a run has failed.");
    compare_app
        ->add_option("--ranks,--np,-n", request->ranks,
                     "COMMAND is an MPI program: start so many of it, as heddle run -n does")
        ->check(CLI::Range(1, 1'000'000));
    compare_app
        ->add_option("--rounds", request->rounds,
                     "each way runs once in a round (6 are the least for a conclusion)")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    compare_app->add_option("--warmup", request->warmup, "rounds before these, which do not count")
        ->check(CLI::Range(0, 100))
        ->capture_default_str();
    compare_app
        ->add_option("--patience", request->patience,
                     "seconds after which a run is ended, and has failed")
        ->check(CLI::Range(0.1, 1e6))
        ->capture_default_str();
    compare_app->add_flag("--null", request->null_model,
                          "the program without heddle beside itself: must show no difference");
    compare_app
        ->add_option("--format", request->format, "text, json (all samples), csv (a line a run)")
        ->check(CLI::IsMember({"text", "json", "csv"}))
        ->capture_default_str();
    compare_app->add_flag("--json", request->json, "the same as --format json");
    compare_app->callback([request, &command, status] {
        try {
            *status = compare(*request, command);
        } catch (const ProgramError& error) {
            std::fprintf(stderr, "heddle compare: %s\n", error.what());
            *status = error.status();
        } catch (const Interrupted& interrupted) {
            std::fprintf(stderr, "heddle compare: ended by signal %d\n", interrupted.signal);
            *status = 128 + interrupted.signal;
        }
    });
}

}  // namespace heddle::cli
