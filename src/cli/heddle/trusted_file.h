// SPDX-License-Identifier: BSD-2-Clause
// Which programs that were found, not named, may be started.
#pragma once

#include <filesystem>
#include <string>

namespace heddle::cli {

// Who else could put other contents into `file`: empty if nobody can but root and this user, else
// what is wrong, for a message. The file, with all links resolved, and each folder above it belong
// to root or to this user, and nobody else may write them: no group that has other members, and not
// all users, except into folders with the sticky bit (/tmp), whose entries only their owners move.
std::string why_not_trusted(const std::filesystem::path& file);

}  // namespace heddle::cli
