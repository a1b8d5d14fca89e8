// SPDX-License-Identifier: BSD-2-Clause
// The port of a device that this process's QPs use, and how packets leave it: its GID, partition,
// service level and traffic class.
//
// On InfiniBand the GID is the first one, which the subnet manager assigned. An Ethernet port has
// one GID for each address of its interface and each version of RoCE. The first is usually of RoCE
// v1, which routers do not forward.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace heddle::verbs {

// What a user chose for all paths of the process.
struct PathOptions {
    std::optional<std::uint8_t> gid_index;  // nullopt: the best entry
    std::uint16_t pkey = 0;                 // a partition's key; 0: the one at index 0
    std::uint8_t service_level = 0;         // InfiniBand's SL; RoCE: the priority, where no VLAN's
    std::uint8_t traffic_class = 0;         // the GRH's, in which RoCE v2 has DSCP (6 bits) and ECN
    std::uint32_t flow_label = 0;           // 20 bits of the GRH; 0: the driver's own choice
};

struct LocalPort {
    std::uint8_t number = 1;
    bool ethernet = false;
    bool roce_v1 = false;       // the GID is of RoCE v1
    bool grh_required = false;  // IBV_QPF_GRH_REQUIRED: all paths have a GRH, as on SR-IOV's VFs
    std::uint16_t lid = 0;
    std::uint8_t lid_bits = 0;  // LMC: the port has 2^lid_bits LIDs, from `lid`
    std::uint8_t gid_index = 0;
    std::array<std::uint8_t, 16> gid{};
    std::uint16_t pkey_index = 0, pkey = 0xffff;
    bool has_gid = true, has_pkey = true;  // false: the tables have lost them since
    ibv_mtu mtu = IBV_MTU_1024;
    std::uint32_t max_message = std::uint32_t{1} << 30;  // bytes that an operation may have
    std::uint8_t service_level = 0, traffic_class = 0;
    std::uint32_t flow_label = 0;
};

// "fe80::1"; "0x8001".
std::string gid_text(const std::array<std::uint8_t, 16>& gid);
std::string pkey_text(std::uint16_t key);

// Takes what local_port() chooses by. Any thread, before the first use of a device.
void take_path_options(const PathOptions& options) noexcept;

// Returns the attributes of a port. Throws VerbsError.
ibv_port_attr query_port(ibv_context* context, std::uint8_t number);

// Returns the first active port of a device; 1 if none is active. Throws VerbsError.
std::uint8_t active_port(ibv_context* context);

// Describes a port, with the chosen GID, or with the best one: RoCE v2 is better than v1; then IPv4
// is better than a routable IPv6 address, and that is better than a link-local one; then the lowest
// index wins. UCX has the same preferences (uct_ib_device_select_gid). number 0: active_port().
// Throws VerbsError if the table has no entry, or if the port is not in the chosen partition. Any
// thread.
LocalPort local_port(ibv_context* context, std::uint8_t number = 0);

}  // namespace heddle::verbs
