// SPDX-License-Identifier: BSD-2-Clause
// The discovery tree: what sysfs and /dev report about the devices, as ordinary files in a
// directory of the fabric. Names and formats follow the kernel's drivers/infiniband/core/sysfs.c
// and uverbs_main.c and drivers/pci/pci-sysfs.c, for a ConnectX-6. The values come from identity.h.
// preload/ shows ROOT/sys/... to programs as /sys/...
#pragma once

#include <span>
#include <string>

#include "softhca/device/port.h"

namespace softhca::device {

// Creates the tree of the devices that have those ports, in order, in the directory `root`. A
// `root` that an earlier process left behind is removed first. Directories get mode 0700 and files
// 0600. Returns 0 or an errno; after an error nothing is left. The caller holds the fabric's lock,
// because two calls for one root must not run concurrently.
int write_tree(const std::string& root, std::span<const Port> ports) noexcept;

// Removes `root` and everything below it, without following symbolic links. A missing `root` is no
// error.
void remove_tree(const std::string& root) noexcept;

}  // namespace softhca::device
