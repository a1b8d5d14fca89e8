// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/gid.h"

#include <netinet/in.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "verbs/connection.h"

namespace heddle::verbs {
namespace {

constexpr int kBest = -1;
std::atomic<int> wanted_index{kBest};  // written by take_gid_index()

OwnGid to_own_gid(const ibv_gid_entry& entry) noexcept {
    HEDDLE_ASSERT(entry.gid_index <= UINT8_MAX, "sgid_index of a path has eight bits");
    OwnGid gid;
    gid.index = static_cast<std::uint8_t>(entry.gid_index);
    std::copy_n(entry.gid.raw, gid.raw.size(), gid.raw.begin());
    return gid;
}

// Returns how good a GID is; higher is better.
int rank(const ibv_gid_entry& entry) noexcept {
    in6_addr address;
    std::memcpy(&address, entry.gid.raw, sizeof address);
    const int version = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 4 : 0;
    if (IN6_IS_ADDR_V4MAPPED(&address)) return version + 3;
    return IN6_IS_ADDR_LINKLOCAL(&address) ? version + 1 : version + 2;
}

OwnGid entry_at(ibv_context* context, std::uint8_t index) {
    ibv_gid_entry entry{};
    if (const int error = ibv_query_gid_ex(context, kPort, index, &entry, 0))
        throw VerbsError("taking entry " + std::to_string(index) + " of port 1's GID table", error,
                         "FI_HEDDLE_GID_INDEX names it; `ibv_devinfo -v` shows which there are");
    return to_own_gid(entry);
}

}  // namespace

void take_gid_index(std::optional<std::uint8_t> index) noexcept {
    wanted_index.store(index ? *index : kBest, std::memory_order_relaxed);
}

OwnGid own_gid(ibv_context* context) {
    if (const int wanted = wanted_index.load(std::memory_order_relaxed); wanted != kBest)
        return entry_at(context, static_cast<std::uint8_t>(wanted));
    const ibv_port_attr port = query_port(context);
    if (port.link_layer != IBV_LINK_LAYER_ETHERNET) return entry_at(context, 0);
    // The table is that of all ports. An index of more than eight bits does not fit into an address
    // vector.
    std::vector<ibv_gid_entry> table(1024);
    const ssize_t count = ibv_query_gid_table(context, table.data(), table.size(), 0);
    if (count < 0) throw VerbsError("asking for the GID table", static_cast<int>(-count));
    HEDDLE_ASSERT(static_cast<std::size_t>(count) <= table.size());
    table.resize(static_cast<std::size_t>(count));
    std::erase_if(table, [](const ibv_gid_entry& entry) {
        return entry.port_num != kPort || entry.gid_index > UINT8_MAX;
    });
    if (table.empty())
        throw VerbsError("choosing a GID of port 1", ENODEV,
                         "its table is empty: give the network interface of the port an address");
    // max_element() returns the first of several equal entries, which has the lowest index.
    return to_own_gid(*std::max_element(
        table.begin(), table.end(),
        [](const ibv_gid_entry& a, const ibv_gid_entry& b) { return rank(a) < rank(b); }));
}

}  // namespace heddle::verbs
