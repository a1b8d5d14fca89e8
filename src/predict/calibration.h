// SPDX-License-Identifier: BSD-2-Clause
// A machine file of this host and its adapter: the values that fitted the paper's points are fitted
// on the same experiments as they run here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "experiments/message_rate.h"
#include "predict/machine_file.h"

namespace heddle::bench {
class Team;
}

namespace heddle::predict {

struct CalibrationRequest {
    bench::MessageRate base;    // device, path, and how long a repetition is
    std::uint32_t threads = 1;  // at most; more processors than threads
    int repetitions = 5;        // the median counts
    std::string name;           // of the machine
};

// For rank 0 of bench::run_with_rate_peer(). Measures the sweeps of figures 3, 5, 7, 9, 10 and 11,
// and fits on its own points of them; all others make the intervals. Values that need more threads
// than there are, or the paper's kernels, are those of the paper's machine; their source says so.
// `progress` gets a line for each sweep and each value.
// @throw VerbsError, TeamError
MachineFile calibrate_machine(const CalibrationRequest& request, bench::Team& team,
                              const std::function<void(const std::string&)>& progress);

}  // namespace heddle::predict
