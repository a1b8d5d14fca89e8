// SPDX-License-Identifier: BSD-2-Clause
// heddle bench: the experiments of the papers. Prints a table, and with --json one line for each
// configuration with every sample.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cli/common/text.h"
#include "cli/heddle/bench_report.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/selection.h"
#include "cli/heddle/sweep.h"
#include "experiments/figures.h"
#include "experiments/message_rate_peer.h"
#include "heddle/detail/assert.h"
#include "heddle/locality.h"

namespace heddle::cli {
namespace {

using cli_common::fixed;

constexpr std::uint32_t kPaperThreads = 16;

struct BenchRequest {
    bench::MessageRate rate;
    Selection selection;
    std::string figure;
    bench::TeamOptions team;
    int repetitions = 11;
    bool no_inline = false, no_blueflame = false, json = false;
};

struct BenchRow {
    std::string label;
    Path path;
    bench::MessageRateRun run;
    std::vector<double> samples, cpu_samples;
};

// Half of what lies between the quartiles: as robust as the median it stands beside.
double spread(const std::vector<double>& samples) {
    HEDDLE_ASSERT(!samples.empty(), "each row was measured");
    return (quartile(samples, 3) - quartile(samples, 1)) / 2;
}

std::vector<BenchRow> make_rows(const BenchRequest& request, const DeviceInfo& device,
                                bench::Team& team) {
    std::vector<BenchRow> rows;
    for (const Category c : request.selection.categories())
        for (const Path path : request.selection.paths()) {
            bench::MessageRate m = request.rate;
            m.path = path;
            m.inlining = !request.no_inline;
            m.blueflame = !request.no_blueflame;
            m.sharing = sharing_of(made_on(device, c), m.threads);
            request.selection.apply_shares(m.sharing);
            rows.push_back({std::string(name(c)), path, bench::MessageRateRun(m, team), {}, {}});
        }
    HEDDLE_ASSERT(!rows.empty(), "a selection has a category and a path");
    return rows;
}

void print_json(const BenchRequest& request, const DeviceInfo& device, const bench::Pinning& pins,
                const std::vector<BenchRow>& rows) {
    const Json host = host_facts(), adapter = device_facts(device);
    for (const BenchRow& row : rows) {
        Json j{{"experiment", "message-rate"}};
        j.update(adapter);
        j.update(Json{{"version", HEDDLE_VERSION},
                      {"category", row.label},
                      {"path", text_of(row.path)},
                      {"threads", request.rate.threads},
                      {"cores", pins.cores},
                      {"oversubscribed", pins.oversubscribed},
                      {"processors", pins.processors},
                      {"bytes", request.rate.bytes},
                      {"depth", request.rate.depth},
                      {"post_list", request.rate.post_list},
                      {"signal_every", request.rate.signal_every},
                      {"inlining", !request.no_inline},
                      {"blueflame", !request.no_blueflame},
                      {"seconds", request.rate.seconds},
                      {"share", request.selection.shares}});
        j.update(usage_facts(row.run.usage()));
        j.update(sample_facts(row.samples));
        j.update(cpu_sample_facts(row.cpu_samples));
        j["spread"] = spread(row.samples);
        j["host"] = host;
        std::printf("%s\n", j.dump().c_str());
    }
}

void print_table(const BenchRequest& request, const DeviceInfo& device, const bench::Pinning& pins,
                 const std::vector<BenchRow>& rows) {
    std::printf("%s: %s\n%u B, depth %u, lists of %u, a completion for %u; median of %d\n\n",
                title_of(device).c_str(), text_of(pins).c_str(), request.rate.bytes,
                request.rate.depth, request.rate.post_list, request.rate.signal_every,
                request.repetitions);
    cli_common::TextTable table(
        {"category", "path", "Mmsg/s", "+-", "a CPU s", "+-", "QPs", "CQs", "UARs"});
    for (const BenchRow& row : rows) {
        HEDDLE_ASSERT(row.samples.size() == static_cast<std::size_t>(request.repetitions) &&
                          row.samples.size() == row.cpu_samples.size(),
                      "all rows take turns");
        const Usage& u = row.run.usage();
        table.add({row.label, text_of(row.path), fixed(median(row.samples), 2),
                   fixed(spread(row.samples), 2), fixed(median(row.cpu_samples), 2),
                   fixed(spread(row.cpu_samples), 2), std::to_string(u.qps), std::to_string(u.cqs),
                   text_of(u.uars)});
    }
    std::printf(
        "%s\nA CPU s: messages for each second of processor time. It says nothing of how rates\n"
        "scale with threads.\n",
        table.text().c_str());
}

void message_rate(BenchRequest request, bench::Team& team) {
    const DeviceInfo info = device(request.rate.device);
    const bench::Pinning pins = bench::pinning(locality_of(info), request.rate.threads);
    request.rate.processors = pins.processors;
    std::vector<BenchRow> rows = make_rows(request, info, team);
    for (BenchRow& row : rows)
        row.run.warm_up();
    {
        Progress progress(rows.size() * static_cast<std::size_t>(request.repetitions));
        for (int r = 0; r < request.repetitions; ++r)
            for (BenchRow& row : rows) {
                progress.step(row.label + ", " + text_of(row.path));
                const bench::Rate rate = row.run.repeat();
                row.samples.push_back(rate.per_second);
                row.cpu_samples.push_back(rate.per_cpu_second);
            }
    }
    if (request.json)
        print_json(request, info, pins, rows);
    else
        print_table(request, info, pins, rows);
}

void sweep(const BenchRequest& request, bool threads_given, bench::Team& team) {
    HEDDLE_ASSERT(!request.figure.empty(), "a sweep is of a figure");
    SweepRequest s;
    s.figure = request.figure;
    s.base = request.rate;
    if (!threads_given) s.base.threads = kPaperThreads;
    s.paths = request.selection.paths();
    s.repetitions = request.repetitions;
    s.json = request.json;
    run_sweep(s, team);
}

std::string figure_list() {
    std::string text;
    for (const std::string& name : bench::figure_names())
        text += (text.empty() ? "" : ", ") + name;
    return text;
}

}  // namespace

void add_bench_command(CLI::App& app, int* status) {
    CLI::App* command = app.add_subcommand("bench", "Experiments of the papers");
    command->require_subcommand(1);
    add_kernel_commands(*command, status);
    add_reuse_commands(*command, status);
    add_reuse_never_command(*command, status);
    add_overlap_command(*command, status);
    add_tuple_commands(*command, status);
    CLI::App* rate = command->add_subcommand(
        "message-rate",
        "Small RDMA writes of n threads into another process, each on its endpoint (ICPADS'18). "
        "Starts that process, or is one of two of mpiexec.");
    auto* request = new BenchRequest;  // lives as long as the program
    CLI::Option* figure = rate->add_option(
        "--figure", request->figure, "a sweep of the paper, its values beside: " + figure_list());
    figure->check(CLI::IsMember(bench::figure_names()));
    CLI::Option* threads =
        rate->add_option("--threads", request->rate.threads,
                         "how many (default 1); of a figure the most (default 16, the paper's)");
    threads->check(CLI::Range(1, 1024));
    request->selection.add_path(*rate);
    rate->add_option("--repetitions", request->repetitions, "interleaved; the median counts")
        ->check(CLI::Range(1, 10000));
    rate->add_option("--seconds", request->rate.seconds, "of a repetition")
        ->check(CLI::Range(0.001, 3600.0));
    rate->add_option("--device", request->rate.device, "default: the first with an active port");
    rate->add_flag("--json", request->json, "a JSON line for each configuration");
    // A figure sets all of these.
    request->selection.add_category(*rate)->excludes(figure);
    request->selection.add_share(*rate)->excludes(figure);
    rate->add_option("--depth", request->rate.depth, "of the send queue")
        ->check(CLI::Range(1, 32768))
        ->excludes(figure);
    rate->add_option("--post-list", request->rate.post_list,
                     "requests handed over with one doorbell")
        ->check(CLI::Range(1, 1024))
        ->excludes(figure);
    rate->add_option("--signal-every", request->rate.signal_every, "requests to a completion")
        ->check(CLI::Range(1, 32768))
        ->excludes(figure);
    rate->add_option("--bytes", request->rate.bytes, "of a message")
        ->check(CLI::Range(1, 1 << 20))
        ->excludes(figure);
    rate->add_flag("--no-inline", request->no_inline, "the device fetches the payload")
        ->excludes(figure);
    rate->add_flag("--no-blueflame", request->no_blueflame, "doorbells only")->excludes(figure);
    rate->add_option("--exchange", request->team.exchange,
                     "directory where two processes that mpiexec has started meet (default: one "
                     "below $TMPDIR, by the job)");
    rate->callback([request, figure, threads, status] {
        Sharing sharing;
        request->selection.apply_shares(sharing);  // refused before processes are started
        // The other process waits for the next run as long as one takes. A process that ends is
        // noticed at once.
        request->team.patience = bench::Seconds(1e6);
        *status = run_with_rate_peer(request->team, request->rate.device, [=](bench::Team& team) {
            if (figure->count() != 0)
                sweep(*request, threads->count() != 0, team);
            else
                message_rate(*request, team);
            return 0;
        });
    });
}

}  // namespace heddle::cli
