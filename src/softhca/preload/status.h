// SPDX-License-Identifier: BSD-2-Clause
// What the stat functions report about the device: a character device, rw-rw-rw-, owned by root, as
// udev's rules for RDMA set it up.
#pragma once

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "softhca/device/identity.h"

namespace softhca::preload {

inline constexpr mode_t kDeviceMode = S_IFCHR | 0666;

inline void describe_device(struct stat* status) noexcept {
    status->st_mode = kDeviceMode;
    status->st_rdev = makedev(device::kCharMajor, device::kCharMinor);
    status->st_nlink = 1;
    status->st_uid = 0;
    status->st_gid = 0;
    status->st_size = 0;
    status->st_blocks = 0;
}

inline void describe_device(struct statx* status) noexcept {
    status->stx_mode = kDeviceMode;
    status->stx_rdev_major = device::kCharMajor;
    status->stx_rdev_minor = device::kCharMinor;
    status->stx_nlink = 1;
    status->stx_uid = 0;
    status->stx_gid = 0;
    status->stx_size = 0;
    status->stx_blocks = 0;
}

}  // namespace softhca::preload
