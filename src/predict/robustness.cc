// SPDX-License-Identifier: BSD-2-Clause
#include "predict/robustness.h"

#include <algorithm>
#include <set>

namespace heddle::predict {
namespace {

std::vector<const Prediction*> hard_ones(const std::vector<Prediction>& all) {
    std::vector<const Prediction*> hard;
    for (const Prediction& each : all)
        if (each.is_hard) hard.push_back(&each);
    return hard;
}

}  // namespace

std::vector<RobustnessRow> robustness(const Revision& revision, const MachineFile& fitted,
                                      const std::vector<Point>& points,
                                      const FitProgress& progress) {
    std::vector<RobustnessRow> rows;
    const auto add = [&](const std::string& changed, const Revision& by, const Machine& machine) {
        const std::vector<Prediction> all = validate(by, machine, points);
        const Score of_hard = score(hard_ones(all));
        rows.push_back({changed, of_hard.model, of_hard.rank});
        if (progress) progress(changed);
    };
    add("nothing", revision, fitted.machine);
    std::set<std::string, std::less<>> in_fit;
    for (const FitStep& step : revision.steps)
        in_fit.insert(step.parameters.begin(), step.parameters.end());
    for (const Parameter& parameter : kParameters) {
        if (in_fit.contains(parameter.name)) continue;
        for (const auto& [factor, word] : {std::pair{0.5, " halved"}, std::pair{2.0, " doubled"}}) {
            Machine machine = fitted.machine;
            machine.*parameter.value *= factor;
            add(std::string(parameter.name) + word, revision, machine);
        }
    }
    const auto without = [&](const std::string& mechanism,
                             std::initializer_list<double Machine::*> values) {
        Machine machine = fitted.machine;
        for (double Machine::*value : values)
            machine.*value = 0;
        add("without " + mechanism, revision, machine);
    };
    without("the wait for other spinning threads",
            {&Machine::cq_lock_waiter, &Machine::qp_lock_waiter});
    without("costs of passing a lock",
            {&Machine::lock_transfer, &Machine::cq_lock_waiter, &Machine::qp_lock_waiter});
    Machine own = fitted.machine;
    own.other_completion = own.own_completion;
    add("without costs of other threads' completions", revision, own);
    without("penalties of placement",
            {&Machine::crowded_context, &Machine::shared_page, &Machine::crowded_and_shared});
    without("the order of reads of one line", {&Machine::same_line});
    without("units that fetch payloads", {&Machine::fetch_unit});
    without("barriers and a kernel's own costs", {&Machine::barrier, &Machine::kernel_message});
    if (revision.number == kRevisions) {
        const Revision other = other_points();
        add("fitted on other points", other, fit(other, points).machine);
    }
    return rows;
}

}  // namespace heddle::predict
