// SPDX-License-Identifier: BSD-2-Clause
// Chooses the GID of the port that this process sends from and that peers address. On InfiniBand it
// is the first one, which the subnet manager assigned. An Ethernet port has one GID for each
// address of its interface and each version of RoCE. The first is usually of RoCE v1, which routers
// do not forward.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <optional>

namespace heddle::verbs {

struct OwnGid {
    std::uint8_t index = 0;  // in the port's table: sgid_index of a path
    std::array<std::uint8_t, 16> raw{};
};

// Makes own_gid() return that entry of each port's table; nullopt: the best entry. Any thread,
// before the first use of a device.
void take_gid_index(std::optional<std::uint8_t> index) noexcept;

// Returns the chosen entry, or the best entry of port 1. RoCE v2 is better than v1; then IPv4 is
// better than a routable IPv6 address, and that is better than a link-local one; then the lowest
// index wins. UCX has the same preferences (uct_ib_device_select_gid). Throws VerbsError if the
// table has no entry. Any thread.
OwnGid own_gid(ibv_context* context);

}  // namespace heddle::verbs
