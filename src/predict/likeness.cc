// SPDX-License-Identifier: BSD-2-Clause
#include "predict/likeness.h"

#include <algorithm>
#include <cmath>

#include "heddle/detail/assert.h"

namespace heddle::predict {
namespace {

constexpr std::size_t kLeast = 5;
constexpr double kTail = 0.1;  // of the points, beyond each end of an interval

std::string contended(const Workload& workload) {
    std::map<std::uint32_t, std::uint32_t> qps, cqs;
    bool page = false;
    for (const ThreadPlan& plan : workload.threads) {
        ++cqs[plan.cq];
        for (const QueueUse& use : plan.queues) {
            ++qps[use.qp];
            page = page || use.uuar_lock || use.blueflame_extra > 0;
        }
    }
    const auto shared = [](const auto& users) {
        return std::ranges::any_of(users, [](const auto& each) { return each.second > 1; });
    };
    if (shared(qps)) return "qp";
    if (shared(cqs)) return "cq";
    if (!workload.inlined) return "payload";
    return page && (workload.post_list == 1 || workload.is_recorded()) ? "page" : "alone";
}

MachineFile::Interval interval_of(std::vector<double> ratios) {
    HEDDLE_ASSERT(!ratios.empty(), "an interval has points");
    std::ranges::sort(ratios);
    const auto beyond = static_cast<std::size_t>(kTail * static_cast<double>(ratios.size()));
    return {ratios[beyond], ratios[ratios.size() - 1 - beyond],
            static_cast<std::uint32_t>(ratios.size())};
}

}  // namespace

std::string kind_of(const Workload& workload) {
    return (workload.rows != 0 || workload.is_recorded() ? "kernel-" : "") + contended(workload);
}

std::map<std::string, MachineFile::Interval, std::less<>> intervals_of(
    const std::vector<Prediction>& predictions, const Machine& machine) {
    std::map<std::string, std::vector<double>> ratios;
    for (const Prediction& each : predictions) {
        if (each.role != Prediction::Role::kUnseen) continue;
        const double ratio = each.point->paper / each.model;
        ratios[kind_of(workload_of(*each.point, machine))].push_back(ratio);
        ratios["all"].push_back(ratio);
    }
    for (const Ratio& each : ratios_to_everywhere(predictions))
        if (each.of->role == Prediction::Role::kUnseen)
            ratios[std::string(kRatioKind)].push_back(each.paper / each.model);
    std::map<std::string, MachineFile::Interval, std::less<>> intervals;
    for (const auto& [kind, its] : ratios)
        if (its.size() >= kLeast) intervals.emplace(kind, interval_of(its));
    return intervals;
}

const MachineFile::Interval* interval_for(const MachineFile& file, const Workload& workload) {
    for (const std::string& kind : {kind_of(workload), contended(workload), std::string("all")}) {
        const auto found = file.intervals.find(kind);
        if (found != file.intervals.end()) return &found->second;
    }
    return nullptr;
}

}  // namespace heddle::predict
