// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/predict_report.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/common/text.h"
#include "predict/fit.h"
#include "predict/likeness.h"
#include "predict/other_papers.h"
#include "predict/robustness.h"
#include "predict/validation.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;
using cli_common::fixed;
using predict::Point;
using predict::Prediction;
using predict::Score;
using predict::Spread;

const char* role_name(const Prediction& of) {
    switch (of.role) {
        case Prediction::Role::kFitted:
            return "fitted";
        case Prediction::Role::kSameAsFitted:
            return "same as a fitted one";
        case Prediction::Role::kUnseen:
            return of.is_hard ? "hard" : "unseen";
    }
    return "";
}

// The predictions of each figure in their order, and all of them under "all".
std::vector<std::pair<std::string, std::vector<const Prediction*>>> by_figure(
    const std::vector<Prediction>& all, bool only_hard) {
    std::vector<std::pair<std::string, std::vector<const Prediction*>>> figures;
    std::vector<const Prediction*> whole;
    for (const Prediction& each : all) {
        if (figures.empty() || figures.back().first != each.point->figure)
            figures.emplace_back(each.point->figure, std::vector<const Prediction*>());
        if (each.role != Prediction::Role::kUnseen || (only_hard && !each.is_hard)) continue;
        figures.back().second.push_back(&each);
        whole.push_back(&each);
    }
    figures.emplace_back("all", whole);
    return figures;
}

std::string in_percent(double share) { return fixed(100 * share, 1); }
std::string errors_text(const Spread& spread) {
    if (spread.count == 0) return "-";
    return in_percent(spread.mean) + " " + in_percent(spread.median) + " " +
           in_percent(spread.percentile_95);
}

Json to_json(const Prediction& of) {
    return {{"figure", of.point->figure},
            {"curve", of.point->curve},
            {"x", of.point->x},
            {"paper_mmsgs_per_s", of.point->paper},
            {"predicted_mmsgs_per_s", of.model},
            {"role", role_name(of)},
            {"null_constant", of.nulls[0]},
            {"null_free_sharing", of.nulls[1]},
            {"null_nearest", of.nulls[2]}};
}

void print_table(const std::vector<Prediction>& all, bool only_hard) {
    cli_common::TextTable table(
        {"figure", "points", "model", "rank", "constant", "free sharing", "nearest fitted"});
    for (const auto& [figure, its] : by_figure(all, only_hard)) {
        if (its.empty()) continue;
        const Score score = predict::score(its);
        table.add({figure, std::to_string(its.size()), errors_text(score.model),
                   its.size() < 3 ? "-" : fixed(score.rank, 2), errors_text(score.nulls[0]),
                   errors_text(score.nulls[1]), errors_text(score.nulls[2])});
    }
    std::printf("%s\n", table.text().c_str());
}

void print_points(const std::vector<Prediction>& all) {
    cli_common::TextTable table({"figure", "curve", "x", "paper", "predicted", "error", "role"});
    for (const Prediction& each : all)
        table.add({each.point->figure, each.point->curve, each.point->x,
                   fixed(each.point->paper, 1), fixed(each.model, 1),
                   (each.error() < 0 ? "-" : "+") + in_percent(std::abs(each.error())) + " %",
                   role_name(each)});
    std::printf("%s", table.text().c_str());
}

std::vector<Prediction> validated(const predict::MachineFile& machine,
                                  const std::vector<Point>& points) {
    return predict::validate(predict::revision(predict::kRevisions), machine.machine, points);
}

}  // namespace

