// SPDX-License-Identifier: BSD-2-Clause
// The sockets by which a program talks to the RDMA netlink.
//
// Each is a real socket: one of NETLINK_USERSOCK, which every kernel has and every user may open.
// Addresses, options, poll(), MSG_PEEK, MSG_TRUNC and waiting are the kernel's. What the program
// sends is answered here: the answers are sent from the socket to itself, as many as it takes, and
// the others follow when the program has received some. The socket is connected to itself, so that
// the kernel refuses what anybody else sends to it.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <atomic>

namespace softhca::device {
struct Segment;
}

namespace softhca::nldev {

extern std::atomic<unsigned> g_open_sockets;
// One load: false in nearly all programs nearly always.
inline bool any_socket() noexcept { return g_open_sockets.load(std::memory_order_acquire) != 0; }

// A socket of `type`, as socket(2) takes it. -1 and errno: EPROTONOSUPPORT, as without RDMA, when
// the kernel has no NETLINK_USERSOCK either.
int open_socket(int type) noexcept;

// Whether `fd` is such a socket; duplicates are. Costs a system call while there are some.
bool owns(int fd) noexcept;

// sendmsg(2) on one of them. `segment`: the fabric that this process is on, or nullptr.
ssize_t send(int fd, const msghdr* message, int flags, const device::Segment* segment) noexcept;

// After the program has received something: answers follow that had no room.
void received(int fd, const device::Segment* segment) noexcept;

// The kernel itself is the sender of what it answers: netlink address 0.
void hide_sender(int fd, sockaddr* sender, socklen_t length) noexcept;

// Told before `fd` is closed.
void closing(int fd) noexcept;

}  // namespace softhca::nldev
