// SPDX-License-Identifier: BSD-2-Clause
// What the counts of a workload alone say about its rate: no resource can be used for longer than
// the time that there is. Contention, latency and waiting are left out, so the rate is at most
// this.
#pragma once

#include <vector>

#include "predict/machine.h"
#include "predict/simulator.h"
#include "predict/workload.h"

namespace heddle::predict {

struct Bound {
    Resource resource;
    double per_microsecond;  // messages of all threads
};

// The lowest first. Resources that the workload does not use, or that cost nothing, have none.
std::vector<Bound> bounds(const Workload& workload, const Machine& machine);

}  // namespace heddle::predict
