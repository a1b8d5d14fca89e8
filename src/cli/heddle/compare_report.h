// SPDX-License-Identifier: BSD-2-Clause
// The three formats in which `heddle compare` prints its result.
#pragma once

#include "cli/heddle/compare_runs.h"

namespace heddle::cli {

void print_compared_text(const CompareRequest& request, const ComparedRuns& all);
void print_compared_json(const CompareRequest& request, const ComparedRuns& all);
void print_compared_csv(const ComparedRuns& all);  // a line a run

}  // namespace heddle::cli
