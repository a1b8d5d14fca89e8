// SPDX-License-Identifier: BSD-2-Clause
// heddle bench global-array and stencil: the kernels of ICPADS'18, section VII. Rank 0 prints a
// table, or with --json a line for each configuration; the exit status is that of the check.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "cli/common/text.h"
#include "cli/heddle/bench_report.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/paper_resources.h"
#include "cli/heddle/predict_kernels.h"
#include "cli/heddle/selection.h"
#include "experiments/common/team.h"
#include "experiments/global_array.h"
#include "experiments/stencil.h"
#include "heddle/detail/assert.h"
#include "heddle/locality.h"

namespace heddle::cli {
namespace {

using cli_common::fixed;

// What both kernels are asked.
struct Common {
    Selection selection;
    double patience = 60;
    bench::TeamOptions team;
    bool json = false;
};

struct Configuration {
    Category category;
    Path path;
};

std::vector<Configuration> configurations(const Common& common) {
    std::vector<Configuration> all;
    for (const Category c : common.selection.categories())
        for (const Path path : common.selection.paths())
            all.push_back({c, path});
    HEDDLE_ASSERT(!all.empty(), "a selection has a category and a path");
    return all;
}

// The resources beside a rate, and those of the paper's table.
std::vector<std::string> with_resources(std::vector<std::string> columns) {
    for (const char* name :
         {"QPs", "CQs", "MRs", "UARs", "UARs (paper)", "uUARs", "uUARs (paper)", "KiB", "result"})
        columns.emplace_back(name);
    return columns;
}
void append_resources(std::vector<std::string>& row, const Usage& u, std::uint32_t paper) {
    for (const std::string& cell :
         {std::to_string(u.qps), std::to_string(u.cqs), std::to_string(u.mrs), text_of(u.uars),
          std::to_string(paper), text_of(u.uuars), std::to_string(2 * paper),
          std::to_string((u.bytes + 512) / 1024)})
        row.push_back(cell);
}
void add_resources(Json& j, const Usage& u, std::uint32_t paper) {
    j.update(usage_facts(u));
    j["paper_uars"] = paper;
    j["paper_uuars"] = 2 * paper;
}
constexpr const char* kResourcesNote =
    "UARs and uUARs are the paper's with the kernel of its time (softhca run --uar static); KiB "
    "are "
    "the driver's objects.";

const char* name_of(bench::PostMode mode) {
    return mode == bench::PostMode::kConservative ? "conservative" : "batched";
}

Json json_head(const char* experiment, const DeviceInfo& device, const Configuration& c,
               const bench::Pinning& pins) {
    Json j{{"experiment", experiment}};
    j.update(device_facts(device));
    j.update(Json{{"version", HEDDLE_VERSION},
                  {"category", std::string(name(c.category))},
                  {"path", text_of(c.path)},
                  {"cores", pins.cores},
                  {"oversubscribed", pins.oversubscribed},
                  {"processors", pins.processors}});
    return j;
}

std::string verdict(const std::string& wrong) { return wrong.empty() ? "correct" : "wrong"; }

// Said for everybody to see, in a table or not.
int status_of(const Configuration& c, const std::string& wrong) {
    if (wrong.empty()) return 0;
    std::fprintf(stderr, "heddle: %s, %s: %s\n", std::string(name(c.category)).c_str(),
                 text_of(c.path), wrong.c_str());
    return kFailed;
}

void print_line(const Json& j) {
    std::printf("%s\n", j.dump().c_str());
    std::fflush(stdout);
}

void print_heading(const DeviceInfo& device, const std::string& what, const bench::Pinning& pins) {
    std::printf("%s: %s\n%s\n\n", title_of(device).c_str(), text_of(pins).c_str(), what.c_str());
}

// One line of a table or of JSON.
struct GlobalArrayOutput {
    const bench::GlobalArray& g;
    const bench::GlobalArrayResult& result;
    double seconds = median(result.seconds);
    double reads = median(result.read_mmsgs_per_s);
    double writes = median(result.write_mmsgs_per_s);
    std::uint32_t paper =
        paper_uars(g.category, g.threads, g.category == Category::kMpiThreads ? 1 : g.threads);

