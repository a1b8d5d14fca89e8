// SPDX-License-Identifier: BSD-2-Clause
// Addresses of connections: which ones belong to this host and to the device, which ports are
// taken, and which id listens. As the kernel's cma.c.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "softhca/device/port.h"
#include "softhca/device/socket_address.h"
#include "softhca/rdmacm/locked.h"

namespace softhca::rdmacm {

// From a sockaddr of at most `size` bytes. Returns 0, or EINVAL if it is too short or of another
// family than AF_INET, AF_INET6 and AF_IB.
int read_address(const void* sockaddr, std::size_t size, CmAddress* out) noexcept;
// The same of a sockaddr of exactly that size.
int read_whole_address(const void* sockaddr, std::size_t size, CmAddress* out) noexcept;
// The size of a sockaddr of that family; 0 for another.
std::size_t address_bytes(std::uint16_t family) noexcept;
using device::write_address;

bool is_any(const CmAddress& address) noexcept;  // the wildcard of its family
bool is_loopback(const CmAddress& address) noexcept;
bool is_wild(const CmAddress& address) noexcept;  // either of them: of no device (cma_any_addr)
bool is_multicast(const CmAddress& address) noexcept;
bool is_same_host(const CmAddress& a, const CmAddress& b) noexcept;  // the port makes no difference
// Whether programs of this host, or of the fabric, have that address: one of an interface, or of a
// device's port.
bool is_of_fabric(Locked& connections, const CmAddress& address) noexcept;
// The index of the device's port that has the address: the first one for all that are no port's.
unsigned device_port_of(const device::Segment& segment, const CmAddress& address) noexcept;
// The address that a program of this host has towards that one. Its port is 0. Towards a multicast
// group to which this host has no route, it is that of the first device's port.
CmAddress source_towards(const device::Segment& segment, const CmAddress& destination) noexcept;

// Gives the id that address. With port 0 it gets a free one. Returns 0, EADDRNOTAVAIL or
// EADDRINUSE. AF_IB: ENODEV if no InfiniBand port has the GID, EPROTONOSUPPORT if the id cannot
// have the service ID.
int bind(Locked& connections, CmId& id, const CmAddress& address) noexcept;
// The id that listens there for requests to an IP address, or nullptr.
CmId* find_listener(Locked& connections, std::uint32_t port_space,
                    const CmAddress& destination) noexcept;
// Whether other ids leave the address's port to this one: 0, EADDRNOTAVAIL or EADDRINUSE.
// may_share: it may be that of ids with RDMA_OPTION_ID_REUSEADDR.
int check_port(Locked& connections, const CmId& id, const CmAddress& address,
               bool may_share) noexcept;

// The entry of that port's GID table that stands for the address.
unsigned gid_index_of(const device::Port& port, const CmAddress& address) noexcept;

}  // namespace softhca::rdmacm
