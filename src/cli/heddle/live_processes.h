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
    // RNR NAKs that its peers, or it, had to wait after: of the process on the software HCA, of all
    // that use the port on an adapter (its counter out_of_buffer); nullopt: nobody counts them.
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
    unsigned other_versions = 0;            // that another version of heddle shows itself of
};

// Of all of the user's processes, or of `only` these. Reads /proc.
Running running_processes(const std::vector<int>& only);

}  // namespace heddle::cli
