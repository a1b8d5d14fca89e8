// SPDX-License-Identifier: BSD-2-Clause
// Addresses of the family AF_IB: a GID, a partition key and a service ID instead of an IP address
// and a port. As the kernel's cma.c. Only ports of the link layer InfiniBand have them; wildcards
// belong to no port, so those of Ethernet serve them, too.
#pragma once

#include <cstdint>

#include "softhca/device/port.h"
#include "softhca/rdmacm/locked.h"

namespace softhca::rdmacm {

// The service ID of a request from that id to that address (rdma_get_service_id).
std::uint64_t service_of(const CmId& id, const CmAddress& to) noexcept;
// The port space that an address of the id takes its port from: of AF_IB, the one that the service
// ID names (cma_select_ib_ps).
std::uint32_t space_of(const CmId& id, const CmAddress& address) noexcept;
// Completes the service ID of an address that the id gets: with a mask that leaves out the space,
// the id's own. Returns 0, or EPROTONOSUPPORT if the id cannot be of the space that it names.
int choose_space(const CmId& id, CmAddress* address) noexcept;
// The address with that port (network byte order) in its service ID.
CmAddress with_port(const CmAddress& address, std::uint16_t port) noexcept;

// The index of the InfiniBand port that has the GID of 16 bytes, or kNone.
std::uint32_t find_port_of_gid(const device::Segment& segment, const std::uint8_t* gid) noexcept;
// An address of AF_IB for that GID, in the partition of that key.
CmAddress address_of_gid(const std::uint8_t* gid, std::uint16_t pkey) noexcept;
// The wildcard that an id gets which resolves `destination` without a source (cma_bind_addr).
CmAddress wildcard_towards(const CmAddress& destination) noexcept;

// Gives a bound id the ports on the way to that destination of AF_IB (cma_resolve_ib_dev,
// cma_bind_loopback). A destination that no port has passes here; it has no route. Returns 0, or
// ENODEV if no port of the device is of the destination's subnet and partition.
int choose_ports(const device::Segment& segment, CmId& id, const CmAddress& destination) noexcept;
// Whether a path leads from the id, which is resolved, to its destination: 0, an errno, or a
// negative one if a subnet manager would find none.
int check_route(const device::Segment& segment, const CmId& id) noexcept;

// The partition key of the id's path.
std::uint16_t path_pkey(const CmId& id) noexcept;
// Whether the port's table of partition keys has that key (ib_find_cached_pkey).
bool has_pkey(const device::Port& port, std::uint16_t pkey) noexcept;

}  // namespace softhca::rdmacm
