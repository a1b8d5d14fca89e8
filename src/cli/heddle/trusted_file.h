// SPDX-License-Identifier: BSD-2-Clause
// Which programs that were found, not named, may be started.
#pragma once

#include <filesystem>
#include <string>

namespace heddle::cli {

// Says what lets somebody else change what `file` contains; empty if only root and this user can.
// The file, with all links resolved, and each folder above it must belong to root or to this user.
// Nobody else may write them: no group that has other members, and not all users. Folders with the
// sticky bit
// (/tmp) may be written by all, since entries are moved by their owners alone.
std::string why_not_trusted(const std::filesystem::path& file);

}  // namespace heddle::cli
