// SPDX-License-Identifier: BSD-2-Clause
// The processes of this user that run over heddle now, and what they show of themselves
// (provider/live_format.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "provider/live_format.h"

namespace heddle::cli {

struct RunningProcess {
    int pid = 0;
    std::string command;
    provider::LiveProcess live;
    // RNR NAKs. On the software HCA: those of this process; on an adapter: those of all processes
    // that use the port (its counter out_of_buffer); nullopt: there is no such counter.
    std::optional<std::uint64_t> rnr;
    bool rnr_of_port = false;
};

// One that was asked for by number and cannot be shown.
struct AbsentProcess {
    int pid = 0;
    std::string why;        // "does not run over heddle"
    bool readable = false;  // it may come to run over heddle; else it will not be seen
};

struct Running {
    std::vector<RunningProcess> processes;  // by number
    std::vector<AbsentProcess> absent;      // of those asked for, in their order
    unsigned other_versions = 0;            // processes that run another version of heddle
};

// Looks at all processes of the user, or at `only` these. Reads /proc.
Running running_processes(const std::vector<int>& only);

}  // namespace heddle::cli
