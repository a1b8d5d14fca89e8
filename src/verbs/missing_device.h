// SPDX-License-Identifier: BSD-2-Clause
// Explains why libibverbs lists no device, by what the kernel shows in sysfs and /dev.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace heddle::verbs {

// Returns what is missing and which command adds it. `sys` and `dev` are where sysfs and devtmpfs
// are mounted. The checks follow the steps by which libibverbs finds devices (rdma-core,
// Documentation/udev.md): sysfs, the module ib_uverbs, a kernel driver, its file in /dev, a driver
// of libibverbs.
std::string missing_device(const std::filesystem::path& sys, const std::filesystem::path& dev);

// Returns what is missing if libibverbs lists no device, else nullopt. Throws VerbsError if
// libibverbs cannot list devices.
std::optional<std::string> why_no_device();

}  // namespace heddle::verbs