void print_errors(const predict::MachineFile& machine, bool json) {
    const std::vector<Point> points = predict::paper_points();
    const std::vector<Prediction> all = validated(machine, points);
    if (json) {
        for (const bool only_hard : {false, true})
            for (const auto& [figure, its] : by_figure(all, only_hard)) {
                const Score score = predict::score(its);
                Json line{{"figure", figure},
                          {"points", only_hard ? "hard" : "unseen"},
                          {"count", score.model.count},
                          {"rank", score.rank}};
                const auto add = [&](const std::string& model, const Spread& spread) {
                    line[model] = {{"mean", spread.mean},
                                   {"median", spread.median},
                                   {"percentile_95", spread.percentile_95}};
                };
                add("model", score.model);
                add("null_constant", score.nulls[0]);
                add("null_free_sharing", score.nulls[1]);
                add("null_nearest", score.nulls[2]);
                std::printf("%s\n", line.dump().c_str());
            }
        return;
    }
    std::printf(
        "%s\nErrors in %%: mean, median, 95th percentile; rank correlation with the paper.\n"
        "Null models: a constant; n times one thread, as if sharing were free; the nearest\n"
        "fitted point of the curve.\n\n"
        "Points that fitted nothing:\n",
        machine.name.c_str());
    print_table(all, false);
    std::printf("The hard ones among them, where free sharing is off by more than 3 %%:\n");
    print_table(all, true);
    for (const char* figure : {"12", "14"})
        std::printf("Ratios to MPI everywhere in figure %s: %s\n", figure,
                    errors_text(predict::ratio_errors(all, figure)).c_str());
    std::printf("\n");
    print_points(all);
}

void print_figures(const predict::MachineFile& machine) {
    const std::vector<Point> points = predict::paper_points();
    for (const Prediction& each : validated(machine, points))
        std::printf("%s\n", to_json(each).dump().c_str());
}

void print_robustness(bool json) {
    const predict::Revision revision = predict::revision(predict::kRevisions);
    const std::vector<Point> points = predict::paper_points();
    const auto rows = predict::robustness(
        revision, predict::connectx4_haswell(), points, [](const std::string& done) {
            std::fprintf(stderr, "heddle predict: %s\n", done.c_str());
        });
    cli_common::TextTable table({"changed", "points", "mean", "median", "95th percentile", "rank"});
    for (const predict::RobustnessRow& row : rows) {
        if (json)
            std::printf("%s\n", Json{{"changed", row.changed},
                                     {"count", row.hard.count},
                                     {"mean", row.hard.mean},
                                     {"median", row.hard.median},
                                     {"percentile_95", row.hard.percentile_95},
                                     {"rank", row.rank}}
                                    .dump()
                                    .c_str());
        table.add({row.changed, std::to_string(row.hard.count), in_percent(row.hard.mean),
                   in_percent(row.hard.median), in_percent(row.hard.percentile_95),
                   fixed(row.rank, 3)});
    }
    if (!json) std::printf("Errors of the hard points in %%\n\n%s", table.text().c_str());
}

void print_other_papers(bool json) {
    cli_common::TextTable table({"channel", "bytes", "paper, uses", "predicted", "error", ""});
    for (const predict::BreakEven& each : predict::break_even_counts()) {
        if (json)
            std::printf("%s\n", Json{{"channel", each.channel},
                                     {"bytes", each.bytes},
                                     {"paper_uses", each.paper},
                                     {"predicted_uses", each.predicted},
                                     {"role", each.is_fitted ? "fitted" : "unseen"}}
                                    .dump()
                                    .c_str());
        table.add({each.channel, std::to_string(each.bytes), fixed(each.paper, 0),
                   fixed(each.predicted, 0),
                   (each.error() < 0 ? "-" : "+") + in_percent(std::abs(each.error())) + " %",
                   each.is_fitted ? "fitted" : ""});
    }
    if (json) return;
    std::printf(
        "Uses of a buffer until registering it pays, by a line through 1/n at 1 and 8 KiB:\n"
        "predicted, not measured\n\n%s\nOne-sided messages do not follow it.\n",
        table.text().c_str());
}

void print_fit(std::uint32_t number) {
    const predict::Revision revision = predict::revision(number);
    const std::vector<Point> points = predict::paper_points();
    predict::MachineFile file = predict::fit(revision, points, [](const std::string& line) {
        std::fprintf(stderr, "heddle predict: %s\n", line.c_str());
    });
    file.intervals =
        predict::intervals_of(predict::validate(revision, file.machine, points), file.machine);
    std::printf("%s", predict::to_toml(file).c_str());
}

}  // namespace heddle::cli
