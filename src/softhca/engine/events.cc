// SPDX-License-Identifier: BSD-2-Clause
// Event channels: see events.h. A channel is a pipe. The application has its read end, and the
// process keeps its write end. A peer opens the write end by /proc/PID/fd/N, which requires only
// the same user, and which vanishes with the process.
#include "softhca/engine/events.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <rdma/ib_user_verbs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "softhca/base/assert.h"
#include "softhca/base/left_behind.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/device/epoch.h"
#include "softhca/device/table.h"

namespace softhca::engine {

using device::Channel;
using device::ChannelKind;
using device::Fabric;
using device::Guard;
using device::kNone;
using device::SpinLock;

namespace {

struct OwnChannel {
    std::uint32_t index;
    int read_fd, write_fd;
    ino_t inode;
};

// The write end of a peer's channel, kept open.
struct PeerEnd {
    std::uint32_t channel, generation;
    int fd;
};

SpinLock g_lock;  // guards g_own and g_peers
std::vector<OwnChannel>* g_own = nullptr;
std::atomic<int> g_own_count{0};  // size of g_own, readable without the lock
std::vector<PeerEnd>* g_peers = nullptr;
constexpr std::size_t kPeerEnds = 64;

// The write end of an own channel, or -1. The caller holds g_lock.
int own_end(std::uint32_t index) noexcept {
    SOFTHCA_ASSERT(g_lock.is_locked(), "g_lock guards g_own");
    if (g_own)
        for (const OwnChannel& own : *g_own)
            if (own.index == index) return own.write_fd;
    errno = ENOENT;
    return -1;
}

// The write end of a peer's channel, opened at the first use. The caller holds g_lock.
int peer_end(Fabric& fabric, std::uint32_t index, const Channel& channel) noexcept {
    SOFTHCA_ASSERT(g_lock.is_locked(), "g_lock guards g_peers");
    if (!g_peers) g_peers = new std::vector<PeerEnd>;
    for (const PeerEnd& end : *g_peers)
        if (end.channel == index && end.generation == channel.head.generation) return end.fd;
    const std::uint32_t owner = channel.head.owner();
    if (owner >= device::kMaxProcesses) {
        errno = ENOENT;
        return -1;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", fabric.segment().processes[owner].pid,
             channel.write_fd);
    // Opened for reading, too: because we are a reader, a dead peer never causes a SIGPIPE here.
    int fd = libc::open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return -1;
    struct stat st {};
    if (libc::fstat(fd, &st) != 0 || !S_ISFIFO(st.st_mode) || st.st_uid != geteuid() ||
        st.st_ino != channel.inode) {
        libc::close(fd);
        errno = ENOENT;  // another file has that number now
        return -1;
    }
    if (const int high = libc::fcntl(fd, F_DUPFD_CLOEXEC, 700); high >= 0) {
        libc::close(fd);
        fd = high;
    }
    if (g_peers->size() >= kPeerEnds) {
        libc::close(g_peers->front().fd);
        g_peers->erase(g_peers->begin());
    }
    SOFTHCA_ASSERT(g_peers->size() < kPeerEnds, "the first end was closed to make room");
    g_peers->push_back({index, channel.head.generation, fd});
    return fd;
}

// Writes one record into the channel's pipe. A peer's end is used under g_lock, so that no thread
// closes it meanwhile.
ssize_t put(Fabric& fabric, std::uint32_t index, const Channel& channel, const void* record,
            std::size_t length) noexcept {
    SOFTHCA_ASSERT(length != 0 && length <= PIPE_BUF, "a pipe takes such a record whole (pipe(7))");
    const auto write = [&](int fd) {
        ssize_t written;
        do
            written = libc::write(fd, record, length);
        while (written < 0 && errno == EINTR);
        return written;
    };
    Guard<SpinLock> guard(g_lock);
    // For a channel of its own, the process uses the number that it remembers. The record in the
    // segment may have been overwritten.
    const int fd =
        channel.head.owner() == fabric.slot() ? own_end(index) : peer_end(fabric, index, channel);
    return fd < 0 ? -1 : write(fd);
}

bool send(Fabric& fabric, std::uint32_t index, std::uint32_t generation, const void* record,
          std::size_t length) noexcept {
    if (index >= device::kMaxChannels) return false;
    Channel& channel = fabric.segment().channels[index];
    // The channel was closed while in use, and its slot may be another's.
    if (!channel.head.live() || channel.head.generation != generation) return false;
    if (!channel.lock.lock()) return false;
    const int saved = errno;
    const ssize_t written = put(fabric, index, channel, record, length);
    if (const int error = errno;
        written < 0 && error != EAGAIN && error != EPIPE && !fabric.going(channel.head.owner()))
        LOG_WARN("cannot deliver an event by channel %u: errno %d", index, error);
    errno = saved;
    channel.lock.unlock();
    return written == static_cast<ssize_t>(length);
}

}  // namespace

std::uint32_t open_channel(Fabric& fabric, std::uint32_t context, ChannelKind kind,
                           int* fd) noexcept {
    int ends[2];
    if (libc::pipe2(ends, O_CLOEXEC) != 0) return kNone;
    std::uint32_t index;
    Channel* channel = device::reserve(fabric.segment().channels, fabric, context, 0, &index);
    struct stat st {};
    if (!channel || libc::fstat(ends[0], &st) != 0) {
        libc::close(ends[0]);
        libc::close(ends[1]);
        if (channel) device::free_item(fabric.segment().channels, *channel);
        errno = ENOMEM;
        return kNone;
    }
    // Our end is open for reading as well. So it neither raises SIGPIPE nor needs the application's
    // end, whose flags are its own, to be drained.
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    int writer = libc::open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    libc::close(ends[1]);
    if (writer < 0) {
        libc::close(ends[0]);
        device::free_item(fabric.segment().channels, *channel);
        return kNone;
    }
    if (const int high = libc::fcntl(writer, F_DUPFD_CLOEXEC, 700); high >= 0) {
        libc::close(writer);
        writer = high;
    }
    SOFTHCA_ASSERT(index < device::kMaxChannels, "reserve() gives an index of the table");
    channel->write_fd = writer;
    channel->inode = st.st_ino;
    channel->kind = static_cast<std::uint32_t>(kind);
    channel->first_event = kNone;
    channel->lock.reset();
    {
        Guard<SpinLock> guard(g_lock);
        if (!g_own) g_own = new std::vector<OwnChannel>;
        g_own->push_back({index, ends[0], writer, st.st_ino});
        g_own_count.fetch_add(1, std::memory_order_release);
        SOFTHCA_ASSERT(g_own->size() == static_cast<std::size_t>(g_own_count.load()),
                       "g_own_count is the size of g_own");
    }
    device::publish(channel->head);
    *fd = ends[0];
    return index;
}

void close_channel(Fabric& fabric, std::uint32_t index) noexcept {
    int writer = -1;
    {
        Guard<SpinLock> guard(g_lock);
        if (!g_own) return;
        for (std::size_t i = 0; i < g_own->size(); ++i)
            if ((*g_own)[i].index == index) {
                writer = (*g_own)[i].write_fd;
                g_own->erase(g_own->begin() + static_cast<std::ptrdiff_t>(i));
                g_own_count.fetch_sub(1, std::memory_order_release);
                break;
            }
        SOFTHCA_ASSERT(g_own->size() == static_cast<std::size_t>(g_own_count.load()),
                       "g_own_count is the size of g_own");
    }
    if (writer < 0) return;
    Channel& channel = fabric.segment().channels[index];
    channel.head.state.store(device::kDying, std::memory_order_release);
    if (device::epoch::synchronize()) device::free_item(fabric.segment().channels, channel);
    libc::close(writer);
}

std::uint32_t find_channel(int fd) noexcept {
    struct stat st {};
    if (libc::fstat(fd, &st) != 0 || !S_ISFIFO(st.st_mode)) return kNone;
    Guard<SpinLock> guard(g_lock);
    if (!g_own) return kNone;
    for (const OwnChannel& own : *g_own)
        if (own.inode == st.st_ino) return own.index;
    return kNone;
}

bool send_completion_event(Fabric& fabric, std::uint32_t channel, std::uint32_t generation,
                           std::uint64_t user_handle) noexcept {
    const ib_uverbs_comp_event_desc record{user_handle};
    return send(fabric, channel, generation, &record, sizeof record);
}

void send_async_event(Fabric& fabric, std::uint32_t context, std::uint32_t type,
                      std::uint64_t element, std::atomic<std::uint32_t>* sent) noexcept {
    if (context >= device::kMaxContexts) return;
    const device::Context& owner = fabric.segment().contexts[context];
    if (!owner.head.live()) return;
    ib_uverbs_async_event_desc record{};
    record.element = element;
    record.event_type = type;
    if (sent) sent->fetch_add(1, std::memory_order_relaxed);
    if (!send(fabric, owner.async_channel, owner.async_generation, &record, sizeof record) && sent)
        sent->fetch_sub(1, std::memory_order_relaxed);
}

bool is_channel(const device::Segment& segment, std::uint32_t index, ChannelKind kind) noexcept {
    return index < device::kMaxChannels &&
           segment.channels[index].kind == static_cast<std::uint32_t>(kind);
}

void ring_channel(Fabric& fabric, std::uint32_t index, std::uint32_t generation) noexcept {
    const std::byte ring{1};
    send(fabric, index, generation, &ring, sizeof ring);
}

void silence_channel(std::uint32_t index) noexcept {
    Guard<SpinLock> guard(g_lock);
    const int writer = own_end(index);  // open for reading and writing
    std::byte rings[64];
    while (writer >= 0 && libc::read(writer, rings, sizeof rings) > 0) {
    }
}

std::uint32_t drain_events(Fabric& fabric, std::uint32_t index,
                           std::uint64_t user_handle) noexcept {
    if (index >= device::kMaxChannels) return 0;
    int writer;  // open for reading and writing
    {
        Guard<SpinLock> guard(g_lock);
        writer = own_end(index);
    }
    if (writer < 0) return 0;
    Channel& channel = fabric.segment().channels[index];
    const std::size_t size = is_channel(fabric.segment(), index, ChannelKind::kAsynchronous)
                                 ? sizeof(ib_uverbs_async_event_desc)
                                 : sizeof(ib_uverbs_comp_event_desc);
    if (!channel.lock.lock()) return 0;
    const int saved = errno;
    std::uint32_t removed = 0;
    std::vector<std::byte> keep;
    std::byte record[sizeof(ib_uverbs_async_event_desc)];
    while (libc::read(writer, record, size) == static_cast<ssize_t>(size)) {
        std::uint64_t element;  // both records begin with it
        memcpy(&element, record, sizeof element);
        if (element == user_handle)
            ++removed;
        else
            keep.insert(keep.end(), record, record + size);
    }
    SOFTHCA_ASSERT(keep.size() % size == 0, "whole records are kept");
    for (std::size_t at = 0; at < keep.size(); at += size)
        if (libc::write(writer, keep.data() + at, size) < 0) break;
    errno = saved;
    channel.lock.unlock();
    return removed;
}

bool is_event_fd(int fd) noexcept {
    if (!g_own_count.load(std::memory_order_acquire)) return false;
    Guard<SpinLock> guard(g_lock);
    if (g_own)
        for (const OwnChannel& own : *g_own)
            if (own.read_fd == fd || own.write_fd == fd) return true;
    return false;
}

bool is_internal_event_fd(int fd) noexcept {
    if (fd < 0) return false;
    Guard<SpinLock> guard(g_lock);
    if (g_own)
        for (const OwnChannel& own : *g_own)
            if (own.write_fd == fd) return true;
    if (g_peers)
        for (const PeerEnd& end : *g_peers)
            if (end.fd == fd) return true;
    return false;
}

void forget_events_after_fork() noexcept {
    g_lock.unlock();  // a thread that the child does not have may have held it
    // The child's copies of the write ends must be closed, or readers would never see the end of
    // the pipe.
    if (g_own)
        for (const OwnChannel& own : *g_own)
            libc::close(own.write_fd);
    if (g_peers)
        for (const PeerEnd& end : *g_peers)
            libc::close(end.fd);
    leave_behind(g_own);
    leave_behind(g_peers);
    g_own = nullptr;
    g_own_count.store(0);
    g_peers = nullptr;
}

}  // namespace softhca::engine
