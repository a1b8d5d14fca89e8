// SPDX-License-Identifier: BSD-2-Clause
// Where the discovery tree is: every path of ours is served by the file of the same path under the
// fabric's tree directory, and names that come back from the kernel lose that directory again.
#pragma once

#include <cstddef>
#include <string_view>

#include "softhca/preload/path.h"

namespace softhca::preload {

struct TreeRoot {
    PathBuffer given;      // as the fabric names it
    PathBuffer canonical;  // as the kernel names it (/dev/shm may be a symbolic link)
};

// The tree if this process has joined its fabric; never joins. Async-signal-safe.
const TreeRoot* joined_root() noexcept;

// Joins if need be. nullptr: that is impossible, here or at all (the fabric logged the reason), and
// the path is to be treated as one that does not exist.
const TreeRoot* join_root() noexcept;

// Whether a relative path may start inside the tree: this process has joined, or was started there.
bool tree_may_be_near() noexcept;

// For a name that came from the kernel: the tree it may lie in, or nullptr. A process that has not
// joined can have been started in a directory of the tree, so that a name which looks like one
// joins.
const TreeRoot* root_for(std::string_view path) noexcept;

// If `path` lies in the tree, the length of the tree's own name in it; else 0.
std::size_t root_prefix(const TreeRoot& root, std::string_view path) noexcept;

// Removes that prefix in place ("" becomes "/"). Returns the new length; `path` is terminated.
std::size_t strip_root(const TreeRoot& root, char* path, std::size_t length) noexcept;

// What an open descriptor, or "/proc/self/..." in general, stands for. False with errno.
bool descriptor_path(int fd, PathBuffer* out) noexcept;

}  // namespace softhca::preload
