// SPDX-License-Identifier: BSD-2-Clause
// What the device's place in the machine is: as near to every processor as to any other.
#pragma once

#include <string>
#include <string_view>

namespace softhca::device {

struct HostProcessors {
    std::string online_list;  // "0-3,8", as /sys/devices/system/cpu/online
    std::string online_mask;  // the same as sysfs prints masks: "10f", "ff,ffffffff"
    int numa_node;            // the only one, or -1: none or no particular one
};

// Read from sysfs; without it, from sysconf.
HostProcessors host_processors();

// The mask of a list, with as many digits as `processors` bits need (sysfs prints nr_cpu_ids).
// Empty if the list cannot be understood.
std::string processor_mask(std::string_view list, unsigned processors);

}  // namespace softhca::device
