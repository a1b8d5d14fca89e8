// SPDX-License-Identifier: BSD-2-Clause
// In which order fi_getinfo offers ports: most programs take the first.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "heddle/device.h"

namespace heddle::provider {

// Puts the ports that are near to the processors of the calling thread first. Ethernet ports whose
// interface has no address (their only GID is link-local) come after all others. Several ports may
// be equally near, equally fast and of one fabric. The process then takes the one of its number on
// the host, as the launcher says it, so that the processes of a host spread over them.
void put_nearest_first(std::vector<DeviceInfo>& ports);

// The names of `most` other ports, of those that the provider may use (usable_ports()), over which
// an endpoint at the port `own` may read as well: the nearest, with its link layer.
std::vector<std::string> rails_beside(const DeviceInfo& own, const std::vector<DeviceInfo>& usable,
                                      std::size_t most);

}  // namespace heddle::provider
