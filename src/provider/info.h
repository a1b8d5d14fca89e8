// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo(3): what the devices of this machine offer to a program, given its hints.
#pragma once

#include <rdma/fabric.h>

#include <string>

#include "heddle/device.h"

namespace heddle::provider {

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** info) noexcept;

// A fabric is named by its link layer. The provider cannot find out for all devices what else tells
// networks apart (subnet, VLAN).
std::string fabric_name(const DeviceInfo& device);
bool is_fabric_name(const char* name) noexcept;

}  // namespace heddle::provider
