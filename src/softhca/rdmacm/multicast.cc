// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/rdmacm/multicast.h"

#include <endian.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "softhca/base/missing.h"
#include "softhca/device/identity.h"
#include "softhca/device/multicast.h"
#include "softhca/device/port.h"
#include "softhca/rdmacm/abi.h"
#include "softhca/rdmacm/address.h"
#include "softhca/rdmacm/command.h"

namespace softhca::rdmacm {
namespace {

constexpr int kNotSupported = 524;            // the kernel's ENOTSUPP, which programs do get
constexpr std::uint8_t kMulticastGid = 0xff;  // the first byte
constexpr std::uint8_t kGroupHops = 64;       // IPV6_DEFAULT_HOPLIMIT

// A GID that a subnet manager has given (IBTA 15.2.5.17.2): the address is the GID.
bool is_assigned_gid(const CmAddress& address) noexcept {
    return address.family == AF_INET6 && address.ip[0] == 0xff && (address.ip[1] & 0xf0) == 0x10 &&
           address.ip[2] == 0xa0 && address.ip[3] == 0x1b;
}

// ip_ib_mc_map and ipv6_ib_mc_map of the kernel, for the default partition and the scope of the
// link, as IPoIB has them.
void map_to_infiniband(const CmAddress& address, std::uint8_t* gid) noexcept {
    const bool ipv4 = address.family == AF_INET;
    const std::uint8_t prefix[6] = {0xff, 0x12, std::uint8_t(ipv4 ? 0x40 : 0x60), 0x1b, 0xff, 0xff};
    std::memcpy(gid, prefix, sizeof prefix);
    if (!ipv4) {
        std::memcpy(gid + 6, address.ip + 6, 10);
        return;
    }
    std::memcpy(gid + 12, address.ip, 4);
    gid[12] &= 0x0f;
}

// The wildcard asks a subnet manager for a new group.
void assign_gid(device::Segment& segment, std::uint8_t* gid) noexcept {
    constexpr std::uint8_t kPrefix[6] = {0xff, 0x12, 0xa0, 0x1b, 0xff, 0xff};
    std::memset(gid, 0, 16);
    std::memcpy(gid, kPrefix, sizeof kPrefix);
    const std::uint32_t number = htobe32(++segment.cm_assigned_groups);
    std::memcpy(gid + 12, &number, sizeof number);
}

// A subnet manager, too, may give one LID to several groups.
std::uint16_t lid_of_group(const std::uint8_t* gid) noexcept {
    std::uint32_t mixed = 0;
    for (unsigned i = 0; i < 16; ++i)
        mixed = mixed * 31 + gid[i];
    constexpr std::uint32_t kLids = device::kLastMulticastLid - device::kFirstMulticastLid;
    return static_cast<std::uint16_t>(device::kFirstMulticastLid + 1 + mixed % kLids);
}

// cma_iboe_join_multicast. The GIDs are those of RoCE v2 (gid_index_of()).
int check_for_ethernet(const CmAddress& address) noexcept {
    if (is_any(address)) return EINVAL;
    if (address.family == AF_INET) return 0;
    return missing(kNotSupported, "groups of IPv6 and AF_IB by rdma_cm on an Ethernet port");
}

// cma_join_ib_multicast asks for the parameters of IPoIB's broadcast group, and an id that has no
// IP address knows of none.
int check_for_infiniband(const CmId& id) noexcept {
    return id.source.family == AF_IB ? EADDRNOTAVAIL : 0;
}

}  // namespace

void group_gid(const device::Port& port, const CmAddress& address, bool by_rdma_cm,
               std::uint8_t* gid) noexcept {
    std::memset(gid, 0, 16);
    const bool ethernet = port.is_ethernet();
    if (address.family == AF_IB || is_assigned_gid(address) ||
        (ethernet && address.family == AF_INET6)) {
        std::memcpy(gid, address.ip, 16);
    } else if (ethernet) {
        gid[10] = gid[11] = 0xff;
        std::memcpy(gid + 12, address.ip, 4);
    } else {
        map_to_infiniband(address, gid);
        if (by_rdma_cm) gid[3] = 0x01;
    }
}

namespace {

// Joins a group, which the program will know by `uid`.
int join(Locked& connections, CmId& id, const CmAddress& address, std::uint64_t uid,
         CmGroup** out) noexcept {
    if (!id.has_device || id.qp_type != IBV_QPT_UD ||
        (id.state != CmState::kBound && id.state != CmState::kResolved))
        return EINVAL;
    device::Segment& segment = connections.segment();
    const device::Port port = device::port_at(segment, id.source_port);
    const bool ethernet = port.is_ethernet();
    if (const int error = ethernet ? check_for_ethernet(address) : check_for_infiniband(id))
        return error;
    CmGroup* const group = connections.make_group(id);
    if (group == nullptr) return ENOMEM;
    group->uid = uid;
    rdma_ucm_event_resp event{};
    event.uid = uid;
    event.id = connections.index_of(*group);
    event.event = static_cast<std::uint32_t>(Event::kMulticastJoin);
    if (address.family == AF_IB && !is_wild(address) && address.ip[0] != kMulticastGid) {
        // Whatever else such an address is, a subnet manager refuses it.
        event.event = static_cast<std::uint32_t>(Event::kMulticastError);
        event.status = static_cast<std::uint32_t>(-EINVAL);
    }
    event.param.ud.qp_num = device::kMulticastQp;
    event.param.ud.qkey = kDefaultQkey;
    ib_uverbs_ah_attr& path = event.param.ud.ah_attr;
    path.is_global = 1;
    path.port_num = static_cast<std::uint8_t>(port.number());
    if (is_any(address) || (address.family == AF_IB && is_loopback(address)))
        assign_gid(segment, path.grh.dgid);
    else
        group_gid(port, address, id.port_space == RDMA_PS_UDP, path.grh.dgid);
    path.grh.sgid_index = static_cast<std::uint8_t>(gid_index_of(port, id.source));
    if (ethernet)
        path.grh.hop_limit = kGroupHops;
    else
        path.dlid = lid_of_group(path.grh.dgid);
    const CmReference reference{connections.index_of(*group), group->head.generation};
    if (!connections.push(id, event, {kNone, 0}, reference)) {
        connections.free_group(*group);
        return ENOMEM;
    }
    *out = group;
    return 0;
}

int join_by(const Command& command, std::uint32_t number, const CmAddress& group, std::uint64_t uid,
            std::uint64_t response) noexcept {
    rdma_ucm_create_id_resp answer{};
    return with_id(command, number, [&](Locked& connections, CmId& id) {
        CmGroup* joined = nullptr;
        if (const int error = join(connections, id, group, uid, &joined)) return error;
        answer.id = connections.index_of(*joined);
        const int error = command.answer(response, answer);
        if (error) connections.free_group(*joined);
        return error;
    });
}

}  // namespace

int join_ip_multicast(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_join_ip_mcast>();
    if (command.room < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
    CmAddress group;
    if (read_address(&wanted.addr, sizeof wanted.addr, &group)) return EINVAL;
    return join_by(command, wanted.id, group, wanted.uid, wanted.response);
}

// Send-only members differ from others for a subnet manager alone; librdmacm does not attach their
// QPs.
int join_multicast(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_join_mcast>();
    if (command.room < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
    CmAddress group;
    if (wanted.addr_size > sizeof wanted.addr ||
        read_whole_address(&wanted.addr, wanted.addr_size, &group) ||
        (wanted.join_flags != RDMA_MC_JOIN_FLAG_FULLMEMBER &&
         wanted.join_flags != RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER))
        return EINVAL;
    return join_by(command, wanted.id, group, wanted.uid, wanted.response);
}

int leave_multicast(const Command& command) noexcept {
    const auto wanted = command.as<rdma_ucm_destroy_id>();
    if (command.room < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
    rdma_ucm_destroy_id_resp answer{};
    {
        Locked connections(command.fabric);
        if (!connections) return EAGAIN;
        CmGroup* group = nullptr;
        if (const int error = connections.find_group(wanted.id, command.channel, &group))
            return error;
        answer.events_reported = group->reported;
        connections.free_group(*group);
    }
    return command.answer(wanted.response, answer);
}

}  // namespace softhca::rdmacm
