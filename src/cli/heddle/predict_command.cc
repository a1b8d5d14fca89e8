// SPDX-License-Identifier: BSD-2-Clause
// heddle predict: what the timing model says of endpoints on a real adapter, where nothing can be
// measured. predict_report.h prints what the model gets right and wrong.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/common/text.h"
#include "cli/heddle/bench_report.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/predict_kernels.h"
#include "cli/heddle/predict_record.h"
#include "cli/heddle/predict_report.h"
#include "cli/heddle/selection.h"
#include "predict/bounds.h"
#include "predict/machine_file.h"
#include "predict/prediction.h"
#include "predict/record.h"
#include "predict/revision.h"

namespace heddle::cli {
namespace {

using cli_common::fixed;
using predict::Answer;
using predict::MachineFile;
using predict::Question;

struct PredictRequest {
    Selection selection;
    std::vector<std::uint32_t> threads = {1, 2, 4, 8, 16};
    std::string kernel = "message-rate";
    Question question;
    std::string machine;
    std::vector<std::string> records;
    bool no_inline = false, json = false;
    bool bounds = false, errors = false, robustness = false, figures = false, other_papers = false;
    std::uint32_t fit = 0;
};

struct Row {
    std::string label;
    Question question;
};
struct PredictedRow : Row {
    Answer answer;
};

std::vector<Row> rows_of(const PredictRequest& request) {
    std::vector<Row> rows;
    const auto add = [&](const std::string& label, const Sharing& sharing, std::uint32_t threads) {
        Row row{label, request.question};
        row.question.layout.sharing = sharing;
        row.question.layout.threads = threads;
        row.question.inlined = !request.no_inline;
        predict::apply_kernel(request.kernel, row.question);
        rows.push_back(std::move(row));
    };
    for (const std::uint32_t threads : request.threads) {
        for (const Category category : request.selection.categories()) {
            Sharing sharing = sharing_of(category, threads);
            request.selection.apply_shares(sharing);
            std::string label(name(category));
            for (const std::string& share : request.selection.shares)
                label += " " + share;
            add(label, sharing, threads);
        }
    }
    return rows;
}

std::vector<PredictedRow> predicted(const std::vector<Row>& rows, const MachineFile& machine) {
    std::vector<PredictedRow> all;
    for (const Row& row : rows)
        all.push_back({row, predict::predict(row.question, machine)});
    return all;
}

Json to_json(const PredictedRow& row, const MachineFile& machine) {
    const Answer& a = row.answer;
    return {{"predicted_for", machine.name},
            {"sharing", row.label},
            {"threads", row.question.layout.threads},
            {"processes", row.question.layout.processes},
            {"qps_per_thread", row.question.layout.qps_per_thread},
            {"post_list", row.question.post_list},
            {"signal_every", row.question.signal_every},
            {"depth", row.question.depth},
            {"inline", row.question.inlined},
            {"bytes", row.question.bytes},
            {"predicted_mmsgs_per_s", a.per_microsecond},
            {"low", json_or_null(a.low)},
            {"high", json_or_null(a.high)},
            {"limited_by", predict::name(a.limit)},
            {"in_use", a.limit_share},
            {"warnings", a.warnings}};
}

// "from 93 to 98", or "-" for a machine that was never validated.
std::string interval_text(const Answer& answer) {
    if (!answer.low || !answer.high) return "-";
    return fixed(*answer.low, 1) + " to " + fixed(*answer.high, 1);
}

void print(const PredictRequest& request, const std::vector<PredictedRow>& rows,
           const MachineFile& machine) {
    const Question& q = rows.front().question;
    std::printf("%s\n%s: %u process%s, lists of %u, a completion every %u, depth %u, %s\n\n",
                (std::string(machine.is_measured ? "Predicted by measured costs: "
                                                 : "Predicted, not measured: ") +
                 machine.name)
                    .c_str(),
                request.kernel.c_str(), q.layout.processes, q.layout.processes == 1 ? "" : "es",
                q.post_list, q.signal_every, q.depth, q.inlined ? "inlined" : "fetched payload");
    cli_common::TextTable table(
        {"sharing", "threads", "M messages/s", "8 of 10 within", "limited by", "in use"});
    std::vector<std::string> warnings;
    for (const PredictedRow& row : rows) {
        const Answer& a = row.answer;
        const bool is_beyond = !a.warnings.empty();
        table.add({row.label, std::to_string(row.question.layout.threads),
                   fixed(a.per_microsecond, 1) + (is_beyond ? " ?" : ""), interval_text(a),
                   std::string(predict::name(a.limit)), fixed(100 * a.limit_share, 0) + " %"});
        for (const std::string& warning : a.warnings)
            if (std::ranges::find(warnings, warning) == warnings.end()) warnings.push_back(warning);
    }
    std::printf("%s\n", table.text().c_str());
    for (const std::string& warning : warnings)
        std::fputs(cli_common::wrapped("? " + warning + ".", 0).c_str(), stdout);
    std::fputs(cli_common::wrapped("What a rate is limited by is what is in use for most of the "
                                   "time. `heddle predict --errors` says how far off the model is, "
                                   "figure by figure.",
                                   0)
                   .c_str(),
               stdout);
}

// By counts alone, the lowest bound first.
void print_bounds(const std::vector<Row>& rows, const MachineFile& machine, bool json) {
    cli_common::TextTable table({"sharing", "threads", "at most", "by", "then", "by"});
    for (const Row& row : rows) {
        const auto all =
            predict::bounds(predict::workload_of(row.question, machine.machine), machine.machine);
        const std::string threads = std::to_string(row.question.layout.threads);
        if (json) {
            Json by = Json::object();
            for (const predict::Bound& bound : all)
                by[std::string(predict::name(bound.resource))] = bound.per_microsecond;
            std::printf("%s\n", Json{{"predicted_for", machine.name},
                                     {"sharing", row.label},
                                     {"threads", row.question.layout.threads},
                                     {"at_most_mmsgs_per_s", by}}
                                    .dump()
                                    .c_str());
        }
        std::vector<std::string> cells{row.label, threads};
        for (std::size_t i = 0; i < 2; ++i) {
            cells.push_back(i < all.size() ? fixed(all[i].per_microsecond, 1) : "-");
            cells.push_back(i < all.size() ? std::string(predict::name(all[i].resource)) : "-");
        }
        table.add(cells);
    }
    if (json) return;
    std::printf(
        "Not measured: %s\nMost M messages/s that each resource allows, by counts "
        "alone:\nnobody waits for a lock or for a completion\n\n%s",
        machine.name.c_str(), table.text().c_str());
}

void answer(const PredictRequest& request) {
    const MachineFile machine = machine_of(request.machine);
    if (request.fit != 0) return print_fit(request.fit);
    if (request.errors) return print_errors(machine, request.json);
    if (request.figures) return print_figures(machine);
    if (request.other_papers) return print_other_papers(request.json);
    if (request.robustness) return print_robustness(request.json);
    if (!request.records.empty())
        return print_record(request.records, request.selection.categories(), machine, request.json);
    if (request.bounds) return print_bounds(rows_of(request), machine, request.json);
    const std::vector<PredictedRow> rows = predicted(rows_of(request), machine);
    if (!request.json) return print(request, rows, machine);
    for (const PredictedRow& row : rows)
        std::printf("%s\n", to_json(row, machine).dump().c_str());
}

}  // namespace

void add_predict_command(CLI::App& app, int* status) {
    CLI::App* command = app.add_subcommand(
        "predict", "What endpoints would do on a real adapter, by a model fitted on measured ones");
    auto* request = new PredictRequest;  // lives as long as the program
    Question& question = request->question;
    request->selection.add_category(*command);
    request->selection.add_share(*command);
    command->add_option("--threads", request->threads, "of a process; several: a row for each")
        ->delimiter(',')
        ->check(CLI::Range(1, 4096));
    add_kernel_option(*command, request->kernel);
    command->add_option("--processes", question.layout.processes, "of the node, alike")
        ->check(CLI::Range(1, 256));
    command->add_option("--post-list", question.post_list, "requests to a doorbell")
        ->check(CLI::Range(1, 1024));
    command->add_option("--signal-every", question.signal_every, "requests to a completion")
        ->check(CLI::Range(1, 32768));
    command->add_option("--depth", question.depth, "of the send queue")
        ->check(CLI::Range(1, 32768));
    command->add_option("--bytes", question.bytes, "of a message")->check(CLI::Range(1, 1 << 20));
    command->add_flag("--no-inline", request->no_inline, "the adapter fetches the payload");
    add_machine_option(*command, request->machine);
    command->add_option("--record", request->records,
                        "replays what `softhca run --record` wrote; several: processes of a job");
    command->add_flag("--bounds", request->bounds,
                      "what each resource allows at most, by counts alone");
    command->add_flag("--errors", request->errors,
                      "how far off the model is at each point of the paper");
    command->add_flag("--figures", request->figures,
                      "each point of the paper's figures as a JSON line");
    command->add_flag("--other-papers", request->other_papers,
                      "what can be predicted of the other papers: when registering a buffer pays");
    command->add_flag("--robustness", request->robustness,
                      "errors with other values, other points, without each mechanism (a minute)");
    command->add_option("--fit", request->fit, "fits a revision anew; prints its machine file")
        ->check(CLI::Range(1, static_cast<int>(predict::kRevisions)))
        ->default_str("");
    command->add_flag("--json", request->json, "a JSON line for each row");
    command->callback([request, status] {
        const auto failed = [&](const std::exception& error) {
            std::fprintf(stderr, "heddle predict: %s\n", error.what());
            *status = kFailed;
        };
        try {
            answer(*request);
        } catch (const std::invalid_argument& error) {
            throw CLI::ValidationError(error.what());
        } catch (const predict::MachineFileError& error) {
            failed(error);
        } catch (const predict::RecordError& error) {
            failed(error);
        }
    });
}

}  // namespace heddle::cli
