// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo: what this machine's devices offer to a program with its wishes.
#pragma once

#include <rdma/fabric.h>

#include <string>

#include "heddle/device.h"

namespace heddle::provider {

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** info) noexcept;

// A network is called by its kind: what else tells one from the other (subnet, VLAN) a provider
// cannot know of all its devices.
std::string fabric_name(const DeviceInfo& device);
bool is_fabric_name(const char* name) noexcept;

}  // namespace heddle::provider
