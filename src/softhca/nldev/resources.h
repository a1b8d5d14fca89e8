// SPDX-License-Identifier: BSD-2-Clause
// The kinds of objects that `rdma resource` lists, and the attributes of each (nldev.c:
// fill_entries and fill_res_*_entry). The lists contain the objects of all processes of the fabric.
#pragma once

#include <cstdint>
#include <span>

#include "softhca/device/segment.h"
#include "softhca/nldev/message.h"

namespace softhca::nldev {

struct Resource {
    const char* name;       // in the summary
    std::uint16_t command;  // the command that lists them
    std::uint16_t table, entry, number_attribute;
    bool per_device;  // false: a request may ask for the objects of one port
    // No index at or above it is in use.
    std::uint32_t (*end)(const device::Segment& segment);
    // Whether there is a live object at `index`. The functions below are called for live objects
    // only.
    bool (*live)(const device::Segment& segment, std::uint32_t index);
    std::uint32_t (*number)(const device::Segment& segment, std::uint32_t index);
    std::uint32_t (*port)(const device::Segment& segment, std::uint32_t index);  // 0: no port yet
    std::uint32_t (*device)(const device::Segment& segment, std::uint32_t index);
    void (*fill)(const device::Segment& segment, std::uint32_t index, Datagram* out);
};

// Whether there is a live object at `index`, of that device.
inline bool is_on(const Resource& resource, const device::Segment& segment, std::uint32_t device,
                  std::uint32_t index) noexcept {
    return resource.live(segment, index) && resource.device(segment, index) == device;
}

// In the order of the summary.
std::span<const Resource> resources() noexcept;
const Resource* resource_of(std::uint16_t command) noexcept;  // nullptr: not a listing command

}  // namespace softhca::nldev
