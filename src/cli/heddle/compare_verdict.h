// SPDX-License-Identifier: BSD-2-Clause
// What the times of `heddle compare` mean.
#pragma once

#include <optional>
#include <string>

#include "cli/heddle/compare_runs.h"
#include "cli/heddle/paired_times.h"

namespace heddle::cli {

const char* verdict_text(Verdict verdict);  // "faster"

// "0.85 to 0.92", or "-" where there is none.
std::string interval_text(const std::optional<PairedTimes::Interval>& interval);

// Which variant to use and why, in sentences. Where a run failed: whether the program fails without
// heddle, too.
std::string recommendation(const CompareRequest& request, const ComparedRuns& all);

}  // namespace heddle::cli
