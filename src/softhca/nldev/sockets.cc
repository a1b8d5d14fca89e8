// SPDX-License-Identifier: BSD-2-Clause
// Opens, serves and closes sockets of the RDMA netlink: see sockets.h.
#include "softhca/nldev/sockets.h"

#include <linux/netlink.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <map>
#include <mutex>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/device/memory/remote.h"
#include "softhca/nldev/conversation.h"

namespace softhca::nldev {

using device::Segment;

std::atomic<unsigned> g_open_sockets{0};

namespace {

struct Socket {
    std::uint32_t port = 0;  // its address; 0 until something is sent
    Conversation conversation;
};

std::mutex& sockets_mutex() {
    static std::mutex* mutex = new std::mutex;  // outlives every destructor
    return *mutex;
}
// The key is the socket's inode, which cannot be confused as a descriptor number can. Guarded by
// sockets_mutex().
std::map<ino_t, Socket>& sockets() {
    static auto* map = new std::map<ino_t, Socket>;
    return *map;
}

// A forked child shares its parent's sockets. Parent and child each continue with the answers they
// have.
__attribute__((constructor)) void prepare_for_fork() {
    ::pthread_atfork([] { sockets_mutex().lock(); }, [] { sockets_mutex().unlock(); },
                     [] { sockets_mutex().unlock(); });
}

void count_sockets() noexcept {
    g_open_sockets.store(static_cast<unsigned>(sockets().size()), std::memory_order_release);
}

bool inode_of(int fd, ino_t* inode) noexcept {
    struct stat status {};
    if (libc::fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
    *inode = status.st_ino;
    return true;
}

Socket* find(int fd) noexcept {
    ino_t inode = 0;
    if (!inode_of(fd, &inode)) return nullptr;
    const auto found = sockets().find(inode);
    return found == sockets().end() ? nullptr : &found->second;
}

// Another descriptor of this process for the same socket, or -1.
int duplicate(int fd, ino_t inode) noexcept {
    const int directory = libc::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return -1;
    int found = -1;
    alignas(dirent64) char buffer[2048];
    for (ssize_t size;
         found < 0 && (size = libc::getdents64(directory, buffer, sizeof buffer)) > 0;)
        for (ssize_t at = 0; at < size;) {
            const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
            at += entry->d_reclen;
            const int other = std::atoi(entry->d_name);
            ino_t its_inode = 0;
            if (entry->d_name[0] != '.' && other != fd && inode_of(other, &its_inode) &&
                its_inode == inode)
                found = other;
        }
    libc::close(directory);
    return found;
}

int fail(int error) noexcept {
    errno = error;
    return -1;
}

int copy_in(void* to, const void* from, std::size_t length) noexcept {
    if (length == 0) return 0;
    iovec local{to, length};
    iovec remote{const_cast<void*>(from), length};
    return device::memory::copy_from(libc::getpid(), &local, 1, &remote, 1, length);
}

// As af_netlink.c: netlink_sendmsg. With this protocol only the kernel can be addressed.
int check_destination(const msghdr& message) noexcept {
    if (!message.msg_name || message.msg_namelen == 0) return 0;
    sockaddr_nl to{};
    if (message.msg_namelen < sizeof to) return EINVAL;
    if (const int error = copy_in(&to, message.msg_name, sizeof to)) return error;
    if (to.nl_family != AF_NETLINK) return EINVAL;
    return to.nl_pid || to.nl_groups ? EPERM : 0;
}

int gather(int fd, const msghdr& message, std::vector<std::byte>* out) {
    if (message.msg_iovlen > IOV_MAX) return EMSGSIZE;
    std::vector<iovec> buffers(message.msg_iovlen);
    if (const int error = copy_in(buffers.data(), message.msg_iov, buffers.size() * sizeof(iovec)))
        return error;
    int buffer_size = 0;
    socklen_t length = sizeof buffer_size;
    if (::getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_size, &length) != 0) return errno;
    const std::size_t most = buffer_size > 32 ? static_cast<std::size_t>(buffer_size) - 32 : 0;
    for (const iovec& buffer : buffers) {
        const std::size_t at = out->size();
        SOFTHCA_ASSERT(at <= most);
        if (buffer.iov_len > most - at) return EMSGSIZE;
        out->resize(at + buffer.iov_len);
        if (const int error = copy_in(out->data() + at, buffer.iov_base, buffer.iov_len))
            return error;
    }
    return 0;
}

// Binds the socket if the program has not, and connects it to itself. Returns 0 or an errno.
int connect_to_itself(int fd, Socket* socket) noexcept {
    sockaddr_nl own{};
    socklen_t length = sizeof own;
    for (int attempt = 0; attempt < 2; ++attempt) {
        if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0) return errno;
        if (own.nl_pid != 0) break;
        own = {};
        own.nl_family = AF_NETLINK;
        if (::bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0) return errno;
    }
    own.nl_groups = 0;
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0) return errno;
    if (socket->port == 0) {
        // Until now any socket could send to it, so discard what has arrived.
        char byte;
        while (libc::recvfrom(fd, &byte, sizeof byte, MSG_DONTWAIT) >= 0) {
        }
        SOFTHCA_ASSERT(own.nl_pid != 0);
        socket->port = own.nl_pid;
    }
    return 0;
}

