// SPDX-License-Identifier: BSD-2-Clause
// Adds softhca's names to directory streams. The directories above ours belong to the host and do
// not contain our names. So when readdir reaches the end of one, our names are added, unless the
// host has them. In /dev/infiniband the device gets its type.
#pragma once

#include <dirent.h>

namespace softhca::preload {

// Call this after opening a stream: it remembers the stream if it is one of those directories.
void track_listing(DIR* stream) noexcept;

// Call these before the stream is closed, and when it is rewound.
void forget_listing(DIR* stream) noexcept;
void rewind_listing(DIR* stream) noexcept;

// What readdir returns to the program after libc's readdir returned `entry` (nullptr at the end).
dirent* show_listing(DIR* stream, dirent* entry) noexcept;

}  // namespace softhca::preload
