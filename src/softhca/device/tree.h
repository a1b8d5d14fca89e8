// SPDX-License-Identifier: BSD-2-Clause
// The discovery tree: what sysfs and /dev say of the device, as ordinary files under a directory of
// the fabric. The names and formats are those of the kernel's drivers/infiniband/core/sysfs.c and
// uverbs_main.c and of drivers/pci/pci-sysfs.c, for a ConnectX-6 with one port; the
// values come from identity.h. preload/ lets programs see ROOT/sys/... as /sys/...
#pragma once

#include <string>

#include "softhca/device/port.h"

namespace softhca::device {

// Makes the tree of a device with that port in `root`, a directory that must not
// exist, or be what an earlier process left behind (it is removed first). Directories are 0700,
// files 0600. 0 or an errno; on an error nothing is left. Not for concurrent calls on one root: the
// fabric's lock is held.
int write_tree(const std::string& root, const Port& port) noexcept;

// Removes all below `root` and itself; follows no symbolic link. What is not there is no error.
void remove_tree(const std::string& root) noexcept;

}  // namespace softhca::device