// Delivers answers as long as the socket has room for them.
void deliver(int fd, Socket* socket, const Segment* segment) noexcept {
    SOFTHCA_ASSERT(socket != nullptr && fd >= 0);
    std::vector<std::byte> datagram;
    while (socket->conversation.next(segment, &datagram)) {
        ssize_t sent;
        do
            sent = libc::sendto(fd, datagram.data(), datagram.size(), MSG_DONTWAIT);
        while (sent < 0 && errno == EINTR);
        if (sent < 0) {
            socket->conversation.give_back(std::move(datagram));
            return;
        }
    }
}

ssize_t send_copied(int fd, const msghdr& message, int flags, const Segment* segment) {
    if (flags & MSG_OOB) return fail(EOPNOTSUPP);
    if (const int error = check_destination(message)) return fail(error);
    std::vector<std::byte> request;
    if (const int error = gather(fd, message, &request)) return fail(error);
    std::lock_guard<std::mutex> guard(sockets_mutex());
    Socket* socket = find(fd);
    if (!socket) return fail(EBADF);
    if (const int error = connect_to_itself(fd, socket)) return fail(error);
    SOFTHCA_ASSERT(socket->port != 0, "connect_to_itself() has bound it");
    Recipient recipient{socket->port, false};
    int capped = 0;
    socklen_t length = sizeof capped;
    if (::getsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &capped, &length) == 0)
        recipient.capped_acks = capped != 0;
    const bool taken = socket->conversation.request(request, recipient, segment);
    deliver(fd, socket, segment);
    return taken ? static_cast<ssize_t>(request.size()) : fail(ENOBUFS);
}

}  // namespace

int open_socket(int type) noexcept {
    const int fd = libc::socket(AF_NETLINK, type, NETLINK_USERSOCK);
    if (fd < 0) return -1;
    ino_t inode = 0;
    try {
        std::lock_guard<std::mutex> guard(sockets_mutex());
        if (inode_of(fd, &inode)) {
            sockets()[inode] = Socket{};
            count_sockets();
            return fd;
        }
    } catch (const std::bad_alloc&) {
    }
    libc::close(fd);
    return fail(ENOMEM);
}

bool owns(int fd) noexcept {
    if (fd < 0 || !any_socket()) return false;
    const int saved = errno;
    std::lock_guard<std::mutex> guard(sockets_mutex());
    const bool found = find(fd) != nullptr;
    errno = saved;
    return found;
}

ssize_t send(int fd, const msghdr* message, int flags, const Segment* segment) noexcept {
    msghdr copy;
    if (const int error = copy_in(&copy, message, sizeof copy)) return fail(error);
    try {
        return send_copied(fd, copy, flags, segment);
    } catch (const std::bad_alloc&) {
        return fail(ENOBUFS);
    }
}

void received(int fd, const Segment* segment) noexcept {
    const int saved = errno;
    std::lock_guard<std::mutex> guard(sockets_mutex());
    if (Socket* socket = find(fd)) deliver(fd, socket, segment);
    errno = saved;
}

void hide_sender(int fd, sockaddr* sender, socklen_t length) noexcept {
    if (!sender || length < sizeof(sockaddr_nl) || sender->sa_family != AF_NETLINK) return;
    auto* address = reinterpret_cast<sockaddr_nl*>(sender);
    std::lock_guard<std::mutex> guard(sockets_mutex());
    const Socket* socket = find(fd);
    if (socket && address->nl_pid == socket->port) address->nl_pid = 0;
}

void closing(int fd) noexcept {
    if (!any_socket()) return;
    const int saved = errno;
    std::lock_guard<std::mutex> guard(sockets_mutex());
    ino_t inode = 0;
    const auto found = inode_of(fd, &inode) ? sockets().find(inode) : sockets().end();
    if (found != sockets().end() && duplicate(fd, inode) < 0) {
        sockets().erase(found);
        count_sockets();
    }
    errno = saved;
}

}  // namespace softhca::nldev
