// SPDX-License-Identifier: BSD-2-Clause
// The IP network that an Ethernet port is in, by the address that its GID is made from. Ports of
// one network reach each other; of two networks that is not known.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace heddle::verbs {

// Whether the GID is made from a MAC address alone (fe80::/10): its interface may have no address.
bool is_link_local(const std::array<std::uint8_t, 16>& gid) noexcept;

// Returns "10.7.0.0/24", "fd00:7::/64", or "fe80::/64" for what is link-local. Empty: no interface
// of this network namespace has the address, or its network has one or two addresses (/31, /32,
// /127, /128), as where routers join all hosts. Any thread.
std::string ip_network(const std::array<std::uint8_t, 16>& gid);

}  // namespace heddle::verbs
