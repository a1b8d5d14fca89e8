// SPDX-License-Identifier: BSD-2-Clause
// heddle bench reuse-...: the experiments of "Exploiting application buffer reuse", section 4.
// Beside the gain stands what the paper's equation 6 expects of it, (C - V) of the time without
// reuse, with C and V as they are here.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/common/text.h"
#include "cli/heddle/bench_report.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/turn_options.h"
#include "experiments/reuse.h"
#include "heddle/detail/assert.h"
#include "protocol/transport/process.h"

namespace heddle::cli {
namespace {

using cli_common::fixed;

using bench::ReuseCase;
using bench::ReuseKind;
using protocol::ReuseCosts;

// Which buffers an operation takes.
enum class BufferOrder : std::uint8_t {
    kOne,       // always the same
    kRotation,  // each of them in turn
    kSpectrum,  // buffer i of n for i operations
};

struct ReuseExperiment {
    const char *name, *what;
    ReuseKind kind;
    BufferOrder order;
    std::uint32_t processes;
    const char* paper;
};
constexpr ReuseExperiment kReuseExperiments[] = {
    {"reuse-pingpong", "Ping-pong from one buffer", ReuseKind::kPingPong, BufferOrder::kOne, 2,
     "up to 14 % at 8 KB (theory 15 %)"},
    {"reuse-rotation", "Ping-pong from 1 to 1000 buffers in turn", ReuseKind::kPingPong,
     BufferOrder::kRotation, 2, "not given"},
    {"reuse-spectrum", "Ping-pong, buffer i of n for i messages", ReuseKind::kPingPong,
     BufferOrder::kSpectrum, 2, "12.7 % at 8 KB"},
    {"reuse-spectrum-put", "RDMA writes, buffer i of n for i writes", ReuseKind::kPut,
     BufferOrder::kSpectrum, 2, "not given"},
    {"reuse-spectrum-get", "RDMA reads, buffer i of n for i reads", ReuseKind::kGet,
     BufferOrder::kSpectrum, 2, "not given"},
    {"reuse-put", "RDMA writes from one buffer, each waited for", ReuseKind::kPut,
     BufferOrder::kOne, 2, "about 20 % at 8 KB, losses below 1 KB"},
    {"reuse-get", "RDMA reads into one buffer, each waited for", ReuseKind::kGet, BufferOrder::kOne,
     2, "about 17 % at 8 KB, losses below 1 KB"},
    {"reuse-bcast", "Broadcasts by a binomial tree, from one buffer", ReuseKind::kBroadcast,
     BufferOrder::kOne, 4, "over 25 % on 4 processes"},
    {"reuse-scatter", "Scatters from one array", ReuseKind::kScatter, BufferOrder::kOne, 4,
     "not given"},
};

struct ReuseRequest : TurnOptions {
    ReuseRequest() : TurnOptions(15, 10) {}
    std::string channel = "both";
    std::uint32_t processes = 0, buffers = 200;  // buffers: of the spectrum
    std::vector<std::size_t> sizes{128, 256, 512, 1024, 2048, 4096, 8192};
};

std::vector<ReuseCase> cases_of(const ReuseExperiment& experiment, const ReuseRequest& request) {
    std::vector<ReuseCase> cases;
    if (experiment.order == BufferOrder::kSpectrum) {
        for (const bool fresh : {true, false})
            for (const std::size_t bytes : request.sizes)
                cases.push_back({.kind = experiment.kind,
                                 .bytes = bytes,
                                 .buffers = request.buffers,
                                 .spectrum = true,
                                 .fresh = fresh});
        return cases;
    }
    if (experiment.order == BufferOrder::kOne) {
        for (const std::size_t bytes : request.sizes)
            cases.push_back({experiment.kind, bytes, 1, false});
        return cases;
    }
    for (const bool separate : {false, true})
        for (const std::size_t bytes : {std::size_t{1024}, std::size_t{4096}, std::size_t{8192}})
            for (const std::uint32_t buffers : {1u, 10u, 100u, 1000u})
                cases.push_back({experiment.kind, bytes, buffers, separate});
    return cases;
}

// What the copies of one operation cost that are not made any more, in seconds. uses: after so many
// a buffer is registered.
double expected(const ReuseCase& c, const ReuseCosts& costs, bool ring, std::uint32_t uses,
                std::uint32_t processes) {
    const auto way = bench::way_of(c.kind, ring);
    double copies = 1;
    if (c.kind == ReuseKind::kScatter) copies = processes - 1;
    if (c.kind == ReuseKind::kBroadcast) copies = bench::tree_depth(processes);
    HEDDLE_ASSERT(copies >= 1, "a process sends to another one");
    const ReuseCosts::Cost& cost = costs.costs[ReuseCosts::index_of(c.bytes)];
    if (!cost.pays(way)) return 0;
    if (!c.fresh) return copies * cost.saved(way) * 1e-9;
    double saved = 0;
    for (std::uint32_t of_buffer = uses; of_buffer <= c.buffers; ++of_buffer)
        saved += (of_buffer - uses) * cost.saved(way) - cost.registration;
    return saved / bench::spectrum_messages(c.buffers) * 1e-9;
}

std::string percent(double share) { return fixed(100 * share, 1); }

int run(const ReuseExperiment& experiment, const ReuseRequest& request) {
    const DeviceInfo info = device(request.device);
    const bool rma = bench::way_of(experiment.kind, false) == ReuseCosts::kOneSided;
    bench::ReuseRequest wanted;
    wanted.options.device = info.name;
    wanted.processes = request.processes != 0 ? request.processes : experiment.processes;
    wanted.repetitions = request.repetitions;
    wanted.seconds = request.milliseconds * 1e-3;
    wanted.cases = cases_of(experiment, request);
    const auto file = ReuseCosts::file(info);
    const ReuseCosts costs = bench::measure_reuse_costs(wanted.options, ReuseCosts::load(file));
    if (!file.empty()) costs.save(file);
    cli_common::TextTable table({"channel", "bytes", "buffers", "pages", "learning", "us without",
                                 "us with", "gain %", "quartiles", "expected %", "no copy %"});
    std::vector<bool> rings;
    if (rma || request.channel != "ring") rings.push_back(false);
    if (!rma && request.channel != "send") rings.push_back(true);
    for (const bool ring : rings) {
        wanted.options.rings.peers = ring ? wanted.processes : 0;
        wanted.options.rings.message_bytes = 8192;
        const std::vector<bench::ReuseResult> results =
            run_reuse(wanted, costs, progress_report(request));
        HEDDLE_ASSERT(results.size() == wanted.cases.size(), "each case has its result");
        for (std::size_t i = 0; i < results.size(); ++i) {
            const bench::ReuseResult& result = results[i];
            ReuseCase c = wanted.cases[i];
            c.buffers = result.buffers;
            HEDDLE_ASSERT(result.with.size() == result.without.size(), "both sides take turns");
            std::vector<double> gains;
            for (std::size_t n = 0; n < result.with.size(); ++n)
                gains.push_back(1 - result.with[n] / result.without[n]);
            const double without = median(result.without);
            const double theory =
                expected(c, costs, ring, bench::uses_before(c, wanted.options, costs),
                         wanted.processes) /
                without;
            const char* const channel = rma ? "rma" : ring ? "ring" : "send";
            const char* const pages = c.buffers == 1 ? "-" : c.separate_pages ? "apart" : "shared";
            const char* const learning = c.fresh ? "inside" : "before";
            if (!request.json) {
                table.add({channel, std::to_string(c.bytes), std::to_string(c.buffers), pages,
                           learning, fixed(without * 1e6, 3), fixed(median(result.with) * 1e6, 3),
                           percent(median(gains)),
                           percent(quartile(gains, 1)) + " to " + percent(quartile(gains, 3)),
                           percent(theory), percent(result.gathered)});
                continue;
            }
            Json j{{"experiment", experiment.name}};
            j.update(host_facts());
            j.update(device_facts(info));
            j.update(Json{{"version", HEDDLE_VERSION},
                          {"processes", wanted.processes},
                          {"channel", channel},
                          {"bytes", c.bytes},
                          {"buffers", c.buffers},
                          {"separate_pages", c.separate_pages},
                          {"buffers_wanted", wanted.cases[i].buffers},
                          {"spectrum", c.spectrum},
                          {"learning", learning},
                          {"rests", result.reuse.rests},
                          {"seconds_without", result.without},
                          {"seconds_with", result.with},
                          {"gain", median(gains)},
                          {"expected_gain", theory},
                          {"without_copy", result.gathered},
                          {"paper", experiment.paper}});
            std::printf("%s\n", j.dump().c_str());
            std::fflush(stdout);
        }
    }
    if (request.json) return 0;
    std::printf(
        "%s: %s, %u processes; medians of %u repetitions of %.0f ms, with reuse and without in "
        "turns\n\n%s\n"
        "gain: of the time without reuse, turn by turn. expected: the copy less the look-up, as "
        "measured here\n(heddle calibrate), of that time; a size whose copy costs less than a "
        "gather is copied. no copy: of\nthe messages of process 0. learning and registering: "
        "before the measured time, or inside. Paper (MVAPICH2, ConnectX "
        "DDR): %s.\n",
        title_of(info).c_str(), experiment.what, wanted.processes, wanted.repetitions,
        request.milliseconds, table.text().c_str(), experiment.paper);
    return 0;
}

}  // namespace

void add_reuse_commands(CLI::App& bench, int* status) {
    for (const ReuseExperiment& each : kReuseExperiments) {
        CLI::App* command = bench.add_subcommand(each.name, each.what);
        auto request = std::make_shared<ReuseRequest>();
        if (each.kind != ReuseKind::kPut && each.kind != ReuseKind::kGet)
            command
                ->add_option("--channel", request->channel,
                             "of eager messages: send (receive queues), ring (RDMA writes), both")
                ->check(CLI::IsMember({"send", "ring", "both"}))
                ->capture_default_str();
        if (each.order != BufferOrder::kRotation)
            command->add_option("--bytes", request->sizes, "of messages (default: 128 to 8192)")
                ->check(CLI::Range(1, 8192));
        if (each.order == BufferOrder::kSpectrum)
            command->add_option("--buffers", request->buffers, "n, of the spectrum")
                ->check(CLI::Range(1, 4000))
                ->capture_default_str();
        if (each.processes > 2)
            command->add_option("--processes", request->processes, "default: 4")
                ->check(CLI::Range(2, 8));
        add_turn_options(*command, *request, {.json = "a line of JSON for each size"});
        command->callback([&each, request, status] { *status = run(each, *request); });
    }
}

}  // namespace heddle::cli
