// SPDX-License-Identifier: BSD-2-Clause
// What an adapter reads by PCIe to send messages, as the software HCA counts it.
#pragma once

#include <cstdint>
#include <optional>

namespace heddle::cli {

// DMA reads of the queues of this process, so far.
struct DeviceReads {
    std::uint64_t wqes = 0;      // of work queue entries; by BlueFlame none is read
    std::uint64_t payloads = 0;  // none with inline payload
};

// nullopt: the device is not the software HCA of this process's fabric. Any thread.
std::optional<DeviceReads> device_reads();

}  // namespace heddle::cli
