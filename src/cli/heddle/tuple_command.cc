// SPDX-License-Identifier: BSD-2-Clause
// heddle bench tuple-...: messages that may go through tuple queues beside the same messages by
// software, where queues may be a loss: small messages, late receives, many tags, wildcards.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/common/text.h"
#include "cli/heddle/bench_report.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/rndv_modes.h"
#include "cli/heddle/turn_options.h"
#include "experiments/tuples.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

using cli_common::fixed;

using bench::TupleCase;
using bench::TupleResult;

struct TupleExperiment {
    const char *name, *what;
    const char *option, *help;  // what is varied, and the column that shows it
    std::vector<double> values;
    double least, most;
    std::vector<std::size_t> sizes;
    std::vector<std::string> modes;  // beside rget
};
const TupleExperiment kTupleExperiments[] = {
    {"tuple-latency",
     "Ping-pong of small messages through a tuple that is warm, beside eager messages",
     nullptr,
     nullptr,
     {},
     0,
     0,
     {8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192},
     {"tupleq+copy", "auto"}},
    {"tuple-late",
     "Windows of messages whose receives come late",
     "--late",
     "microseconds from the receiver's word to its receives",
     {0, 2, 5, 10, 20, 50, 100, 500},
     0,
     1e6,
     {1024, 16384, 65536},
     {"auto"}},
    {"tuple-many",
     "Windows of messages with many tags in turn",
     "--tags",
     "how many",
     {1, 10, 100, 1000, 10000, 100000},
     1,
     1 << 20,
     {1024, 16384},
     {"auto"}},
    {"tuple-wildcards",
     "Windows of messages of which some are received from any source",
     "--wildcards",
     "percent of the receives",
     {0, 1, 5, 10, 25, 50, 75, 100},
     0,
     100,
     {1024, 16384},
     {"auto"}},
};
constexpr std::uint32_t kWildcardTags = 8;

struct TupleRequest : TurnOptions {
    TupleRequest() : TurnOptions(15, 20) {}
    std::vector<std::size_t> sizes;
    std::vector<double> values;
    std::vector<std::string> modes;
    std::uint32_t window = 32;
};

std::vector<TupleCase> cases_of(const TupleExperiment& experiment, const TupleRequest& request) {
    HEDDLE_ASSERT(experiment.option != nullptr || request.values.empty(),
                  "what is varied has an option");
    const std::string name = experiment.name;
    std::vector<TupleCase> cases;
    for (const std::size_t bytes : request.sizes) {
        TupleCase c;
        c.bytes = bytes;
        if (name == "tuple-latency") {
            c.ping_pong = c.warm = true;
            for (const bool early : {true, false}) {
                c.early = early;
                cases.push_back(c);
            }
        }
        for (const double value : request.values) {
            c.early = name != "tuple-late";
            if (name == "tuple-late") c.late_us = value;
            if (name == "tuple-many") c.tags = static_cast<std::uint32_t>(value);
            if (name == "tuple-wildcards") {
                c.tags = kWildcardTags;
                c.wildcards = static_cast<unsigned>(value);
            }
            cases.push_back(c);
        }
    }
    return cases;
}

// What is varied beside the size.
std::string varied(const TupleExperiment& experiment, const TupleCase& c) {
    if (c.ping_pong) return c.early ? "before" : "when its turn comes";
    const std::string name = experiment.name;
    if (name == "tuple-late") return fixed(c.late_us, c.late_us < 1 && c.late_us > 0 ? 2 : 0);
    return std::to_string(name == "tuple-many" ? c.tags : c.wildcards);
}

struct Comparison {
    double median, low, high;  // rate by this mode, of that by rget
};
Comparison compare(const TupleResult& mode, const TupleResult& rget) {
    HEDDLE_ASSERT(mode.seconds.size() == rget.seconds.size() && !mode.seconds.empty(),
                  "all modes take turns");
    std::vector<double> ratios;
    for (std::size_t n = 0; n < mode.seconds.size(); ++n)
        ratios.push_back(rget.seconds[n] / mode.seconds[n]);
    return {median(ratios), quartile(ratios, 1), quartile(ratios, 3)};
}

