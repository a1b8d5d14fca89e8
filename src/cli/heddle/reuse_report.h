// SPDX-License-Identifier: BSD-2-Clause
// heddle run --reuse-report: how a program's small messages were sent, and how often it used its
// buffers (Tables 1 and 3 of "Exploiting application buffer reuse"), from what its processes wrote
// at their end.
#pragma once

#include <string>

namespace heddle::cli {

// `lines`: a line of JSON of each process, as FI_HEDDLE_STATS=FILE writes them. What is none is
// left out, and counted.
std::string reuse_report(const std::string& lines);

}  // namespace heddle::cli
