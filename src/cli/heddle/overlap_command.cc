// SPDX-License-Identifier: BSD-2-Clause
// heddle bench overlap: availability of the processor while a message is under way, by each mode
// that messages travel ("TupleQ", section 5).
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cli/common/text.h"
#include "cli/heddle/bench_report.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/rndv_modes.h"
#include "cli/heddle/turn_options.h"
#include "experiments/overlap.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

using cli_common::fixed;

using bench::OverlapCase;
using bench::OverlapResult;
using bench::OverlapSample;
using bench::OverlapSide;

struct OverlapChoice : TurnOptions {
    OverlapChoice() : TurnOptions(9, 4) {}
    std::string side = "both", peer = "yield";
    std::vector<std::string> modes = kRndvModes;
    std::vector<std::size_t> sizes{0,    8,     64,    512,    1024,    4096,
                                   8192, 16384, 65536, 262144, 1048576, 4194304};
};

const char* side_name(OverlapSide side) {
    return side == OverlapSide::kSender ? "sender" : "receiver";
}

template <class Field>
std::vector<double> all(const OverlapResult& result, const Field& field) {
    HEDDLE_ASSERT(!result.samples.empty(), "each case was measured");
    std::vector<double> values;
    for (const OverlapSample& sample : result.samples)
        values.push_back(field(sample));
    return values;
}

// The base time of the fastest mode: that of all modes of a case.
double fastest_of(const std::vector<OverlapResult>& modes) {
    HEDDLE_ASSERT(!modes.empty(), "each case has its modes");
    double fastest = std::numeric_limits<double>::infinity();
    for (const OverlapResult& each : modes)
        fastest = std::min(fastest, median(all(each, [](const auto& s) { return s.base; })));
    return fastest;
}

Json json_of(const OverlapResult& result, double fastest) {
    const auto field = [&](double OverlapSample::*which) {
        return all(result, [which](const OverlapSample& s) { return s.*which; });
    };
    const auto availability = all(result, [=](const auto& s) { return s.availability(fastest); });
    return {{"base_us", field(&OverlapSample::base)},
            {"overhead_us", field(&OverlapSample::overhead)},
            {"post_us", field(&OverlapSample::post)},
            {"wait_us", field(&OverlapSample::wait)},
            {"work_us", field(&OverlapSample::work)},
            {"fastest_us", fastest},
            {"availability", median(availability)},
            {"quartiles", {quartile(availability, 1), quartile(availability, 3)}},
            {"by_tuple", result.by_tuple},
            {"found_no_receive", result.late},
            {"switches", result.switches}};
}

void add_row(cli_common::TextTable& table, const OverlapCase& c, const std::string& mode,
             const OverlapResult& result, double fastest) {
    const auto middle = [&](double OverlapSample::*which) {
        return fixed(median(all(result, [which](const auto& s) { return s.*which; })), 2);
    };
    const auto availability =
        all(result, [=](const auto& s) { return 100 * s.availability(fastest); });
    table.add({side_name(c.side), std::to_string(c.bytes), mode, middle(&OverlapSample::base),
               middle(&OverlapSample::post), middle(&OverlapSample::wait),
               middle(&OverlapSample::overhead), fixed(median(availability), 1),
               fixed(quartile(availability, 1), 1) + " to " + fixed(quartile(availability, 3), 1),
               fixed(100 * result.by_tuple, 0)});
}

bench::OverlapRequest wanted_of(const OverlapChoice& request, const DeviceInfo& info) {
    bench::OverlapRequest wanted;
    for (const std::string& mode : request.modes)
        wanted.teams.push_back(options_of(mode, info.name));
    for (const OverlapSide side : {OverlapSide::kSender, OverlapSide::kReceiver})
        if (request.side == "both" || request.side == side_name(side))
            for (const std::size_t bytes : request.sizes)
                wanted.cases.push_back({side, bytes});
    wanted.peer = request.peer == "spin"    ? bench::PeerWait::kSpin
                  : request.peer == "sleep" ? bench::PeerWait::kSleep
                                            : bench::PeerWait::kYield;
    HEDDLE_ASSERT(wanted.teams.size() == request.modes.size() && !wanted.cases.empty(),
                  "each mode has a team");
    wanted.repetitions = request.repetitions;
    wanted.seconds = request.milliseconds * 1e-3;
    return wanted;
}

