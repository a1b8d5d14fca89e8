// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo(3): what the devices of this machine offer to a program, given its hints.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <string>
#include <vector>

#include "heddle/device.h"

namespace heddle::provider {

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** info) noexcept;

// The ports that the provider may use, the best first (verbs::put_best_first). Throws VerbsError.
std::vector<DeviceInfo> usable_ports();

// The names of `most` other ports, of those that the provider may use (usable_ports()), over which
// an endpoint at the port `own` may read as well: the best, with its link layer.
std::vector<std::string> rails_beside(const DeviceInfo& own, const std::vector<DeviceInfo>& usable,
                                      std::size_t most);

}  // namespace heddle::provider
