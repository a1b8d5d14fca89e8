// SPDX-License-Identifier: BSD-2-Clause
// Which ports heddle can use, which networks they lead to, and which of them a process takes.
#pragma once

#include <string>
#include <vector>

#include "heddle/device.h"

namespace heddle::verbs {

// Returns why heddle cannot use a port; nullptr: it can.
const char* why_unusable(const DeviceInfo& port) noexcept;

// Names the network that a port leads to, as far as its host knows: "InfiniBand", or
// "InfiniBand-fec0000000000001" with another prefix than the default one; "RoCE-10.7.0.0/24" or
// "RoCE" by ip_network(), and the same with "RoCEv1".
std::string fabric_name(const DeviceInfo& port);
bool is_fabric_name(const char* name) noexcept;

// Sorts ports by how well a process may use them: most programs take the first.
//
// The ports of the best fabric come first: one with addresses, then the one with the fastest port,
// then the first. All processes of a host agree on that, whatever they are near to. Within a fabric
// those that are near to the processors of the calling thread come first, then the faster ones. The
// processes of a host spread over the ports that are equally good: each begins with that of its
// number on the host, as the launcher says it.
void put_best_first(std::vector<DeviceInfo>& ports);

}  // namespace heddle::verbs