Json json_of(const TupleExperiment& experiment, const TupleCase& c, const std::string& mode,
             const TupleResult& result, const TupleResult& rget) {
    const Comparison ratio = compare(result, rget);
    Json j{{"experiment", experiment.name}, {"bytes", c.bytes}, {"way", mode}};
    if (c.ping_pong) j["receives"] = c.early ? "before" : "in turn";
    if (experiment.option != nullptr) j[experiment.option + 2] = std::stod(varied(experiment, c));
    j.update(Json{{"seconds", result.seconds},
                  {"seconds_rget", rget.seconds},
                  {"ratio", ratio.median},
                  {"quartiles", {ratio.low, ratio.high}},
                  {"by_tuple", result.by_tuple},
                  {"found_no_receive", result.late},
                  {"opened", result.opened},
                  {"undisturbed", result.undisturbed}});
    return j;
}

bench::TupleRequest wanted_of(const TupleExperiment& experiment, const TupleRequest& request,
                              const DeviceInfo& info) {
    bench::TupleRequest wanted;
    for (const std::string& mode : request.modes)
        wanted.teams.push_back(options_of(mode, info.name));
    wanted.teams.push_back(options_of("rget", info.name));
    wanted.cases = cases_of(experiment, request);
    wanted.window = request.window;
    wanted.repetitions = request.repetitions;
    wanted.seconds = request.milliseconds * 1e-3;
    return wanted;
}

int run(const TupleExperiment& experiment, const TupleRequest& request) {
    const DeviceInfo info = device(request.device);
    const bench::TupleRequest wanted = wanted_of(experiment, request, info);
    std::vector<std::vector<TupleResult>> results;
    {
        Progress progress(wanted.cases.size() * wanted.teams.size() * (wanted.repetitions + 1));
        results = run_tuples(wanted, [&](const TupleCase& c) {
            progress.step(std::to_string(c.bytes) + " bytes, " + varied(experiment, c));
        });
    }
    const std::string column = experiment.option != nullptr ? experiment.option + 2 : "receives";
    cli_common::TextTable table({"bytes", column, "way", "us rget", "us", "times as good",
                                 "quartiles", "by tuple %", "late %", "opened"});
    const Json host = host_facts(), adapter = device_facts(info);
    HEDDLE_ASSERT(results.size() == wanted.cases.size(), "each case has its results");
    for (std::size_t i = 0; i < results.size(); ++i)
        for (std::size_t mode = 0; mode < request.modes.size(); ++mode) {
            const TupleCase& c = wanted.cases[i];
            const TupleResult &result = results[i][mode], &rget = results[i].back();
            if (request.json) {
                Json j = json_of(experiment, c, request.modes[mode], result, rget);
                j.update(host);
                j.update(adapter);
                std::printf("%s\n", j.dump().c_str());
                continue;
            }
            const Comparison ratio = compare(result, rget);
            table.add({std::to_string(c.bytes), varied(experiment, c), request.modes[mode],
                       fixed(median(rget.seconds) * 1e6, 2), fixed(median(result.seconds) * 1e6, 2),
                       fixed(ratio.median, 3), fixed(ratio.low, 3) + " to " + fixed(ratio.high, 3),
                       fixed(100 * result.by_tuple, 0), fixed(100 * result.late, 0),
                       std::to_string(result.opened)});
        }
    if (request.json) return 0;
    std::printf(
        "%s: %s; medians of %u repetitions of %.0f ms, all modes in turns\n\n%s\n"
        "us: of a message. times as good: time by rget over time by this mode, turn by turn; 1 "
        "and more is as\ngood or better. by tuple: of the messages; late: of them, those that "
        "found no "
        "receive. opened: queues, after the\nfirst turn.\n",
        title_of(info).c_str(), experiment.what, wanted.repetitions, request.milliseconds,
        table.text().c_str());
    return 0;
}

}  // namespace

void add_tuple_commands(CLI::App& bench, int* status) {
    for (const TupleExperiment& each : kTupleExperiments) {
        CLI::App* command = bench.add_subcommand(each.name, each.what);
        auto request = std::make_shared<TupleRequest>();
        request->sizes = each.sizes;
        request->values = each.values;
        request->modes = each.modes;
        command->add_option("--bytes", request->sizes, "of messages")
            ->check(CLI::Range(0, 1 << 24))
            ->capture_default_str();
        if (each.option != nullptr) {
            command->add_option(each.option, request->values, each.help)
                ->check(CLI::Range(each.least, each.most))
                ->capture_default_str();
            command->add_option("--window", request->window, "messages that are sent at once")
                ->check(CLI::Range(1, 256))
                ->capture_default_str();
        }
        command->add_option("--way", request->modes, "in which messages travel, beside rget")
            ->check(CLI::IsMember(kRndvModes))
            ->capture_default_str();
        add_turn_options(*command, *request, {.json = "a line of JSON for each row"});
        command->callback([&each, request, status] { *status = run(each, *request); });
    }
}

}  // namespace heddle::cli
