// SPDX-License-Identifier: BSD-2-Clause
// Takes a connected QP - RC, or either side of XRC - from RESET to RTS (IBTA 10.3.1, A14).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "heddle/address.h"
#include "verbs/local_port.h"

namespace heddle::verbs {

// A try waits 4.096 us * 2^18 = 1.07 s for an acknowledgement, and the device repeats it six times.
// A link that flaps is down for seconds, and a switch may pause a port (PFC) for longer than 67 ms,
// the value 14 of many programs. The kernel's rxe has no limit with 7 retries (rxe_qp_from_attr):
// it would never notice that a peer has died.
inline constexpr std::uint8_t kAckTimeout = 18, kRetries = 6;
// The sender repeats a message without limit after an RNR NAK: a late receiver is not an error.
inline constexpr std::uint8_t kRnrForEver = 7;

// What the two sides agree on. The send PSN of one side is the receive PSN of the other.
struct ConnectionAttributes {
    ibv_mtu mtu = IBV_MTU_1024;
    std::uint32_t send_psn = 0, receive_psn = 0;
    std::uint8_t reads = 1;           // outstanding RDMA reads and atomics, in each direction
    LocalPort port;                   // where the QP is
    std::uint8_t min_rnr_timer = 12;  // 0.64 ms: how long a sender waits after an RNR NAK
    std::uint8_t ack_timeout = kAckTimeout, retries = kRetries;  // the two sides may differ
};

// Each function takes one step, with the attribute mask of the QP's type, and returns 0 or an
// errno. atomics: peers may use the device's atomics. A device without atomics refuses that
// (kernel: set_qpc_atomic_flags()).
int to_init(ibv_qp* qp, const LocalPort& port, bool atomics) noexcept;
// The same, for a QP that only sends: peers access nothing by it.
int to_init_of_sender(ibv_qp* qp, const LocalPort& port) noexcept;
int to_ready_to_receive(ibv_qp* qp, const QpAddress& peer,
                        const ConnectionAttributes& attributes) noexcept;
int to_ready_to_send(ibv_qp* qp, const ConnectionAttributes& attributes) noexcept;

// Returns how many RDMA reads and atomics a QP of this device can have outstanding, 1 to 16.
std::uint8_t most_reads(ibv_context* context) noexcept;
// Returns the path from a port of ours to a peer's. InfiniBand within a subnet goes by LID;
// Ethernet, other subnets and ports that require it go by GID, in a GRH. With several LIDs (LMC)
// `spread` chooses one, so that QPs spread over the routes. Both sides of a connection give the
// same value, as a responder checks the source (IBTA 9.6.1.5).
ibv_ah_attr path_to(const QpAddress& peer, const LocalPort& port,
                    std::uint32_t spread = 0) noexcept;
// The part of a path that is known without a peer.
ibv_ah_attr path_from(const LocalPort& port) noexcept;
// Whether path_to() has a GRH.
bool is_global(const QpAddress& peer, const LocalPort& port) noexcept;

QpAddress address_of(ibv_qp* qp, const LocalPort& port) noexcept;
// Connects a QP that is in RESET, through that port. Throws VerbsError.
void connect(ibv_qp* qp, const QpAddress& peer, const LocalPort& port);
// The same, to a QP of this process on the same port, its device's first active one: `peer`, or
// the QP itself.
void connect_locally(ibv_qp* qp, ibv_qp* peer);

}  // namespace heddle::verbs
