// SPDX-License-Identifier: BSD-2-Clause
// Taking a connected QP - RC, or either side of XRC - from RESET to RTS (IBTA 10.3.1, A14).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "heddle/address.h"

namespace heddle::verbs {

inline constexpr std::uint8_t kPort = 1;

// A try waits 4.096 us * 2^18 = 1.07 s for an answer, and is repeated six times: a link that flaps
// is down for seconds, and a switch may pause a port (PFC) for longer than 67 ms, the 14 of many
// programs. The kernel's rxe takes 7 retries for no limit (rxe_qp_from_attr), so that a peer that
// has died would never be noticed.
inline constexpr std::uint8_t kAckTimeout = 18, kRetries = 6;

// What the two sides agree on. The sender's numbers of one are the receiver's of the other.
struct ConnectionAttributes {
    ibv_mtu mtu = IBV_MTU_1024;
    std::uint32_t send_psn = 0, receive_psn = 0;
    std::uint8_t reads = 1;           // RDMA reads and atomics on their way, in each direction
    std::uint8_t gid_index = 0;       // own_gid(); of Ethernet ports
    std::uint8_t min_rnr_timer = 12;  // 0.64 ms: how long a sender waits that found no receive
    std::uint8_t ack_timeout = kAckTimeout, retries = kRetries;  // each side's own
};

// One step each; the masks are those of the QP's type. 0 or an errno.
// atomics: peers may use the device's, if it has any. A function without refuses that (kernel:
// set_qpc_atomic_flags()).
int to_init(ibv_qp* qp, bool atomics) noexcept;
int to_ready_to_receive(ibv_qp* qp, const QpAddress& peer,
                        const ConnectionAttributes& attributes) noexcept;
int to_ready_to_send(ibv_qp* qp, const ConnectionAttributes& attributes) noexcept;

// RDMA reads and atomics that a QP of this device can have on their way.
std::uint8_t most_reads(ibv_context* context) noexcept;
// The path to a port; by GID on Ethernet, from own_gid().
ibv_ah_attr path_to(const QpAddress& peer, std::uint8_t own_gid_index) noexcept;

// Throws VerbsError.
ibv_port_attr query_port(ibv_context* context);
QpAddress address_of(ibv_qp* qp);
void connect(ibv_qp* qp, const QpAddress& peer);

}  // namespace heddle::verbs
