// SPDX-License-Identifier: BSD-2-Clause
// Where a device is in the machine and which processors are near to it, as hwloc sees it. A near
// processor writes the device's registers and reads its queues without crossing to another socket.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "heddle/device.h"

namespace heddle {

/// A hardware thread on which this process may run.
struct Processor {
    int number = 0;             ///< the operating system's number, as sched_setaffinity(2) takes it
    bool near = false;          ///< whether it is on the device's NUMA node
    bool first_of_core = true;  ///< whether it is the first usable hardware thread of its core
};

/// The processors of this process, ordered by their distance to a device.
///
///     const heddle::Locality locality = heddle::locality_of(heddle::device());
///     for (std::uint32_t t = 0; t < threads; ++t)
///         pin(t, locality.processors[t % locality.processors.size()].number);
struct Locality {
    int numa_node = -1;  ///< the device's NUMA node; -1: it has none, or several
    /// The processors that the cpuset and the affinity of the calling thread allow, best first: one
    /// hardware thread of each near core, one of each other core, then the rest in the same order.
    std::vector<Processor> processors;

    /// Returns the number of distinct cores among the processors. Any thread.
    std::size_t cores() const noexcept;
    /// Returns the number of those cores that are on the device's NUMA node. Any thread.
    std::size_t near_cores() const noexcept;
};

/// Looks at the machine and orders the processors of the calling thread by their distance to a
/// device.
///
/// @param device as device() or devices() returned it; only its name and NUMA node are used
/// @return a snapshot: it does not follow later changes of the affinity
/// @throw VerbsError hwloc cannot read the machine's topology (errno of hwloc)
/// Thread safety: any thread.
Locality locality_of(const DeviceInfo& device);

/// Returns how far each device is from the processors of the calling thread.
///
/// @param devices as device_ports() or devices() returned them; only names and NUMA nodes are used
/// @return for each device 0 if one of the thread's processors is near to it, or if nothing is
///     known of its place; else a number that grows with the distance between the NUMA nodes (the
///     latency that the firmware tells, where it does)
/// @throw VerbsError as locality_of() does
/// Thread safety: any thread.
std::vector<unsigned> distances_to(const std::vector<DeviceInfo>& devices);

}  // namespace heddle
