// SPDX-License-Identifier: BSD-2-Clause
// Finds the directories that hold this user's fabrics. Processes that name the same fabric must
// find the same files, whatever their environments are. No other user may provide the directory.
//
// A fabric directory is BASE/softhca-<uid>, a real directory of this user with mode 0700. If
// SOFTHCA_DIRECTORY is set, its value is the only BASE. Otherwise there are several, in this order:
// 1. /dev/shm, which all processes of a machine see, and which containers may share;
// 2. $XDG_RUNTIME_DIR, if it belongs to this user;
// 3. /run/user/<uid>, which processes started without that variable have, too.
// Any user may create the first. If another user has, the next one is used. A fabric that is in use
// is found in whichever directory it is, so it stays one fabric when the first directory becomes
// available again.
#pragma once

#include <string>
#include <vector>

namespace softhca::device {

// All directories that may hold fabrics, existing or not, in the order above.
std::vector<std::string> fabric_directories();

// Returns 0 if the directory belongs to this user and can be trusted, ENOENT if it does not exist,
// or another errno. On an error *reason says what is wrong.
int inspect_fabric_directory(const std::string& directory, std::string* reason);

// Whether live processes hold liveness bytes of a segment (liveness.h). While the caller holds the
// directory's lock, no other process can join.
enum class SegmentUse { kNoFile, kUnused, kUsed, kUnknown };
SegmentUse segment_use(const std::string& segment) noexcept;

// The names of the fabrics that have files in a directory, sorted. Empty if it cannot be read.
std::vector<std::string> fabrics_in(const std::string& directory);

// The directory where live processes use the fabric `name`. Without any it is the first directory
// that has files of that name, or "". Only trusted directories are searched.
std::string find_fabric(const std::string& name);

// The directory in which to join the fabric `name`: the one where it is in use, or else the first
// usable one, which is created if necessary. If there is none, logs the reasons and returns "".
std::string choose_fabric_directory(const std::string& name);

std::string fabric_segment_path(const std::string& directory, const std::string& name);
std::string fabric_tree_path(const std::string& directory, const std::string& name);

}  // namespace softhca::device
