// SPDX-License-Identifier: BSD-2-Clause
// heddle calibrate --machine: the machine file of this host, for heddle predict.
#pragma once

#include <string>

namespace heddle::cli {

// Writes it to `file` ("-": standard output), and its progress to standard error. Empty `device`:
// the first with an active port. Returns an exit status. Throws VerbsError.
int write_machine(const std::string& device, const std::string& file);

}  // namespace heddle::cli
