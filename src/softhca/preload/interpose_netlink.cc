// SPDX-License-Identifier: BSD-2-Clause
// Interposed libc functions for sockets of the RDMA netlink: socket, and the functions that send to
// and receive from one. read and write are not interposed; libnl, libmnl and pyroute2 do not use
// them.
//
// For all other sockets the next library's function is called. It may be a cancellation point, so
// the functions here that call it are not noexcept.
#include <cerrno>
#include <cstddef>

#include <linux/netlink.h>
#include <sys/socket.h>

#include "softhca/base/libc.h"
#include "softhca/device/fabric.h"
#include "softhca/nldev/sockets.h"
#include "softhca/preload/interpose.h"
#include "softhca/preload/next.h"
#include "softhca/preload/process.h"
#include "softhca/preload/root.h"

#ifndef NETLINK_RDMA
#define NETLINK_RDMA 20
#endif

namespace softhca::preload {

namespace {

bool is_ours(int fd) noexcept {
    return nldev::any_socket() && !in_borrowed_memory() && nldev::owns(fd);
}

// The first request joins the fabric.
const device::Segment* segment() noexcept {
    join_root();
    device::Fabric* fabric = device::Fabric::current();
    return fabric == nullptr ? nullptr : &fabric->segment();
}

ssize_t send_ours(int fd, const void* buffer, std::size_t size, int flags, const sockaddr* to,
                  socklen_t length) noexcept {
    iovec piece{const_cast<void*>(buffer), size};
    msghdr message{};
    message.msg_name = const_cast<sockaddr*>(to);
    message.msg_namelen = length;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    return nldev::send(fd, &message, flags, segment());
}

// Call this after a receive, which may have reported the sender in `from`.
ssize_t after(int fd, ssize_t result, void* from, socklen_t length) noexcept {
    if (result >= 0 && is_ours(fd)) {
        nldev::hide_sender(fd, static_cast<sockaddr*>(from), length);
        nldev::received(fd, segment());
    }
    return result;
}

}  // namespace

SOFTHCA_INTERPOSE(socket, int, interpose_socket, (int domain, int type, int protocol) noexcept);
int interpose_socket(int domain, int type, int protocol) noexcept {
    if (domain == AF_NETLINK && protocol == NETLINK_RDMA && !in_borrowed_memory()) [[unlikely]] {
        return nldev::open_socket(type);
    }
    return libc::socket(domain, type, protocol);
}

SOFTHCA_INTERPOSE(send, ssize_t, interpose_send,
                  (int fd, const void* buffer, std::size_t size, int flags));
ssize_t interpose_send(int fd, const void* buffer, std::size_t size, int flags) {
    if (is_ours(fd)) [[unlikely]] {
        return send_ours(fd, buffer, size, flags, nullptr, 0);
    }
    return next<ssize_t(int, const void*, std::size_t, int)>(Next::kSend)(fd, buffer, size, flags);
}
SOFTHCA_ALSO(__send, send, interpose_send);

SOFTHCA_INTERPOSE(sendto, ssize_t, interpose_sendto,
                  (int fd, const void* buffer, std::size_t size, int flags, const sockaddr* to,
                   socklen_t length));
ssize_t interpose_sendto(int fd, const void* buffer, std::size_t size, int flags,
                         const sockaddr* to, socklen_t length) {
    if (is_ours(fd)) [[unlikely]] {
        return send_ours(fd, buffer, size, flags, to, length);
    }
    return next<ssize_t(int, const void*, std::size_t, int, const sockaddr*, socklen_t)>(
        Next::kSendto)(fd, buffer, size, flags, to, length);
}

SOFTHCA_INTERPOSE(sendmsg, ssize_t, interpose_sendmsg, (int fd, const msghdr* message, int flags));
ssize_t interpose_sendmsg(int fd, const msghdr* message, int flags) {
    if (is_ours(fd)) [[unlikely]] {
        return nldev::send(fd, message, flags, segment());
    }
    return next<ssize_t(int, const msghdr*, int)>(Next::kSendmsg)(fd, message, flags);
}

SOFTHCA_INTERPOSE(sendmmsg, int, interpose_sendmmsg,
                  (int fd, mmsghdr* messages, unsigned count, int flags));
int interpose_sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
    if (!is_ours(fd)) [[likely]] {
        return next<int(int, mmsghdr*, unsigned, int)>(Next::kSendmmsg)(fd, messages, count, flags);
    }
    unsigned sent = 0;
    for (; sent < count; ++sent) {
        const ssize_t length = nldev::send(fd, &messages[sent].msg_hdr, flags, segment());
        if (length < 0) {
            return sent > 0 ? static_cast<int>(sent) : -1;
        }
        messages[sent].msg_len = static_cast<unsigned>(length);
    }
    return static_cast<int>(sent);
}

