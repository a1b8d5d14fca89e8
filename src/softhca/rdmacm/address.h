// SPDX-License-Identifier: BSD-2-Clause
// Addresses of connections: which ones belong to this host and to the device, which ports are
// taken, and which id listens. As the kernel's cma.c.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "softhca/device/port.h"
#include "softhca/rdmacm/locked.h"

namespace softhca::rdmacm {

// From a sockaddr of at most `size` bytes. Returns 0, EINVAL if it is too short, or EAFNOSUPPORT
// for another family than AF_INET and AF_INET6.
int read_address(const void* sockaddr, std::size_t size, CmAddress* out) noexcept;
// To a sockaddr, whose size is returned; 0 for no address. `room` must be 28 bytes at least.
std::size_t write_address(const CmAddress& address, void* sockaddr) noexcept;

bool is_any(const CmAddress& address) noexcept;  // the wildcard of its family
bool is_loopback(const CmAddress& address) noexcept;
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
// EADDRINUSE.
int bind(Locked& connections, CmId& id, const CmAddress& address) noexcept;
// The id that listens there, or nullptr.
CmId* find_listener(Locked& connections, std::uint32_t port_space,
                    const CmAddress& destination) noexcept;
// Whether other ids leave the address's port to this one: 0, EADDRNOTAVAIL or EADDRINUSE.
// may_share: it may be that of ids with RDMA_OPTION_ID_REUSEADDR.
int check_port(Locked& connections, const CmId& id, const CmAddress& address,
               bool may_share) noexcept;

// The entry of that port's GID table that stands for the address.
unsigned gid_index_of(const device::Port& port, const CmAddress& address) noexcept;

}  // namespace softhca::rdmacm
