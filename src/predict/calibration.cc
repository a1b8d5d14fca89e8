// SPDX-License-Identifier: BSD-2-Clause
#include "predict/calibration.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "experiments/common/measure.h"
#include "experiments/figures.h"
#include "heddle/detail/assert.h"
#include "predict/fit.h"
#include "predict/likeness.h"
#include "predict/micro_costs.h"
#include "predict/validation.h"

namespace heddle::predict {
namespace {

constexpr const char* kFigures[] = {"3", "5", "7", "9", "10", "11"};
// One message, and two behind one doorbell, before the next is posted: what latencies are fitted
// on.
constexpr const char* kAlone = "a message at a time";
constexpr const char* kLatency = "latency";  // in place of a figure
constexpr const char* kHere = "measured here";

double measured(const bench::MessageRate& rate, int repetitions, bench::Team& team) {
    bench::MessageRateRun run(rate, team);
    run.warm_up();
    std::vector<double> rates;
    for (int i = 0; i < repetitions; ++i)
        rates.push_back(run.repeat().per_second);
    return bench::median(rates);
}

bench::MessageRate alone(const bench::MessageRate& base, std::uint32_t together) {
    bench::MessageRate rate = base;
    rate.threads = 1;
    rate.sharing = {};
    rate.post_list = rate.signal_every = rate.depth = together;
    return rate;
}

std::vector<Point> measured_points(const CalibrationRequest& request, bench::Team& team,
                                   const std::function<void(const std::string&)>& progress) {
    std::vector<Point> points;
    const auto add = [&](const PointName& name, bench::MessageRate rate) {
        rate.path = request.base.path;
        rate.processors = request.base.processors;
        rate.processors.resize(std::min<std::size_t>(rate.processors.size(), rate.threads));
        Point point = point_of(rate);
        point.figure = name.figure;
        point.curve = name.curve;
        point.x = name.x;
        point.paper = measured(rate, request.repetitions, team);
        points.push_back(std::move(point));
    };
    progress("a message at a time");
    for (const std::uint32_t together : {1u, 2u})
        add({kLatency, kAlone, std::to_string(together)}, alone(request.base, together));
    bench::MessageRate base = request.base;
    base.threads = request.threads;
    for (const char* name : kFigures) {
        progress(std::string("figure ") + name);
        for (const bench::FigurePoint& each : bench::figure(name, base).points)
            add({name, each.series, std::to_string(each.x)}, each.rate);
    }
    return points;
}

// Values that are known without a fit, or cannot be had here.
void set(Revision& revision, const char* name, double value, const std::string& source) {
    const Parameter* const parameter = find_parameter(name);
    HEDDLE_ASSERT(parameter != nullptr, "the model has this parameter");
    revision.machine.machine.*parameter->value = std::max<double>(value, parameter->least);
    revision.machine.origins[name] = {source, 0, std::max(2 * value, 1e4)};
}

bool has(const std::vector<Point>& points, const PointName& name) {
    return std::ranges::any_of(points, [&](const Point& each) { return each.name() == name; });
}

// The last revision, with the points that were measured here.
Revision revision_here(const CalibrationRequest& request, const std::vector<Point>& points) {
    Revision here = revision(kRevisions);
    const MachineFile& paper = connectx4_haswell();
    here.machine.name = request.name;
    here.machine.threads = request.threads;
    here.machine.is_measured = true;
    const std::vector<FitStep> steps = std::exchange(here.steps, {});
    for (const FitStep& step : steps) {
        if (std::ranges::all_of(step.points, [&](const PointName& p) { return has(points, p); })) {
            here.steps.push_back(step);
            here.steps.back().high *= 4;  // slower adapters than the paper's
            here.steps.back().low = 0;
            continue;
        }
        for (const std::string& name : step.parameters)
            set(here, name.c_str(), paper.machine.*find_parameter(name)->value,
                "not measured here: that of " + paper.name);
    }
    const auto latency = [&](const char* name, const char* together) {
        here.machine.origins.erase(name);
        here.steps.push_back({{name}, {{kLatency, kAlone, together}}, 0, 20000});
    };
    latency("completion_latency", "1");
    latency("dma_latency", "2");
    const MicroCosts micro = micro_costs(request.threads);
    set(here, "atomic", micro.atomic, kHere);
    if (request.threads > 1) {
        set(here, "line_transfer", micro.line_transfer, kHere);
        const auto fitted = std::ranges::any_of(
            here.steps, [](const FitStep& step) { return step.parameters.front() == "barrier"; });
        if (!fitted) set(here, "barrier", micro.barrier, kHere);
    }
    return here;
}

}  // namespace

MachineFile calibrate_machine(const CalibrationRequest& request, bench::Team& team,
                              const std::function<void(const std::string&)>& progress) {
    HEDDLE_ASSERT(request.threads != 0 && request.repetitions > 0, "something is measured");
    const std::vector<Point> points = measured_points(request, team, progress);
    const Revision here = revision_here(request, points);
    MachineFile file = fit(here, points, progress);
    file.intervals = intervals_of(compare(here, file.machine, points), file.machine);
    return file;
}

}  // namespace heddle::predict
