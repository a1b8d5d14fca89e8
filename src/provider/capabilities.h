// SPDX-License-Identifier: BSD-2-Clause
// Capabilities, orders and modes that the provider supports, in the bits of fi_getinfo(3).
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstdint>

namespace heddle::provider {

// fi_getinfo(3): a program gets a primary capability only if it requests it. A secondary capability
// may be there without a request. Modifiers restrict messages and RMA to one direction.
inline constexpr std::uint64_t kPrimaryCaps =
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV;
inline constexpr std::uint64_t kMessageDirections = FI_SEND | FI_RECV;
inline constexpr std::uint64_t kRmaDirections =
    FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
inline constexpr std::uint64_t kSecondaryCaps =
    FI_MULTI_RECV | FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM;
inline constexpr std::uint64_t kCaps =
    kPrimaryCaps | kMessageDirections | kRmaDirections | kSecondaryCaps;

inline constexpr std::uint64_t kTransmitCaps =
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
inline constexpr std::uint64_t kReceiveCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV |
                                              FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV |
                                              FI_DIRECTED_RECV | FI_SOURCE;

// Messages are matched in the order in which they were sent. A queue pair executes the reads and
// writes between two endpoints in order, except that a write may overtake an earlier read.
// An atomic is a message to the peer, and the peer executes atomics one after the other.
inline constexpr std::uint64_t kMessageOrder =
    FI_ORDER_SAS | FI_ORDER_SAW | FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW |
    FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;

// What programs must comply with: RMA addresses are virtual addresses, keys come from the device,
// and registered memory has pages behind it.
inline constexpr int kMrMode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

}  // namespace heddle::provider