int run(const OverlapChoice& request) {
    const DeviceInfo info = device(request.device);
    const bench::OverlapRequest wanted = wanted_of(request, info);
    std::vector<std::vector<OverlapResult>> results;
    {
        Progress progress(wanted.cases.size() * wanted.teams.size() * wanted.repetitions);
        results = run_overlap(wanted, [&](const OverlapCase& c) {
            progress.step(std::string(side_name(c.side)) + ", " + std::to_string(c.bytes) +
                          " bytes");
        });
    }
    cli_common::TextTable table({"side", "bytes", "way", "base us", "post us", "wait us",
                                 "overhead us", "available %", "quartiles", "by tuple %"});
    const Json host = host_facts(), adapter = device_facts(info);
    HEDDLE_ASSERT(results.size() == wanted.cases.size(), "each case has its results");
    for (std::size_t i = 0; i < results.size(); ++i) {
        const double fastest = fastest_of(results[i]);
        for (std::size_t team = 0; team < request.modes.size(); ++team) {
            const OverlapCase& c = wanted.cases[i];
            if (!request.json) {
                add_row(table, c, request.modes[team], results[i][team], fastest);
                continue;
            }
            Json j{{"experiment", "overlap"}};
            j.update(host);
            j.update(adapter);
            j.update(Json{{"version", HEDDLE_VERSION},
                          {"side", side_name(c.side)},
                          {"bytes", c.bytes},
                          {"way", request.modes[team]},
                          {"peer", request.peer}});
            j.update(json_of(results[i][team], fastest));
            std::printf("%s\n", j.dump().c_str());
        }
    }
    if (request.json) return 0;
    std::printf(
        "%s: availability while a message is under way; medians of %u repetitions, all ways in "
        "turns;\nthe peer %s while it waits\n\n%s\n"
        "base: post and wait, with nothing between. post, wait, overhead: with as much work "
        "between as makes an\niteration half as long again; overhead is the iteration less the "
        "work. available: of the fastest way's base, what is left to\na program that works for so "
        "long: it loses the overhead, or what this way takes longer. by tuple: of the\n"
        "messages.%s\n",
        title_of(info).c_str(), wanted.repetitions,
        request.peer == "spin"    ? "polls without a pause"
        : request.peer == "sleep" ? "sleeps 20 us at a time"
                                  : "gives its processor away between polls",
        table.text().c_str(),
        info.software ? "\nA software HCA: below 32 KiB the thread that posts does the device's "
                        "work, within the post; above, another\nthread of the process, which has "
                        "a processor that the peer wants, too."
                      : "");
    return 0;
}

}  // namespace

void add_overlap_command(CLI::App& bench, int* status) {
    CLI::App* command = bench.add_subcommand(
        "overlap", "Post, work, wait: how much of a message's time its sides have for themselves");
    auto request = std::make_shared<OverlapChoice>();
    command->add_option("--side", request->side, "that works: sender, receiver, both")
        ->check(CLI::IsMember({"sender", "receiver", "both"}))
        ->capture_default_str();
    command
        ->add_option("--bytes", request->sizes,
                     "of messages (default: twelve sizes from 0 to 4194304)")
        ->check(CLI::Range(0, 1 << 30));
    command->add_option("--way", request->modes, "in which messages travel (default: all)")
        ->check(CLI::IsMember(kRndvModes));
    command
        ->add_option("--peer", request->peer,
                     "while it waits: spin, yield (to the software HCA's threads), sleep")
        ->check(CLI::IsMember({"spin", "yield", "sleep"}))
        ->capture_default_str();
    add_turn_options(*command, *request,
                     {.json = "a line of JSON for each side, size and way",
                      .time = "of each amount of work, in ms"});
    command->callback([request, status] { *status = run(*request); });
}

}  // namespace heddle::cli
