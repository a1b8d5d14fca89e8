// SPDX-License-Identifier: BSD-2-Clause
// A revision of the model's fit: which values are set beforehand, and which plotted points fit
// which parameters. Frozen in a file before the fit, so that the points of a fit are not chosen by
// its errors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "predict/machine_file.h"

namespace heddle::predict {

struct PointName {
    std::string figure, curve, x;
    bool operator==(const PointName&) const = default;
};

// The parameters get one value, with which the errors of the points balance.
struct FitStep {
    std::vector<std::string> parameters;
    std::vector<PointName> points;
    double low = 0, high = 0;
};

struct Revision {
    std::uint32_t number = 0;
    std::string about;
    MachineFile machine;         // with the values that are set; those of the fit are missing
    std::uint32_t passes = 1;    // over the steps, for parameters that depend on each other
    std::vector<FitStep> steps;  // in this order

    std::uint32_t fitted_values() const { return static_cast<std::uint32_t>(steps.size()); }
    bool fits(const PointName& point) const;
};

// @throw MachineFileError with the line, if it is no such file, or a parameter is neither set nor
//   fitted, or both
Revision parse_revision(std::string_view text, const std::string& where);

// 1 to kRevisions, which are part of the command.
inline constexpr std::uint32_t kRevisions = 3;
Revision revision(std::uint32_t number);
// The last revision with another point for each value.
Revision other_points();

}  // namespace heddle::predict
