// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/missing_device.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "heddle/detail/assert.h"

namespace heddle::verbs {
namespace {

namespace fs = std::filesystem;

// Returns the names in a folder that begin with `prefix`, sorted. Empty if the folder is
// unreadable.
std::set<std::string> entries_of(const fs::path& folder, const std::string& prefix = {}) {
    std::set<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
        const std::string name = entry.path().filename();
        if (name.starts_with(prefix)) names.insert(name);
    }
    return names;
}

}  // namespace

std::string missing_device(const fs::path& sys, const fs::path& dev) {
    std::error_code error;
    const fs::path verbs = sys / "class/infiniband_verbs";
    if (!fs::exists(sys / "class", error))
        return "sysfs, in which libibverbs looks for devices, is not mounted at " + sys.string() +
               "; as root: mount -t sysfs sysfs " + sys.string();
    if (!fs::exists(verbs, error))
        return "the kernel module ib_uverbs is not loaded; if this machine has an adapter, as "
               "root: modprobe -a ib_uverbs mlx5_ib";
    if (::access((verbs / "abi_version").c_str(), R_OK) != 0)
        return (verbs / "abi_version").string() + " cannot be read: " + std::strerror(errno);
    const std::set<std::string> devices = entries_of(sys / "class/infiniband");
    if (devices.empty())
        return "no kernel driver has found an adapter (lspci -d 15b3: lists those of NVIDIA); for "
               "the driver of a ConnectX, as root: modprobe mlx5_ib";
    HEDDLE_ASSERT(!devices.begin()->empty(), "a directory entry has a name");
    const std::string& first = *devices.begin();
    for (const std::string& name : entries_of(verbs, "uverbs"))
        if (!fs::exists(dev / "infiniband" / name, error))
            return "the kernel has " + first + ", but " + (dev / "infiniband" / name).string() +
                   " does not exist; for a container: docker run --device=/dev/infiniband";
    return "the kernel has " + first +
           ", but libibverbs has no driver for it; on Debian and Ubuntu: apt install "
           "ibverbs-providers";
}

}  // namespace heddle::verbs
