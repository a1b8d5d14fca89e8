// SPDX-License-Identifier: BSD-2-Clause
// `softhca run`: becomes the given program, with libsofthca.so preloaded.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace softhca::cli {

using Settings = std::vector<std::pair<std::string, std::string>>;  // environment variable, value

// Sets the environment and executes `command` in place of this process, so that its pid, its
// signals and its exit status are the program's own. Returns only when that fails: an exit status,
// with the reason on stderr.
int run(const Settings& settings, const std::vector<std::string>& command);

// The LD_PRELOAD to use: its value without other copies of libsofthca.so, then `library`.
std::string preload_list(const std::string& before, const std::string& library);

// The library that belongs to this command: ../lib/libsofthca.so from its own place, in the build
// tree and when installed. Throws ProgramError.
std::string find_library();

}  // namespace softhca::cli
