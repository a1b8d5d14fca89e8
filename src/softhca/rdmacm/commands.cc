// SPDX-License-Identifier: BSD-2-Clause
// The commands of rdma/rdma_user_cm.h, as the kernel's ucma.c runs them: a header, the command, and
// the address where its answer goes. What the header says is short may be shorter than here: older
// librdmacm lacks the last fields.
#include "softhca/rdmacm/commands.h"

#include <infiniband/verbs.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/base/log.h"
#include "softhca/engine/events.h"
#include "softhca/rdmacm/address.h"
#include "softhca/rdmacm/command.h"
#include "softhca/rdmacm/connection.h"
#include "softhca/rdmacm/gid_address.h"
#include "softhca/rdmacm/multicast.h"
#include "softhca/rdmacm/route.h"
#include "softhca/uverbs/command.h"

namespace softhca::rdmacm {
namespace {

int create_id(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_create_id>();
    std::uint32_t type;
    switch (wanted.ps) {  // ucma_get_qp_type
        case RDMA_PS_TCP:
            type = IBV_QPT_RC;
            break;
        case RDMA_PS_UDP:
        case RDMA_PS_IPOIB:
            type = IBV_QPT_UD;
            break;
        case RDMA_PS_IB:
            type = wanted.qp_type;
            break;
        default:
            return EINVAL;
    }
    Locked connections(command.fabric);
    if (!connections) return EAGAIN;
    CmId* const id = connections.make(command.channel);
    if (id == nullptr) return ENOMEM;
    id->uid = wanted.uid;
    id->port_space = wanted.ps;
    id->qp_type = type;
    const rdma_ucm_create_id_resp answer{connections.index_of(*id)};
    const int error = command.answer(wanted.response, answer);
    if (error) destroy(connections, *id);
    return error;
}

int destroy_id(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_destroy_id>();
    if (command.room < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
    rdma_ucm_destroy_id_resp answer{};
    const int error = with_id(command, wanted.id, [&](Locked& connections, CmId& id) {
        answer.events_reported = id.reported;
        destroy(connections, id);
        return 0;
    });
    return error ? error : command.answer(wanted.response, answer);
}

int bind_to(const Command& command, std::uint32_t number, const CmAddress& address) noexcept {
    return with_id(command, number, [&](Locked& connections, CmId& id) {
        if (id.state != CmState::kIdle) return EINVAL;
        return bind(connections, id, address);
    });
}

// librdmacm tries once whether a wildcard of AF_IB can be bound. Where it can, as in the kernel on
// both kinds of port, it takes BIND, RESOLVE_ADDR, QUERY and JOIN_MCAST for IP addresses, too.
// The commands for IP addresses have no room for AF_IB.
int bind_ip(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_bind_ip>();
    CmAddress address;
    if (read_address(&wanted.addr, sizeof wanted.addr, &address)) return EINVAL;
    return bind_to(command, wanted.id, address);
}

int bind_any(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_bind>();
    CmAddress address;
    if (wanted.reserved || wanted.addr_size > sizeof wanted.addr ||
        read_whole_address(&wanted.addr, wanted.addr_size, &address))
        return EINVAL;
    return bind_to(command, wanted.id, address);
}

int resolved(Locked& connections, CmId& id) noexcept {
    id.has_device = 1;
    id.state = CmState::kResolved;
    tell(connections, id, Event::kAddressResolved);
    return 0;
}

// source: may have no address. What resolving finds is an event.
int resolve(Locked& connections, CmId& id, const CmAddress* source,
            const CmAddress& destination) noexcept {
    const bool by_gid = destination.family == AF_IB;
    if (id.state == CmState::kIdle) {
        const CmAddress from = source != nullptr ? *source
                               : by_gid          ? wildcard_towards(destination)
                                        : source_towards(connections.segment(), destination);
        if (const int error = bind(connections, id, from)) return error;
    }
    if (id.state != CmState::kBound && id.state != CmState::kResolved) return EINVAL;
    if (id.source.family != destination.family) return EINVAL;
    if (by_gid) {
        if (const int error = choose_ports(connections.segment(), id, destination)) return error;
        id.destination = destination;
        return resolved(connections, id);
    }
    if (!is_multicast(destination) && !is_of_fabric(connections, destination)) {
        tell(connections, id, Event::kAddressError, -EHOSTUNREACH);
        return 0;
    }
    // A wildcard has a port by now; the address is what the destination sees.
    if (is_any(id.source)) {
        const std::uint16_t port = id.source.port;
        id.source = source_towards(connections.segment(), destination);
        id.source.port = port;
        id.source_port = device_port_of(connections.segment(), id.source);
    }
    id.destination = destination;
    if (is_any(destination)) std::memcpy(id.destination.ip, id.source.ip, sizeof id.source.ip);
    id.destination_port = device_port_of(connections.segment(), id.destination);
    return resolved(connections, id);
}

int resolve_from(const Command& command, std::uint32_t number, const CmAddress& source,
                 const CmAddress& destination) noexcept {
    return with_id(command, number, [&](Locked& connections, CmId& id) {
        return resolve(connections, id, source.family != 0 ? &source : nullptr, destination);
    });
}

int resolve_ip(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_resolve_ip>();
    CmAddress from{}, to;
    if (read_address(&wanted.dst_addr, sizeof wanted.dst_addr, &to) ||
        (wanted.src_addr.sin6_family != 0 &&
         read_address(&wanted.src_addr, sizeof wanted.src_addr, &from)))
        return EINVAL;
    return resolve_from(command, wanted.id, from, to);
}

int resolve_addr(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_resolve_addr>();
    CmAddress from{}, to;
    if (wanted.reserved || wanted.src_size > sizeof wanted.src_addr ||
        wanted.dst_size > sizeof wanted.dst_addr ||
        read_whole_address(&wanted.dst_addr, wanted.dst_size, &to) ||
        (wanted.src_size != 0 && read_whole_address(&wanted.src_addr, wanted.src_size, &from)))
        return EINVAL;
    return resolve_from(command, wanted.id, from, to);
}

int take_route(Locked& connections, CmId& id) noexcept {
    if (id.state != CmState::kResolved) return EINVAL;
    id.state = CmState::kRouted;
    tell(connections, id, Event::kRouteResolved);
    return 0;
}

int find_route(Locked& connections, CmId& id) noexcept {
    if (id.state != CmState::kResolved) return EINVAL;
    const int error = check_route(connections.segment(), id);
    if (error >= 0) return error > 0 ? error : take_route(connections, id);
    tell(connections, id, Event::kRouteError, error);
    return 0;
}

int resolve_route(const Command& command) noexcept {
    return with_id(command, command.as<rdma_ucm_resolve_route>().id, find_route);
}

int query_route(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_query>();
    rdma_ucm_query_route_resp answer;
    const int error = with_id(command, wanted.id, [&](Locked& connections, CmId& id) {
        answer = route_of(connections.segment(), id);
        return 0;
    });
    if (error) return error;
    return command.answer(wanted.response, &answer, sizeof answer,
                          offsetof(rdma_ucm_query_route_resp, ibdev_index));
}

int query(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_query>();
    return with_id(command, wanted.id, [&](Locked& connections, CmId& id) {
        constexpr std::size_t kLeast = offsetof(rdma_ucm_query_addr_resp, ibdev_index);
        const device::Segment& segment = connections.segment();
        switch (wanted.option) {
            case RDMA_USER_CM_QUERY_ADDR: {
                const auto answer = addresses_of(segment, id);
                return command.answer(wanted.response, &answer, sizeof answer, kLeast);
            }
            case RDMA_USER_CM_QUERY_GID: {
                const auto answer = gids_of(segment, id);
                return command.answer(wanted.response, &answer, sizeof answer, kLeast);
            }
            case RDMA_USER_CM_QUERY_PATH: {
                PathAnswer answer;
                const std::size_t bytes = path_of(segment, id, &answer);
                return command.answer(wanted.response, &answer, bytes, offsetof(PathAnswer, path));
            }
            default:
                return ENOSYS;
        }
    });
}

int connect_id(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_connect>();
    return with_id(command, wanted.id, [&](Locked& connections, CmId& id) {
        return connect(connections, id, wanted.conn_param, wanted.ece);
    });
}

int listen_id(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_listen>();
    return with_id(command, wanted.id, [&](Locked& connections, CmId& id) {
        return listen(connections, id, wanted.backlog);
    });
}

int accept_id(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_accept>();
    return with_id(command, wanted.id, [&](Locked& connections, CmId& id) {
        return wanted.conn_param.valid
                   ? accept(connections, id, wanted.uid, wanted.conn_param, wanted.ece)
                   : confirm(connections, id);
    });
}

int reject_id(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_reject>();
    return with_id(command, wanted.id, [&](Locked& connections, CmId& id) {
        return reject(connections, id, wanted.reason, wanted.private_data, wanted.private_data_len);
    });
}

int disconnect_id(const Command& command) noexcept {
    return with_id(command, command.as<rdma_ucm_disconnect>().id, disconnect);
}

int init_qp_attr(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_init_qp_attr>();
    if (wanted.qp_state > IBV_QPS_ERR) return EINVAL;
    ib_uverbs_qp_attr answer;
    const int error = with_id(command, wanted.id, [&](Locked& connections, CmId& id) {
        return qp_attributes(connections.segment(), id, wanted.qp_state, &answer);
    });
    return error ? error : command.answer(wanted.response, answer);
}

int get_event(const Command& command) noexcept {
    constexpr std::size_t kLeast = offsetof(rdma_ucm_event_resp, reserved);
    const auto wanted = command.as<rdma_ucm_get_event>();
    if (command.room < kLeast) return ENOSPC;
    rdma_ucm_event_resp event;
    {
        Locked connections(command.fabric);
        if (!connections || !connections.pop(command.channel, command.is_rung, &event))
            return EAGAIN;
    }
    return command.answer(wanted.response, &event, sizeof event, kLeast);
}

int set_id_option(CmId& id, const rdma_ucm_set_option& wanted) noexcept {
    std::uint8_t byte = 0;
    std::uint32_t word = 0;
    const bool is_byte =
        wanted.optname == RDMA_OPTION_ID_TOS || wanted.optname == RDMA_OPTION_ID_ACK_TIMEOUT;
    if (wanted.optlen != (is_byte ? sizeof byte : sizeof word)) return EINVAL;
    if (is_byte ? uverbs::copy_in(&byte, wanted.optval, sizeof byte)
                : uverbs::copy_in(&word, wanted.optval, sizeof word))
        return EFAULT;
    switch (wanted.optname) {
        case RDMA_OPTION_ID_TOS:
            id.traffic_class = byte;
            return 0;
        case RDMA_OPTION_ID_REUSEADDR:
            if (id.state != CmState::kIdle && !(id.state == CmState::kBound && !word))
                return EINVAL;
            id.reuse_address = word != 0;
            return 0;
        case RDMA_OPTION_ID_AFONLY:
            if (id.state != CmState::kIdle && id.state != CmState::kBound) return EINVAL;
            id.one_family = word != 0;
            return 0;
        case RDMA_OPTION_ID_ACK_TIMEOUT:
            if (byte > 31) return EINVAL;
            id.ack_timeout = byte;
            return 0;
        default:
            return ENOSYS;
    }
}

int set_option(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_set_option>();
    return with_id(command, wanted.id, [&](Locked& connections, CmId& id) {
        if (wanted.level == RDMA_OPTION_ID) return set_id_option(id, wanted);
        if (wanted.level != RDMA_OPTION_IB || wanted.optname != RDMA_OPTION_IB_PATH) return ENOSYS;
        // There is one path between any two ports: whatever the program found is that.
        if (wanted.optlen == 0 || wanted.optlen % sizeof(ib_path_rec_data) != 0) return EINVAL;
        return take_route(connections, id);
    });
}

int notify(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_notify>();
    if (wanted.event != IBV_EVENT_COMM_EST) return EINVAL;
    return with_id(command, wanted.id, communication_established);
}

int migrate_id(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_migrate_id>();
    if (command.room < sizeof(rdma_ucm_migrate_resp)) return ENOSPC;
    const std::uint32_t from = engine::find_channel(static_cast<int>(wanted.fd));
    if (!engine::is_channel(command.fabric.segment(), from, device::ChannelKind::kConnection))
        return EINVAL;
    rdma_ucm_migrate_resp answer{};
    {
        Locked connections(command.fabric);
        if (!connections) return EAGAIN;
        CmId* id = nullptr;
        if (const int error = connections.find(wanted.id, from, &id)) return error;
        connections.move(*id, command.channel);
        answer.events_reported = id->reported;
    }
    return command.answer(wanted.response, answer);
}

// librdmacm 61 and newer puts the end of rdma_resolve_addrinfo() into the queue so.
int write_event(const Command& command) noexcept {
    const auto wanted = command.as<WriteEvent>();
    const auto event = static_cast<Event>(wanted.event);
    if (event != Event::kUser && event != Event::kInternal) return EINVAL;
    return with_id(command, wanted.id, [&](Locked& connections, CmId& id) {
        const bool is_queued =
            tell(connections, id, event, static_cast<int>(wanted.status), wanted.argument);
        return is_queued ? 0 : ENOMEM;
    });
}

int no_option(const Command&) noexcept { return ENOSYS; }
// There is no subnet administration, which could know of services.
int resolve_ib_service(const Command&) noexcept { return EOPNOTSUPP; }

struct Entry {
    const char* name;
    int (*run)(const Command&) noexcept;
    std::size_t least;  // bytes that a command must have: older libraries lack the rest
};

constexpr Entry kEntries[] = {
    {"CREATE_ID", create_id, sizeof(rdma_ucm_create_id)},
    {"DESTROY_ID", destroy_id, sizeof(rdma_ucm_destroy_id)},
    {"BIND_IP", bind_ip, sizeof(rdma_ucm_bind_ip)},
    {"RESOLVE_IP", resolve_ip, sizeof(rdma_ucm_resolve_ip)},
    {"RESOLVE_ROUTE", resolve_route, sizeof(rdma_ucm_resolve_route)},
    {"QUERY_ROUTE", query_route, sizeof(rdma_ucm_query)},
    {"CONNECT", connect_id, offsetof(rdma_ucm_connect, ece)},
    {"LISTEN", listen_id, sizeof(rdma_ucm_listen)},
    {"ACCEPT", accept_id, offsetof(rdma_ucm_accept, ece)},
    {"REJECT", reject_id, sizeof(rdma_ucm_reject)},
    {"DISCONNECT", disconnect_id, sizeof(rdma_ucm_disconnect)},
    {"INIT_QP_ATTR", init_qp_attr, sizeof(rdma_ucm_init_qp_attr)},
    {"GET_EVENT", get_event, sizeof(rdma_ucm_get_event)},
    {"GET_OPTION", no_option, 0},
    {"SET_OPTION", set_option, sizeof(rdma_ucm_set_option)},
    {"NOTIFY", notify, sizeof(rdma_ucm_notify)},
    {"JOIN_IP_MCAST", join_ip_multicast, sizeof(rdma_ucm_join_ip_mcast)},
    {"LEAVE_MCAST", leave_multicast, sizeof(rdma_ucm_destroy_id)},
    {"MIGRATE_ID", migrate_id, sizeof(rdma_ucm_migrate_id)},
    {"QUERY", query, sizeof(rdma_ucm_query)},
    {"BIND", bind_any, sizeof(rdma_ucm_bind)},
    {"RESOLVE_ADDR", resolve_addr, sizeof(rdma_ucm_resolve_addr)},
    {"JOIN_MCAST", join_multicast, sizeof(rdma_ucm_join_mcast)},
    {"RESOLVE_IB_SERVICE", resolve_ib_service, 0},
    {"WRITE_CM_EVENT", write_event, sizeof(WriteEvent)},
};
static_assert(std::size(kEntries) == kWriteEventCommand + 1);

int read_header(const void* from, std::size_t size, rdma_ucm_cmd_hdr* out) noexcept {
    if (size < sizeof *out) return EINVAL;
    return uverbs::copy_in(out, reinterpret_cast<std::uintptr_t>(from), sizeof *out) ? EFAULT : 0;
}

}  // namespace

bool may_wait(const void* from, std::size_t size) noexcept {
    rdma_ucm_cmd_hdr header;
    return read_header(from, size, &header) == 0 && header.cmd == RDMA_USER_CM_CMD_GET_EVENT;
}

int run_command(device::Fabric& fabric, std::uint32_t channel, const void* from, std::size_t size,
                bool is_rung) noexcept {
    rdma_ucm_cmd_hdr header;
    if (const int error = read_header(from, size, &header)) return error;
    if (header.cmd >= std::size(kEntries)) return EINVAL;
    if (header.in + sizeof header > size) return EINVAL;
    const Entry& entry = kEntries[header.cmd];
    Command command{fabric, channel, is_rung, header.out, header.in};
    if (command.bytes < entry.least) return EINVAL;
    const std::size_t bytes = std::min<std::size_t>(command.bytes, kMostBytes);
    if (uverbs::copy_in(command.in.data(), reinterpret_cast<std::uintptr_t>(from) + sizeof header,
                        bytes))
        return EFAULT;
    const int error = entry.run(command);
    SOFTHCA_ASSERT(error >= 0);
    if (error != EAGAIN) LOG_TRACE("rdma_cm: %s: errno %d", entry.name, error);
    return error;
}

}  // namespace softhca::rdmacm
