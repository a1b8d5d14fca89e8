// SPDX-License-Identifier: BSD-2-Clause
// Sweeps: see sweep.h. All points are measured once, then all again, and so on: what the machine
// does besides falls on all of them alike. Endpoints are made anew each time, since those of a
// whole figure together may be more than a device or a process has.
#include "cli/heddle/sweep.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "cli/common/text.h"
#include "cli/heddle/bench_report.h"
#include "cli/heddle/device_reads.h"
#include "experiments/figures.h"
#include "heddle/detail/assert.h"
#include "heddle/locality.h"
#include "predict/figures.h"
#include "predict/machine_file.h"

namespace heddle::cli {
namespace {

using cli_common::fixed;

struct SweepRow {
    bench::FigurePoint point;
    std::optional<Usage> usage;
    std::vector<double> samples, cpu_samples;
    // Figure 6, if the device counts them: in each repetition.
    std::vector<double> wqe_reads, payload_reads;

    double rate() const { return median(samples); }
    double cpu_rate() const { return median(cpu_samples); }
};

std::vector<SweepRow> rows_of(const SweepRequest& request, const bench::Figure& figure,
                              const Locality& place) {
    std::vector<SweepRow> rows;
    for (const bench::FigurePoint& point : figure.points)
        for (const Path path : request.paths) {
            SweepRow row{point, std::nullopt, {}, {}, {}, {}};
            row.point.rate.path = path;
            row.point.rate.processors = bench::pinning(place, point.rate.threads).processors;
            HEDDLE_ASSERT(row.point.rate.processors.size() == row.point.rate.threads,
                          "each thread has a processor");
            rows.push_back(std::move(row));
        }
    HEDDLE_ASSERT(rows.size() == figure.points.size() * request.paths.size());
    return rows;
}

std::string name_of(const bench::Figure& figure, const SweepRow& row) {
    return "figure " + figure.name + ", " + row.point.series + ", " + figure.x_name + " " +
           std::to_string(row.point.x) + ", " + text_of(row.point.rate.path);
}

// What the device has read for each message since `before`. `messages`: sent since then.
void add_reads(SweepRow& row, const std::optional<DeviceReads>& before, std::uint64_t messages) {
    const std::optional<DeviceReads> now = device_reads();
    if (!before || !now) return;
    HEDDLE_ASSERT(now->wqes >= before->wqes && messages != 0, "counters do not go back");
    row.wqe_reads.push_back(static_cast<double>(now->wqes - before->wqes) /
                            static_cast<double>(messages));
    row.payload_reads.push_back(static_cast<double>(now->payloads - before->payloads) /
                                static_cast<double>(messages));
}

void measure(const SweepRequest& request, const bench::Figure& figure, std::vector<SweepRow>& rows,
             bench::Team& team) {
    Progress progress(rows.size() * static_cast<std::size_t>(request.repetitions));
    for (int r = 0; r < request.repetitions; ++r)
        for (SweepRow& row : rows) {
            progress.step(name_of(figure, row));
            try {
                bench::MessageRateRun run(row.point.rate, team);
                const bool count_reads = figure.name == "6";
                const auto before = count_reads ? device_reads() : std::nullopt;
                run.warm_up();
                const bench::Rate rate = run.repeat();
                row.samples.push_back(rate.per_second);
                row.cpu_samples.push_back(rate.per_cpu_second);
                row.usage = run.usage();
                if (count_reads) add_reads(row, before, run.messages());
            } catch (const VerbsError& error) {
                throw VerbsError(name_of(figure, row) + ": " + error.asked(), error.error(),
                                 error.hint());
            }
        }
}

// For the adapter of the paper.
std::optional<double> predicted(const SweepRow& row) {
    return predict::predicted(row.point.rate, predict::connectx4_haswell());
}

void print_json(const bench::Figure& figure, const DeviceInfo& device, const Locality& place,
                const std::vector<SweepRow>& rows) {
    const Json host = host_facts(), adapter = device_facts(device);
    for (const SweepRow& row : rows) {
        HEDDLE_ASSERT(row.usage.has_value() && !row.samples.empty(), "each point was measured");
        const bench::MessageRate& m = row.point.rate;
        const bench::Pinning pins = bench::pinning(place, m.threads);
        Json j{{"experiment", "message-rate"},
               {"figure", figure.name},
               {"series", row.point.series},
               {"x", row.point.x},
               {"x_is", figure.x_name}};
        j.update(adapter);
        j.update(Json{{"path", text_of(m.path)},
                      {"threads", m.threads},
                      {"cores", pins.cores},
                      {"oversubscribed", pins.oversubscribed},
                      {"processors", pins.processors},
                      {"bytes", m.bytes},
                      {"depth", m.depth},
                      {"post_list", m.post_list},
                      {"signal_every", m.signal_every},
                      {"inlining", m.inlining},
                      {"blueflame", m.blueflame},
                      {"seconds", m.seconds},
                      {"ways", sharing_facts(m.sharing)}});
        j.update(usage_facts(*row.usage));
        j.update(sample_facts(row.samples));
        j.update(cpu_sample_facts(row.cpu_samples));
        if (!row.wqe_reads.empty()) {
            j["wqe_reads_per_message"] = median(row.wqe_reads);
            j["payload_reads_per_message"] = median(row.payload_reads);
        }
        j["paper_mmsgs_per_s"] =
            row.point.paper ? Json(row.point.paper->mmsgs_per_s) : Json(nullptr);
        if (const std::optional<double> rate = predicted(row)) {
            j["predicted_mmsgs_per_s"] = *rate;
            j["predicted_for"] = predict::connectx4_haswell().name;
        }
        j["host"] = host;
        std::printf("%s\n", j.dump().c_str());
    }
}

// The first point of the figure by the same path: values are shown relative to it.
const SweepRow& first_of(const std::vector<SweepRow>& rows, Path path) {
    HEDDLE_ASSERT(!rows.empty(), "a figure has points");
    for (const SweepRow& row : rows)
        if (row.point.rate.path == path) return row;
    return rows.front();
}

// What a reader must know where there are fewer cores than threads; else empty.
std::string taking_turns(const Locality& place, const std::vector<SweepRow>& rows) {
    std::uint32_t most = 0;
    for (const SweepRow& row : rows)
        most = std::max(most, row.point.rate.threads);
    const bench::Pinning pins = bench::pinning(place, most);
    if (!pins.oversubscribed) return "";
    return "More than " + std::to_string(pins.cores) +
           " threads take turns here: such rows say nothing of as many cores.\n";
}

void print_table(const SweepRequest& request, const bench::Figure& figure, const DeviceInfo& device,
                 const Locality& place, const std::vector<SweepRow>& rows) {
    std::printf("Figure %s: %s\n%s, up to %s; median of %d repetitions of %g s, interleaved\n\n",
                figure.name.c_str(), figure.title.c_str(), title_of(device).c_str(),
                text_of(bench::pinning(place, request.base.threads)).c_str(), request.repetitions,
                request.base.seconds);
    const char* const here = device.software ? "software HCA, Mmsg/s" : "Mmsg/s";
    std::vector<std::string> columns = {
        "curve",           figure.x_name,      "path",    here,
        "quartiles",       "relative",         "a CPU s", "paper, Mmsg/s",
        "paper, relative", "predicted, Mmsg/s"};
    const bool reads = !rows.front().wqe_reads.empty();
    if (reads) columns.insert(columns.end(), {"WQE reads", "payload reads"});
    cli_common::TextTable table(columns);
    for (const SweepRow& row : rows) {
        const SweepRow& first = first_of(rows, row.point.rate.path);
        const auto& paper = row.point.paper;
        std::vector<std::string> cells = {
            row.point.series,
            std::to_string(row.point.x),
            text_of(row.point.rate.path),
            fixed(row.rate(), 2),
            fixed(quartile(row.samples, 1), 2) + " to " + fixed(quartile(row.samples, 3), 2),
            fixed(row.rate() / first.rate(), 2),
            fixed(row.cpu_rate(), 2),
            paper ? fixed(paper->mmsgs_per_s, 2) : "-",
            paper && first.point.paper
                ? fixed(paper->mmsgs_per_s / first.point.paper->mmsgs_per_s, 2)
                : "-"};
        const std::optional<double> rate = predicted(row);
        cells.push_back(rate ? fixed(*rate, 2) : "-");
        if (reads) {
            cells.push_back(fixed(median(row.wqe_reads), 2));
            cells.push_back(fixed(median(row.payload_reads), 2));
        }
        table.add(cells);
    }
    std::printf(
        "%s%s\nRates are by the clock; relative: to the first row of the same path. A CPU s: "
        "messages "
        "for\neach second of processor time, which says nothing of how rates scale with "
        "threads.\n%sThe paper's values are a ConnectX-4's with 16 cores, predicted ones are for "
        "it%s.\n",
        table.text().c_str(), reads ? "\nReads: by DMA, for each message.\n" : "",
        taking_turns(place, rows).c_str(),
        device.software ? "; ours are no adapter's: compare shapes, not numbers" : "");
}

}  // namespace

void run_sweep(const SweepRequest& request, bench::Team& team) {
    const DeviceInfo info = device(request.base.device);
    const Locality place = locality_of(info);
    const bench::Figure figure = bench::figure(request.figure, request.base);
    std::vector<SweepRow> rows = rows_of(request, figure, place);
    measure(request, figure, rows, team);
    if (request.json)
        print_json(figure, info, place, rows);
    else
        print_table(request, figure, info, place, rows);
}

}  // namespace heddle::cli
