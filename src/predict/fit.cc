// SPDX-License-Identifier: BSD-2-Clause
#include "predict/fit.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace heddle::predict {
namespace {

constexpr int kHalvings = 14;  // of the range of a value: less than the simulation's noise is left

const Point& find(const std::vector<Point>& points, const PointName& name) {
    const auto found =
        std::ranges::find_if(points, [&](const Point& each) { return each.name() == name; });
    if (found == points.end())
        throw MachineFileError("figure " + name.figure + " has no point '" + name.curve + "' at " +
                               name.x);
    return *found;
}

// Above 0: the model is too fast at these points, on balance.
double excess(const std::vector<const Point*>& points, const Machine& machine) {
    double sum = 0;
    for (const Point* each : points)
        sum += std::log(predicted(*each, machine) / each->paper);
    return sum;
}

std::string source_of(const FitStep& step) {
    std::string text = "fitted on ";
    for (std::size_t i = 0; i < step.points.size(); ++i) {
        const PointName& point = step.points[i];
        const bool is_figure = point.figure.find_first_of("0123456789") == 0;
        text += (i == 0 ? "" : " and ") + std::string(is_figure ? "figure " : "") + point.figure +
                ", " + point.curve + ", " + point.x;
    }
    return text;
}

// With less than that a simulation would stand still, however fast the machine that was measured.
double least_of(const FitStep& step) {
    double least = step.low;
    for (const std::string& name : step.parameters)
        least = std::max<double>(least, find_parameter(name)->least);
    return least;
}

}  // namespace

MachineFile fit(const Revision& revision, const std::vector<Point>& points,
                const FitProgress& progress) {
    MachineFile file = revision.machine;
    for (const FitStep& step : revision.steps)
        for (const std::string& name : step.parameters)
            file.origins[name] = {source_of(step), least_of(step), step.high};
    const auto set = [&](const FitStep& step, double value) {
        for (const std::string& name : step.parameters)
            file.machine.*find_parameter(name)->value = value;
    };
    for (std::uint32_t pass = 0; pass < revision.passes; ++pass)
        for (const FitStep& step : revision.steps) {
            std::vector<const Point*> its;
            for (const PointName& name : step.points)
                its.push_back(&find(points, name));
            double low = least_of(step), high = step.high;
            for (int i = 0; i < kHalvings; ++i) {  // rates fall as costs rise
                const double middle = (low + high) / 2;
                set(step, middle);
                (excess(its, file.machine) > 0 ? low : high) = middle;
            }
            set(step, (low + high) / 2);
            if (!progress) continue;
            char value[32];
            std::snprintf(value, sizeof(value), " %.1f ns", (low + high) / 2);
            std::string names;
            for (const std::string& name : step.parameters)
                names += (names.empty() ? "" : ", ") + name;
            progress(names + value + ", " + source_of(step));
        }
    return file;
}

}  // namespace heddle::predict
