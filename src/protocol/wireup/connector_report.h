// SPDX-License-Identifier: BSD-2-Clause
// What a user reads about a peer that cannot be connected to.
#pragma once

#include <chrono>
#include <string>

#include "protocol/common/endpoint_address.h"

namespace heddle::protocol {

struct Unreachable {
    const std::string& device;  // by which it was asked
    const EndpointAddress& self;
    const EndpointAddress& peer;
    int error;  // errno: ETIMEDOUT if it did not answer
    std::chrono::steady_clock::duration waited;
    unsigned times_sent;  // its request
};

// One line, without an end of line. Throws std::bad_alloc.
std::string unreachable_text(const Unreachable& what);

// Gives `complain` a line that the program's user must read; nullptr: it goes to stderr.
void tell_user(void (*complain)(const char* line), const std::string& line) noexcept;

// "LID 3, GID fe80::1, UD QP 17": where the peer's process listens.
std::string peer_text(const EndpointAddress& peer);

// Why no datagram of ours can reach a peer, as far as the two names say.
enum class Obstacle : std::uint8_t {
    kNone,
    kLinkLayer,    // one port is InfiniBand, the other Ethernet
    kRoceVersion,  // one GID is of RoCE v1, the other of v2
    kPartition,    // the P_Keys do not match (IBTA 10.9.3)
    // The peer's port has the LID of our own, but another GUID (the end of its GID). What is sent
    // to that LID comes back to us.
    kAnotherFabric,
};
Obstacle obstacle_to(const EndpointAddress& self, const EndpointAddress& peer) noexcept;

}  // namespace heddle::protocol
