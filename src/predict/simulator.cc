// SPDX-License-Identifier: BSD-2-Clause
#include "predict/simulator.h"

#include <algorithm>
#include <limits>

#include "predict/simulation.h"

namespace heddle::predict {

std::string_view name(Resource resource) {
    switch (resource) {
        case Resource::kProcessor:
            return "the processor";
        case Resource::kQpLock:
            return "the QP's lock";
        case Resource::kCqLock:
            return "the CQ's lock";
        case Resource::kUuarLock:
            return "the uUAR's lock";
        case Resource::kEngine:
            return "a QP's engine";
        case Resource::kPayloadReads:
            return "payload reads";
        case Resource::kCacheLine:
            return "one cache line";
        case Resource::kLink:
            return "the link";
    }
    return "";
}

Resource Simulated::busiest() const {
    const auto most = std::ranges::max_element(utilization);
    return static_cast<Resource>(most - utilization.begin());
}

Simulated simulate(const Workload& workload, const Machine& machine, double horizon, double warm_up,
                   std::uint64_t seed) {
    return Simulation(workload, machine, horizon, warm_up, seed).run();
}

Simulated simulate(const Workload& workload, const Machine& machine) {
    constexpr double kMicrosecond = 1e3;
    if (workload.is_recorded())  // all of it counts, from its first post on
        return simulate(workload, machine, std::numeric_limits<double>::max(), -1);
    if (workload.rows != 0)
        return simulate(workload, machine, 2600 * kMicrosecond, 200 * kMicrosecond);
    constexpr double kWarmUp = 60 * kMicrosecond;
    const Simulated first = simulate(workload, machine, 400 * kMicrosecond, kWarmUp);
    const double completions = 200.0 * workload.signal_every, least = 5000;
    if (static_cast<double>(first.counts.messages) >= std::max(completions, least)) return first;
    const double wanted = std::max(220.0 * workload.signal_every, 6000.0) /
                          std::max(first.per_microsecond, 0.5) * kMicrosecond;
    return simulate(workload, machine, std::min(kWarmUp + wanted, 5000 * kMicrosecond), kWarmUp);
}

}  // namespace heddle::predict
