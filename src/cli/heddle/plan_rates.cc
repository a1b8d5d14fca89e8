// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/plan_rates.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "cli/common/text.h"
#include "cli/heddle/bench_report.h"
#include "cli/heddle/predict_kernels.h"
#include "heddle/detail/assert.h"
#include "predict/likeness.h"
#include "predict/machine_file.h"
#include "predict/prediction.h"

namespace heddle::cli {
namespace {

using cli_common::fixed;

constexpr std::uint64_t kMostSimulated = 1024;

std::string in_percents(double share) { return fixed(100 * share, 0) + " %"; }

std::string within(const PredictedGain& gain) {
    if (!gain.low || !gain.high) return "-";
    return fixed(100 * *gain.low, 0) + " to " + fixed(100 * *gain.high, 0);
}

// The one with the fewest UARs that keeps enough; of equals the fastest.
void recommend(PlanRates& rates, std::uint32_t at_least) {
    const PredictedGain* best = nullptr;
    for (const PredictedGain& gain : rates.gains) {
        if (!gain.fits || gain.share < at_least / 100.0) continue;
        const bool cheaper =
            best == nullptr || gain.uars.value_or(1) < best->uars.value_or(1) ||
            (gain.uars.value_or(1) == best->uars.value_or(1) && gain.share > best->share);
        if (cheaper) best = &gain;
    }
    if (best == nullptr) {
        rates.recommendation = "No category that fits keeps " + std::to_string(at_least) +
                               " % of the rate of mpi-everywhere.";
        return;
    }
    rates.recommended = best->category;
    rates.recommendation =
        "Recommended: " + std::string(name(best->category)) + ", " + in_percents(best->share) +
        (best->low ? " (" + within(*best) + ")" : std::string()) + " of mpi-everywhere" +
        (best->uars ? " for " + in_percents(*best->uars) + " of its UARs" : "") + ".";
}

}  // namespace

PlanRates predict_rates(const RatesRequest& request, const std::vector<MadeCategory>& made,
                        std::uint32_t threads, std::uint32_t processes,
                        std::uint32_t qps_per_thread, std::uint32_t depth) {
    if (std::uint64_t{threads} * processes > kMostSimulated)
        throw std::invalid_argument(
            "--rates: " + std::to_string(std::uint64_t{threads} * processes) +
            " threads; the model is for at most " + std::to_string(kMostSimulated));
    const predict::MachineFile machine = machine_of(request.machine);
    const auto answer_for = [&](Category category) {
        predict::Question question;
        question.layout = {sharing_of(category, threads), processes, threads, qps_per_thread};
        question.depth = depth;
        predict::apply_kernel(request.kernel, question);
        return predict::predict(question, machine);
    };
    const predict::Answer everywhere = answer_for(Category::kMpiEverywhere);
    const auto its = std::ranges::find(made, Category::kMpiEverywhere, &MadeCategory::category);
    const double most = its != made.end() ? its->uars.value_or(0) : 0;
    const auto ratios = machine.intervals.find(predict::kRatioKind);
    PlanRates rates{machine.name, request.kernel, {}, everywhere.warnings, "", std::nullopt};
    for (const MadeCategory& each : made) {
        const predict::Answer answer =
            each.made_as == Category::kMpiEverywhere ? everywhere : answer_for(each.made_as);
        PredictedGain gain{each.category,
                           answer.per_microsecond,
                           answer.per_microsecond / everywhere.per_microsecond,
                           std::nullopt,
                           std::nullopt,
                           std::string(predict::name(answer.limit)),
                           std::nullopt,
                           each.fits};
        if (ratios != machine.intervals.end() && each.made_as != Category::kMpiEverywhere) {
            gain.low = gain.share * ratios->second.low;
            gain.high = gain.share * ratios->second.high;
        }
        if (each.uars && most != 0) gain.uars = *each.uars / most;
        rates.gains.push_back(std::move(gain));
    }
    HEDDLE_ASSERT(rates.gains.size() == made.size(), "each category has a rate");
    recommend(rates, request.at_least);
    return rates;
}

void print(const PlanRates& rates) {
    std::printf("\nPredicted, not measured: %s, %s\n\n", rates.machine.c_str(),
                rates.kernel.c_str());
    cli_common::TextTable table({"category", "M messages/s", "% of mpi-everywhere",
                                 "8 of 10 within", "% of its UARs", "limited by"});
    for (const PredictedGain& gain : rates.gains)
        table.add({std::string(name(gain.category)), fixed(gain.per_microsecond, 1),
                   fixed(100 * gain.share, 0), within(gain),
                   gain.uars ? fixed(100 * *gain.uars, 0) : "-", gain.limit});
    std::printf("%s\n", table.text().c_str());
    for (const std::string& warning : rates.warnings)
        std::fputs(cli_common::wrapped("? " + warning + ".", 0).c_str(), stdout);
    std::printf("%s\n", rates.recommendation.c_str());
}

nlohmann::ordered_json to_json(const PlanRates& rates) {
    Json gains = Json::array();
    for (const PredictedGain& gain : rates.gains)
        gains.push_back({{"category", name(gain.category)},
                         {"predicted_mmsgs_per_s", gain.per_microsecond},
                         {"of_mpi_everywhere", gain.share},
                         {"low", json_or_null(gain.low)},
                         {"high", json_or_null(gain.high)},
                         {"uars_of_mpi_everywhere", json_or_null(gain.uars)},
                         {"limited_by", gain.limit}});
    return {{"predicted_for", rates.machine},
            {"kernel", rates.kernel},
            {"categories", gains},
            {"warnings", rates.warnings},
            {"recommended", rates.recommended ? Json(name(*rates.recommended)) : Json(nullptr)}};
}

}  // namespace heddle::cli
