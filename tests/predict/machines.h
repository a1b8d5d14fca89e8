// SPDX-License-Identifier: BSD-2-Clause
// Machines and workloads whose rate can be computed by hand.
#pragma once

#include <cstdint>

#include "predict/machine.h"
#include "predict/machine_file.h"
#include "predict/workload.h"

namespace heddle::predict {

// On which nothing takes time but a doorbell and a look at a CQ, 1 ns each. Queue pairs never crowd
// a page.
inline Machine free_machine() {
    Machine machine;
    machine.post_call = machine.empty_poll = 1;
    machine.fetch_group = 8;
    machine.crowd = machine.crowded_node = machine.crowd_of_full_node = 1e6;
    return machine;
}

// `threads` with a queue pair and a completion queue each.
inline Workload independent(std::uint32_t threads) {
    Workload work;
    for (std::uint32_t i = 0; i < threads; ++i) {
        ThreadPlan plan;
        plan.queues.push_back({i, i, 0, std::nullopt, false});
        plan.cq = plan.payload_line = i;
        work.threads.push_back(plan);
    }
    return work;
}

}  // namespace heddle::predict
