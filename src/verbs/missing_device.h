// SPDX-License-Identifier: BSD-2-Clause
// Why libibverbs lists no device, from what the kernel shows in sysfs and /dev.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace heddle::verbs {

// What is missing, and what to type about it. `sys` and `dev` are where sysfs and devtmpfs are. The
// steps are those by which libibverbs finds devices (rdma-core, Documentation/udev.md): sysfs, the
// module ib_uverbs, a driver of the kernel, its file in /dev, a driver of libibverbs.
std::string missing_device(const std::filesystem::path& sys, const std::filesystem::path& dev);

// If libibverbs lists no device: what is missing, as above. Throws VerbsError where the list cannot
// be had.
std::optional<std::string> why_no_device();

}  // namespace heddle::verbs
