// SPDX-License-Identifier: BSD-2-Clause
// The devices' places in the machine. A single device is equally near to all processors. Several
// are on the machine's NUMA nodes in turn, or where the user puts them (SOFTHCA_NUMA).
#pragma once

#include <string>
#include <string_view>

namespace softhca::device {

struct HostProcessors {
    std::string online_list;  // "0-3,8", as /sys/devices/system/cpu/online
    std::string online_mask;  // the same as sysfs prints masks: "10f", "ff,ffffffff"
    int numa_node;            // the only node, or -1 if there are several or none
};

// Reads sysfs, or sysconf(3) where there is none.
HostProcessors host_processors();

// The NUMA node of one of so many devices, and the processors near to it: all of the host, if the
// host has no such node or no processors there.
HostProcessors processors_near(unsigned device, unsigned devices);

// The host's first interface that is up and has an IPv4 address: one that is no loopback interface,
// if there is any. Empty if there is none.
std::string host_interface();

// The mask of a processor list, with as many digits as `processors` bits need (sysfs prints
// nr_cpu_ids bits). Empty if the list cannot be parsed.
std::string processor_mask(std::string_view list, unsigned processors);

}  // namespace softhca::device