SOFTHCA_INTERPOSE(recv, ssize_t, interpose_recv,
                  (int fd, void* buffer, std::size_t size, int flags));
ssize_t interpose_recv(int fd, void* buffer, std::size_t size, int flags) {
    auto* real = next<ssize_t(int, void*, std::size_t, int)>(Next::kRecv);
    if (!is_ours(fd)) [[likely]] {
        return real(fd, buffer, size, flags);
    }
    return after(fd, real(fd, buffer, size, flags), nullptr, 0);
}

SOFTHCA_INTERPOSE(recvfrom, ssize_t, interpose_recvfrom,
                  (int fd, void* buffer, std::size_t size, int flags, sockaddr* from,
                   socklen_t* length));
ssize_t interpose_recvfrom(int fd, void* buffer, std::size_t size, int flags, sockaddr* from,
                           socklen_t* length) {
    auto* real =
        next<ssize_t(int, void*, std::size_t, int, sockaddr*, socklen_t*)>(Next::kRecvfrom);
    if (!is_ours(fd)) [[likely]] {
        return real(fd, buffer, size, flags, from, length);
    }
    const ssize_t result = real(fd, buffer, size, flags, from, length);
    return after(fd, result, from, length == nullptr ? 0 : *length);
}

SOFTHCA_INTERPOSE(recvmsg, ssize_t, interpose_recvmsg, (int fd, msghdr* message, int flags));
ssize_t interpose_recvmsg(int fd, msghdr* message, int flags) {
    auto* real = next<ssize_t(int, msghdr*, int)>(Next::kRecvmsg);
    if (!is_ours(fd)) [[likely]] {
        return real(fd, message, flags);
    }
    const ssize_t result = real(fd, message, flags);
    return result < 0 ? result : after(fd, result, message->msg_name, message->msg_namelen);
}

SOFTHCA_INTERPOSE(recvmmsg, int, interpose_recvmmsg,
                  (int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout));
int interpose_recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
    const int received = next<int(int, mmsghdr*, unsigned, int, timespec*)>(Next::kRecvmmsg)(
        fd, messages, count, flags, timeout);
    for (int i = 0; i < received && is_ours(fd); ++i) {
        after(fd, 0, messages[i].msg_hdr.msg_name, messages[i].msg_hdr.msg_namelen);
    }
    return received;
}

// glibc's fortified functions end a program whose buffer is smaller than it said.
SOFTHCA_INTERPOSE(__recv_chk, ssize_t, interpose_recv_chk,
                  (int fd, void* buffer, std::size_t size, std::size_t room, int flags));
ssize_t interpose_recv_chk(int fd, void* buffer, std::size_t size, std::size_t room, int flags) {
    const ssize_t result = next<ssize_t(int, void*, std::size_t, std::size_t, int)>(Next::kRecvChk)(
        fd, buffer, size, room, flags);
    return nldev::any_socket() ? after(fd, result, nullptr, 0) : result;
}

SOFTHCA_INTERPOSE(__recvfrom_chk, ssize_t, interpose_recvfrom_chk,
                  (int fd, void* buffer, std::size_t size, std::size_t room, int flags,
                   sockaddr* from, socklen_t* length));
ssize_t interpose_recvfrom_chk(int fd, void* buffer, std::size_t size, std::size_t room, int flags,
                               sockaddr* from, socklen_t* length) {
    const ssize_t result =
        next<ssize_t(int, void*, std::size_t, std::size_t, int, sockaddr*, socklen_t*)>(
            Next::kRecvfromChk)(fd, buffer, size, room, flags, from, length);
    return nldev::any_socket() ? after(fd, result, from, length == nullptr ? 0 : *length) : result;
}

}  // namespace softhca::preload
