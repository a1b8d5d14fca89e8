// SPDX-License-Identifier: BSD-2-Clause
// The kinds of objects that `rdma resource` lists, and what is said of each (nldev.c:
// fill_entries and fill_res_*_entry). All objects are those of every process of the fabric.
#pragma once

#include <cstdint>
#include <span>

#include "softhca/device/segment.h"
#include "softhca/nldev/message.h"

namespace softhca::nldev {

struct Resource {
    const char* name;       // in the summary
    std::uint16_t command;  // that lists them
    std::uint16_t table, entry, number_attribute;
    bool per_device;  // false: a request may ask for the objects of one port
    // Indices at and above it are not in use.
    std::uint32_t (*end)(const device::Segment& segment);
    // Whether there is an object at `index`. Those below are called for live objects only.
    bool (*live)(const device::Segment& segment, std::uint32_t index);
    std::uint32_t (*number)(const device::Segment& segment, std::uint32_t index);
    std::uint32_t (*port)(const device::Segment& segment, std::uint32_t index);  // 0: none yet
    void (*fill)(const device::Segment& segment, std::uint32_t index, Datagram* out);
};

// In the order of the summary.
std::span<const Resource> resources() noexcept;
const Resource* resource_of(std::uint16_t command) noexcept;  // nullptr: it lists none

}  // namespace softhca::nldev
