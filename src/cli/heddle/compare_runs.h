// SPDX-License-Identifier: BSD-2-Clause
// What `heddle compare` runs and measures: a program plainly, over heddle, and over heddle with the
// options that its messages suggest, in rounds. The runs over heddle are `heddle run`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/heddle/job_counts.h"
#include "cli/heddle/profile_advice.h"
#include "cli/heddle/timed_run.h"

namespace heddle::cli {

struct CompareRequest {
    unsigned ranks = 0;  // 0: the command has an mpiexec of its own
    int rounds = 7, warmup = 1;
    double patience = 600;
    std::string format = "text";
    bool json = false, null_model = false;
};

struct CompareVariant {
    std::string name, command;  // as a user would start it
    JobOrder order;
    std::vector<double> seconds;  // of each round
    std::string failure;          // how it ended, if it did badly; then it runs no more
    std::string output;           // the last lines of that run
};

// All that is known when the runs are over.
struct ComparedRuns {
    std::vector<CompareVariant> variants;  // plain first
    std::optional<JobCounts> profile;
    unsigned threads = 1;
    ProfileAdvice advice;
    bool software = false;  // heddle ran on softhca
};

// False if a run has failed.
bool all_well(const ComparedRuns& all);

// Does all runs. Throws cli_common::ProgramError if there is nothing to run, and Interrupted.
ComparedRuns measure_runs(const CompareRequest& request, const std::vector<std::string>& command);

}  // namespace heddle::cli
