// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/local_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "heddle/detail/assert.h"
#include "heddle/error.h"

namespace heddle::verbs {
namespace {

PathOptions chosen;  // written by take_path_options(), before any device is used

std::string port_text(std::uint8_t number) { return "port " + std::to_string(number); }

// Returns how good a GID is; higher is better.
int rank(const ibv_gid_entry& entry) noexcept {
    in6_addr address;
    std::memcpy(&address, entry.gid.raw, sizeof address);
    const int version = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 4 : 0;
    if (IN6_IS_ADDR_V4MAPPED(&address)) return version + 3;
    return IN6_IS_ADDR_LINKLOCAL(&address) ? version + 1 : version + 2;
}

ibv_gid_entry entry_at(ibv_context* context, std::uint8_t number, std::uint8_t index) {
    ibv_gid_entry entry{};
    if (const int error = ibv_query_gid_ex(context, number, index, &entry, 0))
        throw VerbsError(
            "taking entry " + std::to_string(index) + " of the GID table of " + port_text(number),
            error, "FI_HEDDLE_GID_INDEX names it; `ibv_devinfo -v` shows which there are");
    return entry;
}

ibv_gid_entry best_gid(ibv_context* context, const LocalPort& port) {
    if (chosen.gid_index) return entry_at(context, port.number, *chosen.gid_index);
    if (!port.ethernet) return entry_at(context, port.number, 0);
    // The table is that of all ports. An index of more than eight bits does not fit into an address
    // vector.
    std::vector<ibv_gid_entry> table(1024);
    const ssize_t count = ibv_query_gid_table(context, table.data(), table.size(), 0);
    if (count < 0) throw VerbsError("asking for the GID table", static_cast<int>(-count));
    HEDDLE_ASSERT(static_cast<std::size_t>(count) <= table.size());
    table.resize(static_cast<std::size_t>(count));
    std::erase_if(table, [&](const ibv_gid_entry& entry) {
        return entry.port_num != port.number || entry.gid_index > UINT8_MAX;
    });
    if (table.empty())
        throw VerbsError("choosing a GID of " + port_text(port.number), ENODEV,
                         "its table is empty: give the network interface of the port an address");
    // max_element() returns the first of several equal entries, which has the lowest index.
    return *std::max_element(
        table.begin(), table.end(),
        [](const ibv_gid_entry& a, const ibv_gid_entry& b) { return rank(a) < rank(b); });
}

// The highest bit says that the port is a full member of the partition. Limited members cannot talk
// to each other (IBTA 10.9.1), so the full one is better where a table has both.
void choose_partition(ibv_context* context, int table_length, LocalPort& port) {
    constexpr std::uint16_t kFull = 0x8000;
    std::string keys;
    bool is_found = false;
    // Each entry is a file that is read: without a choice, the first one is enough.
    const int length = chosen.pkey == 0 ? std::min(table_length, 1) : table_length;
    for (int index = 0; index < length; ++index) {
        std::uint16_t raw = 0;
        if (ibv_query_pkey(context, port.number, index, &raw) != 0) continue;
        const std::uint16_t key = ntohs(raw);
        if ((key & ~kFull) == 0) continue;  // an empty entry
        keys += (keys.empty() ? "" : ", ") + pkey_text(key);
        const bool fits = chosen.pkey == 0 || ((key ^ chosen.pkey) & ~kFull) == 0;
        if (!fits || (is_found && (key & kFull) == 0)) continue;
        port.pkey = key;
        port.pkey_index = static_cast<std::uint16_t>(index);
        is_found = true;
    }
    if (!is_found && chosen.pkey != 0)
        throw VerbsError(
            "finding the partition " + pkey_text(chosen.pkey) + " at " + port_text(port.number),
            ENOENT,
            keys.empty() ? "the port has no partitions"
                         : "FI_HEDDLE_PKEY names it; the port is in " + keys);
}

}  // namespace

std::string gid_text(const std::array<std::uint8_t, 16>& gid) {
    char text[INET6_ADDRSTRLEN] = "?";
    ::inet_ntop(AF_INET6, gid.data(), text, sizeof text);
    return text;
}

std::string pkey_text(std::uint16_t key) {
    char text[8];
    std::snprintf(text, sizeof text, "0x%04x", unsigned{key});
    return text;
}

void take_path_options(const PathOptions& options) noexcept { chosen = options; }

ibv_port_attr query_port(ibv_context* context, std::uint8_t number) {
    ibv_port_attr port{};
    if (const int error = ibv_query_port(context, number, &port))
        throw VerbsError("asking for " + port_text(number), error);
    return port;
}

std::uint8_t active_port(ibv_context* context) {
    ibv_device_attr device{};
    if (const int error = ibv_query_device(context, &device))
        throw VerbsError("asking for the device's attributes", error);
    for (std::uint8_t number = 1; number <= device.phys_port_cnt; ++number) {
        ibv_port_attr port{};
        if (ibv_query_port(context, number, &port) == 0 && port.state == IBV_PORT_ACTIVE)
            return number;
    }
    return 1;
}

LocalPort local_port(ibv_context* context, std::uint8_t number) {
    HEDDLE_ASSERT(context != nullptr);
    LocalPort port;
    port.number = number != 0 ? number : active_port(context);
    const ibv_port_attr attributes = query_port(context, port.number);
    port.ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    port.grh_required = (attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
    port.lid = attributes.lid;
    port.lid_bits = attributes.lmc;
    port.mtu = attributes.active_mtu;
    // Most adapters report 2^30; the kernel's rxe 2^23 (RXE_PORT_MAX_MSG_SZ).
    if (attributes.max_msg_sz != 0)
        port.max_message = std::min(port.max_message, attributes.max_msg_sz);
    port.service_level = chosen.service_level;
    port.traffic_class = chosen.traffic_class;
    port.flow_label = chosen.flow_label;
    choose_partition(context, attributes.pkey_tbl_len, port);
    const ibv_gid_entry entry = best_gid(context, port);
    HEDDLE_ASSERT(entry.gid_index <= UINT8_MAX, "sgid_index of a path has eight bits");
    port.gid_index = static_cast<std::uint8_t>(entry.gid_index);
    port.roce_v1 = port.ethernet && entry.gid_type != IBV_GID_TYPE_ROCE_V2;
    std::copy_n(entry.gid.raw, port.gid.size(), port.gid.begin());
    return port;
}

}  // namespace heddle::verbs
