// SPDX-License-Identifier: BSD-2-Clause
// Which GID of its port this process sends from and is reached by. On InfiniBand it is the first,
// which the subnet manager gave the port. An Ethernet port has one for each address of its
// interface and version of RoCE, and the first is mostly one of v1, which no router passes on.
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

// From then on that entry of each port's table is taken; nullopt: the best one. Any thread, before
// the first use of a device.
void take_gid_index(std::optional<std::uint8_t> index) noexcept;

// The best entry of port 1: RoCE v2 before v1; then IPv4, then an IPv6 address that routers pass
// on, then a link-local one; then the lowest index. That is what UCX prefers, too
// (uct_ib_device_select_gid). Throws VerbsError if there is none. Any thread.
OwnGid own_gid(ibv_context* context);

}  // namespace heddle::verbs
