// SPDX-License-Identifier: BSD-2-Clause
// heddle bench reuse-never: what looking for buffers that are used again costs those programs for
// which it is in vain: no buffer is ever used twice, or so many are used in turn that none is
// remembered. And how large the tables become.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "cli/common/text.h"
#include "cli/heddle/bench_report.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/turn_options.h"
#include "experiments/reuse.h"
#include "heddle/detail/assert.h"
#include "memory/reuse_table.h"

namespace heddle::cli {
namespace {

using cli_common::fixed;

using bench::ReuseCase;
using bench::ReuseKind;

constexpr std::uint32_t kInTurn = 1'000'000;
// At most so many are used once: the turns are shorter then.
constexpr std::uint32_t kMostOnce = 1 << 22;
constexpr double kFastest = 1e-7;  // seconds of a message

struct ReuseNeverRequest : TurnOptions {
    ReuseNeverRequest() : TurnOptions(101, 5) {}
    std::uint32_t runs = 5;
    std::vector<std::size_t> sizes{1024, 4096};
};

struct ReuseSetting {
    const char* name;  // of FI_HEDDLE_REUSE
    std::optional<std::uint32_t> reuse_after;
};
// Off beside off: what is not 0 there is the spread.
const ReuseSetting kSettings[] = {{"off", 0}, {"auto", std::nullopt}, {"16", 16}};

std::string percent_to_hundredths(double share) { return fixed(100 * share, 2); }

double sum(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
}

// The turns of another run.
void add(std::vector<bench::ReuseResult>& to, const std::vector<bench::ReuseResult>& more) {
    HEDDLE_ASSERT(to.size() == more.size(), "all runs have the same cases");
    for (std::size_t i = 0; i < to.size(); ++i) {
        to[i].with.insert(to[i].with.end(), more[i].with.begin(), more[i].with.end());
        to[i].without.insert(to[i].without.end(), more[i].without.begin(), more[i].without.end());
    }
}

int run(const ReuseNeverRequest& request) {
    const DeviceInfo info = device(request.device);
    bench::ReuseRequest wanted;
    wanted.options.device = info.name;
    wanted.processes = 1;
    wanted.repetitions = request.repetitions;
    wanted.seconds = request.milliseconds * 1e-3;
    const double enough = (request.repetitions + 1) * wanted.seconds / kFastest;
    const auto once = static_cast<std::uint32_t>(
        std::min<double>(kMostOnce, bench::kUntilAtRest + std::ceil(enough)));
    for (const bool again : {false, true})
        for (const std::size_t bytes : request.sizes)
            wanted.cases.push_back({ReuseKind::kSelf, bytes, again ? kInTurn : once, false, again});
    cli_common::TextTable table({"buffers", "bytes", "reuse", "ns without", "ns with", "slower %",
                                 "quartiles", "in all %", "tables KiB", "no copy %"});
    const ProgressReport say = progress_report(request);
    for (const ReuseSetting& setting : kSettings) {
        wanted.options.reuse.after = setting.reuse_after;
        // Two processes differ by a few percent in where their memory lies: of one run, so much is
        // not the look-up's.
        std::vector<bench::ReuseResult> results = run_reuse(wanted, {}, say);
        for (std::uint32_t run = 1; run < request.runs; ++run)
            add(results, run_reuse(wanted, {}, say));
        for (std::size_t i = 0; i < results.size(); ++i) {
            const ReuseCase& c = wanted.cases[i];
            const bench::ReuseResult& result = results[i];
            HEDDLE_ASSERT(result.with.size() == result.without.size(), "both sides take turns");
            std::vector<double> slower;
            for (std::size_t n = 0; n < result.with.size(); ++n)
                slower.push_back(result.with[n] / result.without[n] - 1);
            // One turn in some is of an epoch in which the table does not rest: no median shows it.
            const double in_all = sum(result.with) / sum(result.without) - 1;
            const std::uint64_t kept = result.reuse.entries * sizeof(memory::ReuseTable::Entry);
            if (!request.json) {
                table.add(
                    {c.again ? std::to_string(c.buffers) : "used once", std::to_string(c.bytes),
                     setting.name, fixed(median(result.without) * 1e9, 1),
                     fixed(median(result.with) * 1e9, 1), percent_to_hundredths(median(slower)),
                     percent_to_hundredths(quartile(slower, 1)) + " to " +
                         percent_to_hundredths(quartile(slower, 3)),
                     percent_to_hundredths(in_all), std::to_string(kept / 1024),
                     fixed(100 * result.gathered, 1)});
                continue;
            }
            Json j{{"experiment", "reuse-never"}};
            j.update(host_facts());
            j.update(device_facts(info));
            j.update(Json{{"version", HEDDLE_VERSION},
                          {"reuse", setting.name},
                          {"bytes", c.bytes},
                          {"buffers", c.again ? Json(c.buffers) : Json()},
                          {"seconds_without", result.without},
                          {"seconds_with", result.with},
                          {"slower", median(slower)},
                          {"slower_in_all", in_all},
                          {"table_bytes", kept},
                          {"looked_up", result.reuse.uses},
                          {"rests", result.reuse.rests},
                          {"without_copy", result.gathered}});
            std::printf("%s\n", j.dump().c_str());
            std::fflush(stdout);
        }
    }
    if (request.json) return 0;
    std::printf(
        "%s: messages of a process to itself, from buffers that are used once or in turn; medians "
        "of\n%u repetitions in %u runs, of up to %.0f ms of processor time, with reuse and without "
        "in turns\n\n%s\n"
        "slower: of the time without reuse, turn by turn, and of the sum of all turns; off beside "
        "off is the\nspread, and at most 1 %% more is wanted. tables: of sources and destinations; "
        "they grow to %zu KiB\neach, and to %zu if many buffers are in frequent use.\n",
        title_of(info).c_str(), request.runs * request.repetitions, request.runs,
        request.milliseconds, table.text().c_str(),
        memory::ReuseTable::kFreely * sizeof(memory::ReuseTable::Entry) / 1024,
        memory::ReuseTable::kMost * sizeof(memory::ReuseTable::Entry) / 1024);
    return 0;
}

}  // namespace

void add_reuse_never_command(CLI::App& bench, int* status) {
    CLI::App* command = bench.add_subcommand(
        "reuse-never", "Messages from buffers never used again, and from a million in turn");
    auto request = std::make_shared<ReuseNeverRequest>();
    command->add_option("--bytes", request->sizes, "of messages (default: 1024 and 4096)")
        ->check(CLI::Range(1, 8192));
    command->add_option("--runs", request->runs, "with new processes each")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    add_turn_options(*command, *request,
                     {.json = "a line of JSON for each row",
                      .repetitions = "of each run; the median counts",
                      .most_repetitions = 1000});
    command->callback([request, status] { *status = run(*request); });
}

}  // namespace heddle::cli
