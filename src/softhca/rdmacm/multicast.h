// SPDX-License-Identifier: BSD-2-Clause
// Multicast groups of rdma_cm: which group an address stands for, and joining it (the kernel's
// cma.c). A join is an event with the group's address. librdmacm then attaches the QP by a command
// of uverbs. There is no subnet manager, so a join makes nothing in the fabric.
#pragma once

#include <cstdint>

#include "softhca/device/port.h"
#include "softhca/rdmacm/locked.h"

namespace softhca::rdmacm {

// The GID (16 bytes) of the group that the address stands for. by_rdma_cm: as rdma_cm's own groups,
// which differ from those of IPoIB (cma_set_mgid, cma_iboe_set_mgid).
void group_gid(const device::Port& port, const CmAddress& address, bool by_rdma_cm,
               std::uint8_t* gid) noexcept;

struct Command;

// The commands. Each returns 0 or an errno.
int join_ip_multicast(const Command& command) noexcept;
int join_multicast(const Command& command) noexcept;
int leave_multicast(const Command& command) noexcept;

}  // namespace softhca::rdmacm
