// SPDX-License-Identifier: BSD-2-Clause
// What the stat functions report about the devices and that of rdma_cm: a character device,
// rw-rw-rw-, owned by root, as udev's rules for RDMA set it up.
#pragma once

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "softhca/device/identity.h"
#include "softhca/preload/path.h"

namespace softhca::preload {

inline constexpr mode_t kDeviceMode = S_IFCHR | 0666;

// `number`: which of the devices.
inline void describe_device(Claim which, unsigned number, struct stat* status) noexcept {
    status->st_mode = kDeviceMode;
    status->st_rdev = which == Claim::kManager
                          ? makedev(device::kManagerMajor, device::kManagerMinor)
                          : makedev(device::kCharMajor, device::char_minor(number));
    status->st_nlink = 1;
    status->st_uid = 0;
    status->st_gid = 0;
    status->st_size = 0;
    status->st_blocks = 0;
}

inline void describe_device(Claim which, unsigned number, struct statx* status) noexcept {
    const bool manager = which == Claim::kManager;
    status->stx_mode = kDeviceMode;
    status->stx_rdev_major = manager ? device::kManagerMajor : device::kCharMajor;
    status->stx_rdev_minor = manager ? device::kManagerMinor : device::char_minor(number);
    status->stx_nlink = 1;
    status->stx_uid = 0;
    status->stx_gid = 0;
    status->stx_size = 0;
    status->stx_blocks = 0;
}

}  // namespace softhca::preload
