// SPDX-License-Identifier: BSD-2-Clause
// Where the fabrics of this user are. Processes that name the same fabric must find the same files,
// whatever their environments; and nobody else may take the place of the directory.
//
// A directory of fabrics is BASE/softhca-<uid>: a real directory of this user with mode 0700. With
// SOFTHCA_DIRECTORY set that is the only BASE. Otherwise there are several, in this order:
//   1. /dev/shm, which all processes of a machine see, and containers may share;
//   2. $XDG_RUNTIME_DIR, if it is this user's;
//   3. /run/user/<uid>, the same for processes that were started without that variable.
// Anybody may make the first. If somebody else has, the next one serves. A fabric that is in use is
// found in whichever directory it is, so that it stays one when the first becomes free again.
#pragma once

#include <string>
#include <vector>

namespace softhca::device {

// All that may hold fabrics, whether they exist or not, in the order above.
std::vector<std::string> fabric_directories();

// 0: a directory of this user, to be trusted. ENOENT: there is none. Else an errno, and *reason
// says what is wrong with it.
int inspect_fabric_directory(const std::string& directory, std::string* reason);

// Whether live processes hold liveness bytes of a segment (liveness.h). Under the directory's lock
// nobody else can come.
enum class SegmentUse { kNoFile, kUnused, kUsed, kUnknown };
SegmentUse segment_use(const std::string& segment) noexcept;

// The names of the fabrics that have files in a directory, in order. Empty if it cannot be read.
std::vector<std::string> fabrics_in(const std::string& directory);

// The directory where a process of `name` lives; else the first that has files of that name; else
// "". Only those to be trusted are looked at.
std::string find_fabric(const std::string& name);

// Where to join `name`: where it lives, else the first directory that can be had, which is made if
// need be. "", with the reasons logged: there is none.
std::string choose_fabric_directory(const std::string& name);

std::string fabric_segment_path(const std::string& directory, const std::string& name);
std::string fabric_tree_path(const std::string& directory, const std::string& name);

}  // namespace softhca::device
