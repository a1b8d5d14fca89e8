// SPDX-License-Identifier: BSD-2-Clause
// What directory streams show of us. The directories above ours belong to the host and do not hold
// our names: when readdir comes to the end of one, our names are added, unless the host has them.
// In /dev/infiniband the device shows its type.
#pragma once

#include <dirent.h>

namespace softhca::preload {

// After a stream was opened: remembers it if it is one of those directories.
void track_listing(DIR* stream) noexcept;

// Before it is closed, and when it starts again.
void forget_listing(DIR* stream) noexcept;
void rewind_listing(DIR* stream) noexcept;

// What readdir shall return where libc's returned `entry` (nullptr at the end).
dirent* show_listing(DIR* stream, dirent* entry) noexcept;

}  // namespace softhca::preload
