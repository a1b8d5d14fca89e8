// SPDX-License-Identifier: BSD-2-Clause
// Locates the discovery tree. The file of the same path below the fabric's tree directory serves
// every path of ours. Names that the kernel returns lose that directory again.
#pragma once

#include <cstddef>
#include <string_view>

#include "softhca/preload/path.h"

namespace softhca::preload {

struct TreeRoot {
    PathBuffer given;      // its path as the fabric names it
    PathBuffer canonical;  // its path as the kernel names it (/dev/shm may be a symbolic link)
};

// The tree, if this process has joined its fabric. It never joins. Async-signal-safe.
const TreeRoot* joined_root() noexcept;

// The same, but it joins if necessary. nullptr: the process cannot join (the fabric logged the
// reason), and the path counts as one that does not exist.
const TreeRoot* join_root() noexcept;

// How many devices the fabric has, or will have if this process is the first to join.
unsigned known_devices() noexcept;

// Whether a relative path may start inside the tree: this process has joined, or was started in the
// tree.
bool tree_may_be_near() noexcept;

// The tree that a name returned by the kernel may lie in, or nullptr. A process that has not joined
// may have been started in a directory of the tree. So a name that looks like one makes it join.
const TreeRoot* root_for(std::string_view path) noexcept;

// If `path` lies in the tree, the length of the tree's own path in it. Otherwise 0.
std::size_t root_prefix(const TreeRoot& root, std::string_view path) noexcept;

// Removes that prefix in place; "" becomes "/". Returns the new length. `path` is terminated.
std::size_t strip_root(const TreeRoot& root, char* path, std::size_t length) noexcept;

// The path that /proc/self/fd/`fd` refers to. Returns false and sets errno on an error.
bool descriptor_path(int fd, PathBuffer* out) noexcept;

}  // namespace softhca::preload
