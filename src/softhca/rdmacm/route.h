// SPDX-License-Identifier: BSD-2-Clause
// What a program asks of an id: its addresses, its path, and the attributes for its QP. The caller
// holds the lock. As the kernel's ucma.c, cm.c (cm_init_qp_*_attr) and cma.c.
#pragma once

#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include <cstddef>

#include "softhca/rdmacm/locked.h"

namespace softhca::rdmacm {

// The address vector towards the id's destination.
ib_uverbs_ah_attr path_to(const device::Segment& segment, const CmId& id) noexcept;

rdma_ucm_query_route_resp route_of(const device::Segment& segment, const CmId& id) noexcept;
rdma_ucm_query_addr_resp addresses_of(const device::Segment& segment, const CmId& id) noexcept;
rdma_ucm_query_addr_resp gids_of(const device::Segment& segment, const CmId& id) noexcept;
// Header and path; how much of it there is says the result.
struct PathAnswer {  // struct rdma_ucm_query_path_resp and its array
    std::uint32_t paths, reserved;
    ib_path_rec_data path;
};
std::size_t path_of(const device::Segment& segment, const CmId& id, PathAnswer* out) noexcept;

// For the change to `state` (enum ib_qp_state). Returns 0, EINVAL if the connection is not so far,
// or ENOENT if the port does not have the partition key of an address of AF_IB.
int qp_attributes(const device::Segment& segment, const CmId& id, std::uint32_t state,
                  ib_uverbs_qp_attr* out) noexcept;

// A packet sequence number to begin with, of 24 bits.
std::uint32_t random_psn() noexcept;

}  // namespace softhca::rdmacm
