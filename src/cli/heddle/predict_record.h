// SPDX-License-Identifier: BSD-2-Clause
// heddle predict --record: what a recorded run would have got from a real adapter, with the
// endpoints that it had and with those of each category.
#pragma once

#include <string>
#include <vector>

#include "heddle/category.h"
#include "predict/machine_file.h"

namespace heddle::cli {

// Records of the processes of one job.
// @throw predict::RecordError if one is none
// @throw std::invalid_argument if nothing was posted, or the run cannot have ended
void print_record(const std::vector<std::string>& files, const std::vector<Category>& categories,
                  const predict::MachineFile& machine, bool json);

}  // namespace heddle::cli
