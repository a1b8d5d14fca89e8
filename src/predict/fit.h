// SPDX-License-Identifier: BSD-2-Clause
// Finds the values of a revision's parameters, each by its own points.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "predict/figures.h"
#include "predict/revision.h"

namespace heddle::predict {

// After each value: "qp_wqe 62.2 ns, by figure 3 All 1".
using FitProgress = std::function<void(const std::string& line)>;

// It reads only those of `points` that the revision names, so that no other value can have an
// influence. Takes about a second for each pass.
// @throw MachineFileError if one of the named points is missing
MachineFile fit(const Revision& revision, const std::vector<Point>& points,
                const FitProgress& progress = {});

}  // namespace heddle::predict
