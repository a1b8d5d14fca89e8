// SPDX-License-Identifier: BSD-2-Clause
// Where a device is in the machine, and which processors are near to it, as hwloc sees it: from
// there registers are written, and queues read, without crossing to another socket.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "heddle/device.h"

namespace heddle {

struct Processor {
    int number = 0;             // of the operating system
    bool near = false;          // on the device's NUMA node
    bool first_of_core = true;  // the first of its core's hardware threads that we may use
};

struct Locality {
    int numa_node = -1;  // of the device; -1: none in particular
    // Those this process may run on (its cpuset and affinity at the time of the call), best first:
    // a hardware thread of each near core, of each other core, then what is left in the same order.
    std::vector<Processor> processors;

    std::size_t cores() const noexcept;       // distinct ones among them
    std::size_t near_cores() const noexcept;  // the same, on the device's NUMA node
};

// Thread-safe. Throws VerbsError when hwloc cannot look at the machine.
Locality locality_of(const DeviceInfo& device);

}  // namespace heddle
