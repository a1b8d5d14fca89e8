// SPDX-License-Identifier: BSD-2-Clause
// The sockets by which a program talks to the RDMA netlink.
//
// Each is a real socket of NETLINK_USERSOCK, which every kernel has and every user may open. So
// addresses, options, poll(), MSG_PEEK, MSG_TRUNC and blocking are the kernel's. softhca answers
// what the program sends: it sends the answers from the socket to itself, as many as fit, and the
// others after the program has received some. The socket is connected to itself, so the kernel
// refuses what other sockets send to it.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <atomic>

namespace softhca::device {
struct Segment;
}

namespace softhca::nldev {

extern std::atomic<unsigned> g_open_sockets;
// One load. False in nearly all programs nearly always.
inline bool any_socket() noexcept { return g_open_sockets.load(std::memory_order_acquire) != 0; }

// Opens a socket of `type`, as socket(2). Returns -1 and errno on an error: EPROTONOSUPPORT, as
// without RDMA, if the kernel has no NETLINK_USERSOCK either.
int open_socket(int type) noexcept;

// Whether `fd` is such a socket or a duplicate of one. It makes a system call while any are open.
bool owns(int fd) noexcept;

// Implements sendmsg(2) on such a socket. `segment` is that of the fabric that this process has
// joined, or nullptr.
ssize_t send(int fd, const msghdr* message, int flags, const device::Segment* segment) noexcept;

// Call this after the program has received something: answers that did not fit before are sent.
void received(int fd, const device::Segment* segment) noexcept;

// Sets the sender to netlink address 0, because answers come from the kernel.
void hide_sender(int fd, sockaddr* sender, socklen_t length) noexcept;

// Call this before closing `fd`.
void closing(int fd) noexcept;

}  // namespace softhca::nldev
