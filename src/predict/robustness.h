// SPDX-License-Identifier: BSD-2-Clause
// How much the model's errors depend on values that were assumed, on the points of the fit, and on
// each mechanism.
#pragma once

#include <string>
#include <vector>

#include "predict/fit.h"
#include "predict/validation.h"

namespace heddle::predict {

struct RobustnessRow {
    std::string changed;
    Spread hard;      // errors of the hard points
    double rank = 0;  // of these
};

// Nothing is fitted again except in the row of other points. Takes about a minute of one core.
// The first row is the revision as it is.
std::vector<RobustnessRow> robustness(const Revision& revision, const MachineFile& fitted,
                                      const std::vector<Point>& points,
                                      const FitProgress& progress = {});

}  // namespace heddle::predict
