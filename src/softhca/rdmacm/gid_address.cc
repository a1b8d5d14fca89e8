// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/rdmacm/gid_address.h"

#include <endian.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "softhca/device/identity.h"
#include "softhca/device/port.h"
#include "softhca/rdmacm/address.h"

namespace softhca::rdmacm {
namespace {

constexpr std::uint64_t kSpaceMask = 0xffff'ffff'ffff'0000ULL;  // RDMA_IB_IP_PS_MASK
constexpr std::uint16_t kFullMember = 0x8000;                   // of a partition (IBTA 10.9.1.1)

bool is_default_partition(std::uint16_t pkey) noexcept {
    return (pkey | kFullMember) == device::kDefaultPkey;
}

bool is_in_subnet(const device::GidEntry& port, const std::uint8_t* gid) noexcept {
    return device::ip_address(gid).high == port.high;
}

// The first port whose link is up, or else the first.
unsigned first_active_port(const device::Segment& segment) noexcept {
    for (unsigned index = 0; index < device::port_count(segment); ++index)
        if (device::port_at(segment, index).is_up()) return index;
    return 0;
}

// The port that sends to the destination: the one that has it, or the first that is active in the
// same subnet, whichever comes first. kNone: there is none.
std::uint32_t find_source_port(const device::Segment& segment,
                               const CmAddress& destination) noexcept {
    for (unsigned index = 0; index < device::port_count(segment); ++index) {
        const device::Port port = device::port_at(segment, index);
        if (port.is_ethernet() || !has_pkey(port, destination.pkey)) continue;
        if (find_port_of_gid(segment, destination.ip) == index ||
            (port.is_up() && is_in_subnet(port.gid(0), destination.ip)))
            return index;
    }
    return kNone;
}

}  // namespace

std::uint64_t service_of(const CmId& id, const CmAddress& to) noexcept {
    if (to.family == AF_IB) return to.service;
    return (std::uint64_t{id.port_space} << 16) + be16toh(to.port);
}

std::uint32_t space_of(const CmId& id, const CmAddress& address) noexcept {
    return address.family == AF_IB ? static_cast<std::uint32_t>(address.service >> 16 & 0xffff)
                                   : id.port_space;
}

int choose_space(const CmId& id, CmAddress* address) noexcept {
    const std::uint64_t mask = address->service_mask & kSpaceMask;
    const bool may_be_any = id.port_space == RDMA_PS_IB;
    for (const std::uint64_t space : {RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP}) {
        const std::uint64_t named = space << 16;
        if ((!may_be_any && id.port_space != space) || ((address->service ^ named) & mask) != 0)
            continue;
        address->service = named | be16toh(address->port);
        address->service_mask |= kSpaceMask;
        return 0;
    }
    return EPROTONOSUPPORT;
}

CmAddress with_port(const CmAddress& address, std::uint16_t port) noexcept {
    CmAddress out = address;
    out.port = port;
    if (out.family == AF_IB) {
        out.service = (out.service & kSpaceMask) | be16toh(port);
        out.service_mask = ~std::uint64_t{0};
    }
    return out;
}

std::uint32_t find_port_of_gid(const device::Segment& segment, const std::uint8_t* gid) noexcept {
    const device::IpAddress wanted = device::ip_address(gid);
    for (unsigned index = 0; index < device::port_count(segment); ++index) {
        const device::Port port = device::port_at(segment, index);
        const device::GidEntry own = port.gid(0);
        if (!port.is_ethernet() && device::IpAddress{own.high, own.low} == wanted) return index;
    }
    return kNone;
}

CmAddress address_of_gid(const std::uint8_t* gid, std::uint16_t pkey) noexcept {
    CmAddress out{};
    out.family = AF_IB;
    out.pkey = pkey;
    std::memcpy(out.ip, gid, sizeof out.ip);
    return out;
}

CmAddress wildcard_towards(const CmAddress& destination) noexcept {
    CmAddress out{};
    out.family = AF_IB;
    out.pkey = destination.pkey;
    return out;
}

int choose_ports(const device::Segment& segment, CmId& id, const CmAddress& destination) noexcept {
    if (is_wild(destination)) {
        if (!id.has_device) {
            id.source_port = first_active_port(segment);
            std::memcpy(id.source.ip, &in6addr_loopback, sizeof in6addr_loopback);
        }
        id.destination_port = id.source_port;
        return 0;
    }
    if (!id.has_device) {
        const std::uint32_t port = find_source_port(segment, destination);
        if (port == kNone) return ENODEV;
        id.source_port = port;
        device::port_at(segment, port).gid(0).copy_to(id.source.ip);
    }
    id.destination_port = find_port_of_gid(segment, destination.ip);
    return 0;
}

int check_route(const device::Segment& segment, const CmId& id) noexcept {
    if (id.source.family != AF_IB) return 0;
    // cma_resolve_iboe_route: the path of a wildcard begins at no interface.
    if (device::port_at(segment, id.source_port).is_ethernet()) return ENODEV;
    return id.destination_port == kNone || !is_default_partition(path_pkey(id)) ? -EINVAL : 0;
}

std::uint16_t path_pkey(const CmId& id) noexcept {
    return id.source.family == AF_IB && !is_loopback(id.source) ? id.source.pkey
                                                                : device::kDefaultPkey;
}

bool has_pkey(const device::Port& port, std::uint16_t pkey) noexcept {
    // The unused entries of the table are 0.
    return is_default_partition(pkey) ||
           ((pkey | kFullMember) == kFullMember && port.pkey_table_length() > 1);
}

}  // namespace softhca::rdmacm
