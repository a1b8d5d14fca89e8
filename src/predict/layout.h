// SPDX-License-Identifier: BSD-2-Clause
// Where queue pairs are: on which uUARs and pages, and whose locks are taken. mlx5's static kernel
// and its thread domains, as libheddle makes them.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/category.h"
#include "predict/machine.h"
#include "predict/workload.h"

namespace heddle::predict {

struct Layout {
    Sharing sharing;
    std::uint32_t processes = 1;       // of the node, alike
    std::uint32_t threads = 1;         // of a process
    std::uint32_t qps_per_thread = 1;  // made side by side: all threads' first ones, then the next
};

// The threads of all processes. Sharing has to divide the threads.
std::vector<ThreadPlan> place(const Machine& machine, const Layout& layout);

}  // namespace heddle::predict
