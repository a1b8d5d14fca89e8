// SPDX-License-Identifier: BSD-2-Clause
// Which workloads are alike for the model's errors, and how far off it is for each kind.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "predict/machine_file.h"
#include "predict/validation.h"
#include "predict/workload.h"

namespace heddle::predict {

// By what its threads contend for: "alone", "page" (uUARs or their pages), "payload" (fetched by
// the adapter), "cq" or "qp", with "kernel-" before it if they wait for each other.
std::string kind_of(const Workload& workload);

// The kind of ratios to MPI everywhere.
inline constexpr std::string_view kRatioKind = "ratio";

// From the held-out points. Kinds with fewer than five of them get the interval of all.
std::map<std::string, MachineFile::Interval, std::less<>> intervals_of(
    const std::vector<Prediction>& predictions, const Machine& machine);

// That of its kind, else that of what contends for the same without waiting for each other, else
// that of all ("all"). Nothing for a machine that was never validated.
const MachineFile::Interval* interval_for(const MachineFile& file, const Workload& workload);

}  // namespace heddle::predict
