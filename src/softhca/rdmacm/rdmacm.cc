// SPDX-License-Identifier: BSD-2-Clause
// The event channels of this process: opening, finding and closing them, waiting for events, and
// what the progress thread looks after.
#include "softhca/rdmacm/rdmacm.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/device/fabric.h"
#include "softhca/engine/events.h"
#include "softhca/engine/progress.h"
#include "softhca/rdmacm/commands.h"
#include "softhca/rdmacm/connection.h"

namespace softhca::rdmacm {

using device::Fabric;

namespace {

// The channel that a descriptor stands for, plus 1; for a check by one load. There are no channels
// on higher descriptors.
constexpr int kDescriptors = 1 << 16;
std::atomic<std::uint32_t> g_channels[kDescriptors];
std::atomic<bool> g_any{false};  // one was opened

int fail(int error) noexcept {
    errno = error;
    return -1;
}

// A forked child has no share in its parent's channels, as in its contexts.
void forget_after_fork() noexcept {
    if (!g_any.exchange(false)) return;
    for (std::atomic<std::uint32_t>& channel : g_channels)
        channel.store(0, std::memory_order_relaxed);
}

__attribute__((constructor)) void prepare_for_fork() {
    ::pthread_atfork(nullptr, nullptr, forget_after_fork);
}

bool is_pipe_of(Fabric& fabric, int fd, std::uint32_t channel) noexcept {
    struct stat status {};
    return libc::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) &&
           fabric.segment().channels[channel].inode == status.st_ino;
}

// The channel of that descriptor, or kNone. A program may have closed it without our seeing it, and
// have another file there now.
std::uint32_t channel_of(Fabric& fabric, int fd) noexcept {
    const std::uint32_t known = g_channels[fd].load(std::memory_order_acquire);
    if (known == 0) return device::kNone;
    const std::uint32_t channel = known - 1;
    if (engine::is_channel(fabric.segment(), channel, device::ChannelKind::kConnection) &&
        is_pipe_of(fabric, fd, channel))
        return channel;
    g_channels[fd].store(0, std::memory_order_release);
    return device::kNone;
}

// A thread that waits for an event of a channel that another thread closes waits on, as the kernel
// keeps the file open for it. EINTR.
int wait_in_vain() noexcept {
    libc::poll(nullptr, 0, -1);
    return fail(EINTR);
}

// Waits until the channel's pipe has a byte, and takes it. Returns 0, or -1 and errno: EINTR, or
// EAGAIN if the program does not want to wait. By a descriptor of its own: the program may close
// its own one meanwhile, and have another file there.
int wait_for_ring(Fabric& fabric, int fd, std::uint32_t channel) noexcept {
    constexpr long kHigh = 700;
    const int own = libc::fcntl(fd, F_DUPFD_CLOEXEC, kHigh);
    if (own < 0) return errno == EBADF ? wait_in_vain() : -1;
    std::byte ring;
    const ssize_t got = is_pipe_of(fabric, own, channel) ? libc::read(own, &ring, sizeof ring) : 0;
    const int error = errno;
    libc::close(own);
    if (got == 0) return wait_in_vain();  // its other end is closed
    errno = error;
    return got > 0 ? 0 : -1;
}

// A connection whose other process died, and the end of TIMEWAIT.
void watch(Fabric& fabric) noexcept {
    Locked connections(fabric);
    if (!connections) return;
    const std::uint64_t now = device::now_ns();
    connections.each([&](CmId& id) {
        if (id.head.owner() != fabric.slot()) return;
        if (id.has_communicated && connections.find(id.peer) == nullptr) peer_lost(connections, id);
        if (id.time_wait_until_ns != 0 && now >= id.time_wait_until_ns) {
            id.time_wait_until_ns = 0;
            tell(connections, id, Event::kTimeWaitExit);
        }
    });
    connections.ring_again();
}

}  // namespace

int open_channel(int flags) noexcept {
    Fabric* const fabric = Fabric::attach();
    if (fabric == nullptr) return fail(ENODEV);
    int fd = -1;
    const std::uint32_t channel =
        engine::open_channel(*fabric, device::kNone, device::ChannelKind::kConnection, &fd);
    if (channel == device::kNone) return -1;
    if (fd >= kDescriptors) {
        engine::close_channel(*fabric, channel);
        libc::close(fd);
        return fail(EMFILE);
    }
    if ((flags & O_CLOEXEC) == 0) libc::fcntl(fd, F_SETFD, 0L);
    if ((flags & O_NONBLOCK) != 0) libc::fcntl(fd, F_SETFL, static_cast<long>(O_NONBLOCK));
    g_any.store(true, std::memory_order_relaxed);
    g_channels[fd].store(channel + 1, std::memory_order_release);
    engine::start_progress(*fabric);
    engine::set_watch(*fabric, watch);
    return fd;
}

bool owns(int fd) noexcept {
    return fd >= 0 && fd < kDescriptors && g_any.load(std::memory_order_acquire) &&
           g_channels[fd].load(std::memory_order_acquire) != 0;
}

ssize_t write(int fd, const void* command, std::size_t size) noexcept {
    SOFTHCA_ASSERT(owns(fd));
    Fabric* const fabric = Fabric::current();
    const std::uint32_t channel = fabric != nullptr ? channel_of(*fabric, fd) : device::kNone;
    if (channel == device::kNone) return libc::write(fd, command, size);
    const bool waits = may_wait(command, size);
    const device::ObjectHead& head = fabric->segment().channels[channel].head;
    const std::uint32_t generation = head.generation;
    for (bool is_rung = true;; is_rung = false) {
        if (!head.live() || head.generation != generation) return wait_in_vain();
        const int error = run_command(*fabric, channel, command, size, is_rung);
        if (error == 0) return static_cast<ssize_t>(size);
        if (error != EAGAIN || !waits) return fail(error);
        if (wait_for_ring(*fabric, fd, channel) != 0) return -1;
    }
}

void closing(int fd) noexcept {
    if (!owns(fd)) return;
    Fabric* const fabric = Fabric::current();
    const std::uint32_t channel = fabric != nullptr ? channel_of(*fabric, fd) : device::kNone;
    g_channels[fd].store(0, std::memory_order_release);
    if (channel == device::kNone) return;
    Locked connections(*fabric);
    if (!connections) return;
    connections.each([&](CmId& id) {
        if (id.head.owner() == fabric->slot() && id.channel == channel) destroy(connections, id);
    });
}

}  // namespace softhca::rdmacm
