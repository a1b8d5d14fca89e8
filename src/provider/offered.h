// SPDX-License-Identifier: BSD-2-Clause
// Capabilities, orders and modes that are offered, as fi_getinfo has them.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstdint>

namespace heddle::provider {

// What a program has to ask for to get; then what says which direction; then what comes with it.
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

// Messages are matched in the order they were sent in; a queue pair executes what one endpoint
// writes and reads at another in order, but for a write after a read, which may overtake it;
// atomics are messages to the peer, which does them one after the other.
inline constexpr std::uint64_t kMessageOrder =
    FI_ORDER_SAS | FI_ORDER_SAW | FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW |
    FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;

// What a program has to go by: addresses and keys are the device's, memory has to be there.
inline constexpr int kMrMode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

}  // namespace heddle::provider
