// SPDX-License-Identifier: BSD-2-Clause
// heddle run --explain: by which ways a program's messages went, and why others did not go by tuple
// queues, from what its processes wrote at their end.
#pragma once

#include <string>

namespace heddle::cli {

// `lines`: a line of JSON of each process, as FI_HEDDLE_STATS=FILE writes them. What is none is
// left out, and counted.
std::string tuple_report(const std::string& lines);

}  // namespace heddle::cli
