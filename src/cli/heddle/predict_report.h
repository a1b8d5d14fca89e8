// SPDX-License-Identifier: BSD-2-Clause
// heddle predict --errors, --figures, --robustness, --fit: what the model gets right and wrong.
#pragma once

#include <cstdint>

#include "predict/machine_file.h"

namespace heddle::cli {

// Errors by figure, the null models' beside, then each point.
void print_errors(const predict::MachineFile& machine, bool json);
// A JSON line for each point: the paper's rate and the predicted one.
void print_figures(const predict::MachineFile& machine);
void print_robustness(bool json);
// The machine file of a fit of that revision, from the paper's points.
// How often a buffer has to be used until registering it pays, by the buffer-reuse paper.
void print_other_papers(bool json);
void print_fit(std::uint32_t revision);

}  // namespace heddle::cli