    std::vector<std::string> cells() const {
        std::vector<std::string> row{
            std::string(name(g.category)), text_of(g.path), name_of(g.mode),
            fixed(seconds * 1e3, 3),       fixed(reads, 3), fixed(writes, 3)};
        append_resources(row, result.usage, paper);
        row.push_back(verdict(result.wrong));
        return row;
    }
    Json json(Json j) const {
        j["posting"] = name_of(g.mode);
        j["threads"] = g.threads;
        j["matrix"] = g.matrix;
        j["tile"] = g.tile;
        j["seconds"] = seconds;
        j["samples"] = result.seconds;
        j["reads"] = result.reads;
        j["writes"] = result.writes;
        j["read_mmsgs_per_s"] = reads;
        j["write_mmsgs_per_s"] = writes;
        j["read_samples"] = result.read_mmsgs_per_s;
        j["write_samples"] = result.write_mmsgs_per_s;
        add_resources(j, result.usage, paper);
        if (g.mode == bench::PostMode::kConservative)  // its writes
            j.update(predicted_fields("global-array", g.category, 1, 1, g.threads));
        j["result"] = verdict(result.wrong);
        return j;
    }
};

int global_array(const Common& common, const std::vector<bench::PostMode>& modes,
                 const bench::GlobalArray& wanted, bench::Team& team) {
    int status = 0;
    const DeviceInfo info = device(wanted.device);
    const bench::Pinning pins = bench::pinning(locality_of(info), wanted.threads);
    cli_common::TextTable table(
        with_resources({"category", "path", "posting", "ms", "reads Mmsg/s", "writes Mmsg/s"}));
    for (const Configuration& c : configurations(common))
        for (const bench::PostMode mode : modes) {
            bench::GlobalArray g = wanted;
            g.category = c.category;
            g.path = c.path;
            g.mode = mode;
            g.processors = pins.processors;
            const bench::GlobalArrayResult result = run_global_array(team, g);
            if (team.rank() != 0) continue;
            HEDDLE_ASSERT(result.seconds.size() == static_cast<std::size_t>(wanted.repetitions) &&
                              result.seconds.size() == result.read_mmsgs_per_s.size(),
                          "each repetition was timed");
            if (const int bad = status_of(c, result.wrong)) status = bad;
            const GlobalArrayOutput output{g, result};
            if (common.json)
                print_line(output.json(json_head("global-array", info, c, pins)));
            else
                table.add(output.cells());
        }
    if (team.rank() != 0 || common.json) return status;
    print_heading(info,
                  "Product of two matrices of " + std::to_string(wanted.matrix) + " x " +
                      std::to_string(wanted.matrix) + ", tiles of " + std::to_string(wanted.tile) +
                      " x " + std::to_string(wanted.tile) + "; medians of " +
                      std::to_string(wanted.repetitions),
                  pins);
    std::printf("%s\nResources are those of the process with the threads. %s\n",
                table.text().c_str(), kResourcesNote);
    return status;
}

int stencil(const Common& common, const bench::Stencil& wanted, bench::Team& team) {
    int status = 0;
    const DeviceInfo info = device(wanted.device);
    const bench::Pinning pins = bench::pinning(locality_of(info), team.size() * wanted.threads);
    cli_common::TextTable table(with_resources({"category", "path", "ms", "Mmsg/s"}));
    for (const Configuration& c : configurations(common)) {
        bench::Stencil s = wanted;
        s.category = c.category;
        s.path = c.path;
        s.processors = pins.processors;
        const bench::StencilResult result = run_stencil(team, s);
        if (team.rank() != 0) continue;
        HEDDLE_ASSERT(result.seconds.size() == static_cast<std::size_t>(wanted.repetitions),
                      "each repetition was timed");
        if (const int bad = status_of(c, result.wrong)) status = bad;
        const double seconds = median(result.seconds);
        const double rate = static_cast<double>(result.messages) / seconds * 1e-6;
        const std::uint32_t paper = paper_uars(c.category, s.threads, 2 * s.threads);
        if (!common.json) {
            std::vector<std::string> row{std::string(name(c.category)), text_of(c.path),
                                         fixed(seconds * 1e3, 3), fixed(rate, 3)};
            append_resources(row, result.usage, paper);
            row.push_back(verdict(result.wrong));
            table.add(std::move(row));
            continue;
        }
        Json j = json_head("stencil", info, c, pins);
        j["processes"] = team.size();
        j["threads"] = s.threads;
        j["rows"] = s.rows;
        j["columns"] = s.columns;
        j["iterations"] = s.iterations;
        j["seconds"] = seconds;
        j["samples"] = result.seconds;
        j["messages"] = result.messages;
        j["mmsgs_per_s"] = rate;
        add_resources(j, result.usage, paper);
        // Processes stand for those of two nodes, as in the paper.
        const std::uint32_t nodes = team.size() % 2 == 0 ? 2 : 1;
        j.update(predicted_fields("stencil", c.category, nodes, team.size() / nodes, s.threads));
        j["result"] = verdict(result.wrong);
        print_line(j);
    }
    if (team.rank() != 0 || common.json) return status;
    print_heading(info,
                  "5-point stencil, " + std::to_string(wanted.rows) + " x " +
                      std::to_string(wanted.columns) + ", " + std::to_string(wanted.iterations) +
                      " iterations, " + std::to_string(team.size()) + " processes of " +
                      std::to_string(wanted.threads) + " threads; medians of " +
                      std::to_string(wanted.repetitions),
                  pins);
    std::printf("%s\nResources are those of each process. %s\n", table.text().c_str(),
                kResourcesNote);
    return status;
}

void add_common(CLI::App& command, Common& common, std::string& device, int& repetitions,
                std::uint32_t& depth) {
    common.selection.add_category(command);
    common.selection.add_path(command);
    command.add_option("--depth", depth, "of a send queue")->check(CLI::Range(1, 32768));
    command.add_option("--repetitions", repetitions, "after one to warm up; the median counts")
        ->check(CLI::Range(1, 10000));
    command.add_option("--device", device, "default: the first with an active port");
    command
        .add_option("--patience", common.patience,
                    "seconds that a process waits for another, and a repetition may take")
        ->check(CLI::Range(0.1, 1e6));
    command.add_option("--exchange", common.team.exchange,
                       "directory where processes that mpiexec has started meet (default: one "
                       "below $TMPDIR, by the job)");
    command.add_flag("--json", common.json, "a JSON line for each configuration");
}

std::vector<bench::PostMode> parse_posting(const std::string& text) {
    if (text == "both") return {bench::PostMode::kConservative, bench::PostMode::kBatched};
    return {text == "batched" ? bench::PostMode::kBatched : bench::PostMode::kConservative};
}

// "100x200"
void parse_grid(const std::string& text, bench::Stencil& stencil) {
    char rest = 0;
    unsigned rows = 0, columns = 0;
    constexpr unsigned kMost = 1 << 16;
    if (std::sscanf(text.c_str(), "%ux%u%c", &rows, &columns, &rest) != 2 || rows == 0 ||
        columns == 0 || rows > kMost || columns > kMost)
        throw CLI::ValidationError("--grid " + text + ": ROWSxCOLUMNS, each from 1 to 65536");
    stencil.rows = rows;
    stencil.columns = columns;
}

}  // namespace

void add_kernel_commands(CLI::App& bench, int* status) {
    CLI::App* array = bench.add_subcommand(
        "global-array",
        "C = A B: threads of one process fetch tiles of A and B from another by RDMA read and put "
        "tiles of C by RDMA write (ICPADS'18). Starts both processes, or is one of two of mpiexec. "
        "Sizes are chosen for small machines.");
    static Common array_common;  // lives as long as the program
    static bench::GlobalArray global;
    static std::string posting = "conservative";
    array
        ->add_option("--posting", posting,
                     "conservative (the paper's): each message is posted alone and completes; "
                     "batched: a list for two tiles, with one completion, and C is written once; "
                     "or both")
        ->check(CLI::IsMember({"conservative", "batched", "both"}));
    array->add_option("--matrix", global.matrix, "rows and columns of each")
        ->check(CLI::Range(1, 16384));
    array->add_option("--tile", global.tile, "rows and columns of a tile; a row is a message")
        ->check(CLI::Range(1, 4096));
    array->add_option("--threads", global.threads, "of the process that computes")
        ->check(CLI::Range(1, 1024));
    add_common(*array, array_common, global.device, global.repetitions, global.depth);
    array->callback([status] {
        configurations(array_common);  // refused before processes are started
        array_common.team.processes = 2;
        array_common.team.any_size = false;
        array_common.team.patience = bench::Seconds(array_common.patience);
        *status = run_team(array_common.team, [](bench::Team& team) {
            return global_array(array_common, parse_posting(posting), global, team);
        });
    });

    CLI::App* grid = bench.add_subcommand(
        "stencil",
        "5-point stencil: columns divided among processes around a ring, rows among the threads of "
        "each; every element of a halo is an RDMA write (ICPADS'18). Starts the processes, or is "
        "one of those of mpiexec. Sizes are chosen for small machines.");
    static Common grid_common;
    static bench::Stencil parameters;
    static std::string size = "256x64";
    grid->add_option("--processes", grid_common.team.processes, "mpiexec's, if it started them")
        ->check(CLI::Range(1, 1024));
    grid->add_option("--threads", parameters.threads, "of each process")
        ->check(CLI::Range(1, 1024));
    grid->add_option("--grid", size, "ROWSxCOLUMNS, without the fixed rows above and below");
    grid->add_option("--iterations", parameters.iterations, "of a repetition")
        ->check(CLI::Range(1, 1 << 30));
    add_common(*grid, grid_common, parameters.device, parameters.repetitions, parameters.depth);
    grid->callback([status, grid] {
        configurations(grid_common);
        parse_grid(size, parameters);
        grid_common.team.any_size = grid->count("--processes") == 0;
        grid_common.team.patience = bench::Seconds(grid_common.patience);
        *status = run_team(grid_common.team, [](bench::Team& team) {
            return stencil(grid_common, parameters, team);
        });
    });
}

}  // namespace heddle::cli
