// SPDX-License-Identifier: BSD-2-Clause
// The name of a run record's file. `softhca run` checks it before it starts the program.
#pragma once

#include <cstddef>
#include <string_view>

namespace softhca::record {

// Writes into `path` the file that process `pid` writes if the user names `file`: each "%p" in it
// is replaced by the pid. A name without "%p" gets ".PID" at its end, so that the processes of a
// job do not overwrite each other. A relative name begins in `directory`, if that is not empty.
// Returns false if the result is longer than a path may be.
bool expand_path(std::string_view file, std::string_view directory, int pid, char* path,
                 std::size_t size) noexcept;

}  // namespace softhca::record
