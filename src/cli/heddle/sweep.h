// SPDX-License-Identifier: BSD-2-Clause
// heddle bench message-rate --figure: one of the paper's figures, measured.
#pragma once

#include <string>
#include <vector>

#include "experiments/common/team.h"
#include "experiments/message_rate.h"

namespace heddle::cli {

struct SweepRequest {
    std::string figure;
    bench::MessageRate base;  // device, threads and seconds of it
    std::vector<Path> paths;
    int repetitions = 11;
    bool json = false;
};

// Prints a table, or a JSON line for each point. By rank 0 of run_with_rate_peer(). Throws
// VerbsError, TeamError.
void run_sweep(const SweepRequest& request, bench::Team& team);

}  // namespace heddle::cli
