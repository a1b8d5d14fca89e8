// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo(3): what the devices of this machine offer to a program, given its hints.
#pragma once

#include <rdma/fabric.h>

#include <string>
#include <vector>

#include "heddle/device.h"

namespace heddle::provider {

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** info) noexcept;

// The ports that the provider may use, the nearest first. Throws VerbsError.
std::vector<DeviceInfo> usable_ports();

// A fabric is named by what keeps its ports from others: the link layer, the version of RoCE, and
// the prefix of an InfiniBand subnet that has one of its own ("InfiniBand-fec0000000000001").
std::string fabric_name(const DeviceInfo& device);
bool is_fabric_name(const char* name) noexcept;

}  // namespace heddle::provider
