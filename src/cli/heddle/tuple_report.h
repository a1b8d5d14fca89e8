// SPDX-License-Identifier: BSD-2-Clause
// heddle run --explain: by which ways a program's messages went, and why others did not go by tuple
// queues, from what its processes wrote at their end.
#pragma once

#include <string>

#include "cli/heddle/job_counts.h"

namespace heddle::cli {

std::string tuple_report(const JobCounts& job);

// In a sentence: whether tuple queues suit the program, and what to change.
std::string tuple_conclusion(const JobCounts& job);

}  // namespace heddle::cli
