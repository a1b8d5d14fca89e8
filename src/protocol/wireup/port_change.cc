// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/wireup/port_change.h"

#include <arpa/inet.h>

#include <cstring>
#include <new>
#include <optional>
#include <utility>

namespace heddle::protocol {
namespace {

// Where the table has the GID of that RoCE version now.
std::optional<std::uint8_t> find_gid(ibv_context* context, const verbs::LocalPort& port) {
    for (unsigned index = 0; index <= UINT8_MAX; ++index) {
        ibv_gid_entry entry{};
        if (ibv_query_gid_ex(context, port.number, index, &entry, 0) != 0) continue;
        const bool is_v1 = port.ethernet && entry.gid_type != IBV_GID_TYPE_ROCE_V2;
        if (is_v1 == port.roce_v1 &&
            std::memcmp(entry.gid.raw, port.gid.data(), port.gid.size()) == 0)
            return static_cast<std::uint8_t>(index);
    }
    return {};
}

std::optional<std::uint16_t> find_pkey(ibv_context* context, const verbs::LocalPort& port,
                                       int table_length) {
    for (int index = 0; index < table_length; ++index) {
        std::uint16_t raw = 0;
        if (ibv_query_pkey(context, port.number, index, &raw) == 0 && ntohs(raw) == port.pkey)
            return static_cast<std::uint16_t>(index);
    }
    return {};
}

// Takes note of where an entry of a table is now, if it is there. Returns whether the user should
// know: it has gone, or come back.
template <class Index>
bool follow(std::optional<Index> found, Index& index, bool& is_there, const std::string& entry,
            const char* consequence, std::string& text) {
    const bool was_there = std::exchange(is_there, found.has_value());
    if (!found) {
        if (was_there) text = "has lost " + entry + ": " + consequence;
        return was_there;
    }
    if (!was_there)
        text = "has " + entry + " again";
    else if (*found != index)
        text = "has " + entry + " at index " + std::to_string(*found) + " now";
    index = *found;
    return !was_there;
}

void look(ibv_context* context, ibv_event_type event, PortChange& change) {
    verbs::LocalPort& port = change.now;
    ibv_port_attr attributes{};
    if (ibv_query_port(context, port.number, &attributes) != 0) return;
    port.mtu = attributes.active_mtu;
    switch (event) {
        case IBV_EVENT_PORT_ERR:
            if (attributes.state == IBV_PORT_ACTIVE) return;
            change.text =
                "is down: messages wait for it, and end with an error after all tries "
                "(FI_HEDDLE_TIMEOUT and FI_HEDDLE_RETRY)";
            return;
        case IBV_EVENT_PORT_ACTIVE:
            change.text = "is up";
            return;
        case IBV_EVENT_LID_CHANGE:
            if (attributes.lid == port.lid) return;
            change.text = "has the LID " + std::to_string(attributes.lid) + " instead of " +
                          std::to_string(port.lid) +
                          ": peers that have the names of this process's endpoints look for it at "
                          "the old one";
            port.lid = attributes.lid;
            return;
        case IBV_EVENT_GID_CHANGE:
            change.is_for_user =
                follow(find_gid(context, port), port.gid_index, port.has_gid,
                       "its GID " + verbs::gid_text(port.gid),
                       "this process can make no connections until it is back", change.text);
            return;
        case IBV_EVENT_PKEY_CHANGE:
            change.is_for_user = follow(find_pkey(context, port, attributes.pkey_tbl_len),
                                        port.pkey_index, port.has_pkey, "this process's partition",
                                        "its messages are lost until it is back", change.text);
            return;
        default:
            return;
    }
}

}  // namespace

PortChange port_change(ibv_context* context, const verbs::LocalPort& before,
                       ibv_event_type event) noexcept {
    PortChange change{before, {}, true};
    try {
        look(context, event, change);
    } catch (const std::bad_alloc&) {
        change.text.clear();  // then it is not said
    }
    return change;
}

}  // namespace heddle::protocol
