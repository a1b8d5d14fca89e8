// SPDX-License-Identifier: BSD-2-Clause
// heddle run --stats: a line about the job, then the counters that are not zero.
#pragma once

#include <string>

#include "cli/heddle/job_counts.h"

namespace heddle::cli {

// ranks: how many processes the launcher had to start; 0 if that is not known.
std::string stats_report(const JobCounts& job, unsigned ranks);

}  // namespace heddle::cli
