// SPDX-License-Identifier: BSD-2-Clause
// Which options the messages of a program suggest. A suggestion is a guess from counts: heddle
// compare measures whether it holds.
#pragma once

#include <string>
#include <vector>

#include "cli/heddle/job_counts.h"
#include "cli/heddle/mpi_switches.h"

namespace heddle::cli {

struct ProfileAdvice {
    std::vector<std::string> options;  // of heddle run
    std::vector<Setting> settings;     // of the provider
    std::vector<std::string> reasons;  // a sentence for each of both
    std::vector<std::string> notes;    // what the program itself could do

    bool empty() const { return options.empty() && settings.empty(); }
    // "FI_HEDDLE_RINGS=4 heddle run --rndv auto".
    std::string command() const;
};

// threads: of a process, that compute at the same time.
ProfileAdvice advice_of(const JobCounts& job, unsigned threads);

}  // namespace heddle::cli
