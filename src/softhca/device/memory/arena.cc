// SPDX-License-Identifier: BSD-2-Clause
// This process's arena, its page allocator, and mappings of peers' arenas: see arena.h.

#include "softhca/device/memory/arena.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <new>

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/device/memory/arena_internal.h"
#include "softhca/device/memory/interval_map.h"
#include "softhca/device/memory/own_fds.h"
#include "softhca/device/memory/pool_allocator.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif

namespace softhca::device::memory {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// From the base of a mapping to its size.
using Peers = std::map<std::byte*, std::uint64_t, std::less<>,
                       PoolAllocator<std::pair<std::byte* const, std::uint64_t>>>;

struct Arena {
    std::mutex mutex;         // held across fork
    IntervalMap<bool> taken;  // by offset; under the mutex
    std::uint64_t next = 0;   // where the search for free pages starts; under the mutex
    Peers peers;              // under the mutex
    bool inherited = false;   // in a forked child: the maps are the parent's and must be forgotten
    OwnFd fd;                 // adopted and closed under the mutex
    // arena_open() writes them once, under the mutex; a forked child resets them. Any thread may
    // read them.
    std::atomic<std::byte*> base{nullptr};
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint64_t> inode{0};
};

// Never destroyed, because threads may still use it while the process exits.
Arena& arena() noexcept {
    alignas(Arena) static std::byte storage[sizeof(Arena)];
    static Arena* const instance = new (storage) Arena;
    return *instance;
}

// Clears what a forked child inherited from its parent, at the child's first use.
void forget_inherited(Arena& a) {
    if (!a.inherited) return;
    a.taken.clear();
    a.peers.clear();
    a.next = 0;
    a.inherited = false;
}

// Maps the whole file. mlockall(MCL_FUTURE) must not fill it with memory. So it is mapped
// inaccessible, which keeps pages from being brought in, and munlock(2) then removes the lock.
std::byte* map_window(int fd, std::uint64_t bytes) noexcept {
    void* at = libc::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED) return nullptr;
    ::syscall(SYS_munlock, at, bytes);
    // A child must not write to its parent's memory, and a core dump must not bring every page in.
    if (libc::mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0 ||
        libc::madvise(at, bytes, MADV_DONTFORK) != 0 ||
        libc::madvise(at, bytes, MADV_DONTDUMP) != 0) {
        const int error = errno;
        libc::munmap(at, bytes);
        errno = error;
        return nullptr;
    }
    return static_cast<std::byte*>(at);
}

// The size limit of files applies to memfds, and exceeding it raises a deadly signal.
std::uint64_t largest_file() noexcept {
    rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kArenaBytes;
    return std::min<std::uint64_t>(kArenaBytes, limit.rlim_cur & ~(kHugeBytes - 1));
}

int create_memfd() noexcept {
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    const int fd = libc::memfd_create("softhca-arena", flags | MFD_NOEXEC_SEAL);
    return fd >= 0 || errno != EINVAL ? fd : libc::memfd_create("softhca-arena", flags);
}

int open_locked(Arena& a) {
    if (a.base.load(std::memory_order_relaxed)) return a.fd.get();
    SOFTHCA_ASSERT(a.bytes.load(std::memory_order_relaxed) == 0);
    forget_inherited(a);
    const int fd = a.fd.adopt(create_memfd());
    if (fd < 0) {
        const char* const help =
            errno == EPERM ? "; allow this system call in the container's seccomp profile" : "";
        LOG_ERROR_ONCE("cannot share memory: memfd_create: %s%s", strerrordesc_np(errno), help);
        return -1;
    }
    std::byte* base = nullptr;
    std::uint64_t bytes = largest_file();
    int error = bytes < kLeastArenaBytes ? EFBIG : 0;
    for (; !base && bytes >= kLeastArenaBytes; bytes /= 2) {
        if (libc::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
            error = errno;
            break;
        }
        base = map_window(fd, bytes);
        if (base) break;
        error = errno;
    }
    if (base && libc::fcntl(fd, F_ADD_SEALS, long{kSeals}) != 0) {
        error = errno;
        libc::munmap(base, bytes);
        base = nullptr;
    }
    if (!base) {
        LOG_ERROR_ONCE(
            "cannot share memory: there is no address space for an arena of at least %llu MiB "
            "(ulimit -v, -f): %s",
            static_cast<unsigned long long>(kLeastArenaBytes >> 20), strerrordesc_np(error));
        a.fd.close();
        errno = error;
        return -1;
    }
    SOFTHCA_ASSERT(bytes >= kLeastArenaBytes && bytes <= kArenaBytes);
    a.bytes.store(bytes, std::memory_order_release);
    a.inode.store(a.fd.inode(), std::memory_order_release);
    a.base.store(base, std::memory_order_release);
    LOG_DEBUG("arena of %llu MiB, inode %llu, descriptor %d",
              static_cast<unsigned long long>(bytes >> 20),
              static_cast<unsigned long long>(a.fd.inode()), fd);
    return fd;
}

// First fit from a.next on, then from the start. The result is `phase` modulo `align`.
std::uint64_t find_free(const Arena& a, std::uint64_t length, std::uint64_t align,
                        std::uint64_t phase) {
    SOFTHCA_ASSERT((align & (align - 1)) == 0 && phase < align && length % page_bytes() == 0);
    const std::uint64_t end = a.bytes.load(std::memory_order_relaxed);
    if (length > end) return kNoOffset;
    for (const std::uint64_t from : {a.next, std::uint64_t{0}}) {
        for (std::uint64_t at = from; at < end;) {
            const auto run = a.taken.run_at(at);
            if (!run.value) {
                const std::uint64_t first = at + ((phase - at) & (align - 1));
                const std::uint64_t run_end = std::min(run.end, end);
                if (first < run_end && run_end - first >= length) return first;
            }
            at = run.end;
        }
    }
    return kNoOffset;
}

}  // namespace

int arena_open() noexcept {
    Arena& a = arena();
    std::lock_guard lock(a.mutex);
    return open_locked(a);
}

int arena_fd() noexcept { return arena().fd.get(); }
std::byte* arena_base() noexcept { return arena().base.load(std::memory_order_acquire); }
std::uint64_t arena_bytes() noexcept { return arena().bytes.load(std::memory_order_acquire); }
std::uint64_t arena_inode() noexcept { return arena().inode.load(std::memory_order_acquire); }
std::uint64_t arena_device() noexcept { return arena().fd.device(); }
bool arena_fd_intact() noexcept { return arena().fd.intact(); }

std::uint64_t arena_take(std::uint64_t length, std::uint64_t hint, std::uint64_t address) noexcept {
    if (length == 0 || length > kArenaBytes) {
        errno = length ? ENOMEM : EINVAL;
        return kNoOffset;
    }
    length = round_up(length);
    Arena& a = arena();
    std::lock_guard lock(a.mutex);
    if (open_locked(a) < 0) return kNoOffset;
    std::uint64_t offset = kNoOffset;
    if (hint != kNoOffset) {
        const auto run = a.taken.run_at(hint);
        const std::uint64_t end = std::min(run.end, a.bytes.load(std::memory_order_relaxed));
        if (!run.value && hint < end && end - hint >= length) offset = hint;
    }
    if (offset == kNoOffset) {
        const bool huge = length >= kHugeBytes;
        offset = find_free(a, length, huge ? kHugeBytes : page_bytes(),
                           huge ? address & (kHugeBytes - 1) : 0);
    }
    if (offset == kNoOffset) {
        errno = ENOMEM;
        return kNoOffset;
    }
    SOFTHCA_ASSERT(offset % page_bytes() == 0 && offset + length <= a.bytes);
    SOFTHCA_ASSERT(!a.taken.at(offset) && a.taken.run_at(offset).end >= offset + length);
    try {
        a.taken.set(offset, offset + length, true);
    } catch (const std::bad_alloc&) {
        errno = ENOMEM;
        return kNoOffset;
    }
    a.next = offset + length;
    return offset;
}

std::uint64_t arena_allocate(std::uint64_t length) noexcept {
    return arena_take(length, kNoOffset, 0);
}

void arena_free(std::uint64_t offset, std::uint64_t length) noexcept {
    if (length == 0) return;
    length = round_up(length);
    Arena& a = arena();
    std::lock_guard lock(a.mutex);
    std::byte* base = a.base.load(std::memory_order_relaxed);
    if (!base) return;  // in a forked child: the allocation was the parent's
    SOFTHCA_ASSERT(offset % page_bytes() == 0 && offset < a.bytes && length <= a.bytes - offset);
    SOFTHCA_ASSERT(a.taken.run_at(offset).value && a.taken.run_at(offset).end >= offset + length);
    // This works through the mapping, because the application may have closed the descriptor. Pages
    // that cannot be emptied are not allocated again, since allocations must be zero.
    if (libc::madvise(base + offset, length, MADV_REMOVE) != 0) {
        LOG_WARN_ONCE("cannot free pages of the arena: %s", strerrordesc_np(errno));
        return;
    }
    try {
        a.taken.set(offset, offset + length, false);
    } catch (const std::bad_alloc&) {
        LOG_WARN_ONCE("cannot reuse pages of the arena: out of memory");
        return;
    }
    a.next = std::min(a.next, offset);
}

void arena_empty(std::uint64_t offset, std::uint64_t length) noexcept {
    std::byte* base = arena_base();
    SOFTHCA_ASSERT(!base || (offset < arena_bytes() && length <= arena_bytes() - offset));
    if (!base || libc::madvise(base + offset, length, MADV_REMOVE) == 0) return;
    LOG_WARN_ONCE("cannot empty pages of the arena: %s", strerrordesc_np(errno));
}

void* arena_map_own(void* address, std::uint64_t length, int prot, int flags,
                    std::uint64_t offset) noexcept {
    Arena& a = arena();
    std::lock_guard lock(a.mutex);
    if (!a.base.load(std::memory_order_relaxed) || !a.fd.intact()) {
        errno = EBADF;
        return MAP_FAILED;
    }
    return libc::mmap(address, length, prot, flags, a.fd.get(), static_cast<off_t>(offset));
}

std::byte* arena_map_peer(pid_t pid, int fd, std::uint64_t inode, std::uint64_t* bytes) noexcept {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    // Take only a handle first, so that the file which now has that number is checked before it is
    // opened.
    const int handle = libc::open(path, O_PATH | O_CLOEXEC);
    if (handle < 0) return nullptr;
    struct stat status;
    int error = 0;
    int file = -1;
    if (libc::fstat(handle, &status) != 0) {
        error = errno;
    } else if (!S_ISREG(status.st_mode) || status.st_ino != inode || status.st_size <= 0 ||
               static_cast<std::uint64_t>(status.st_size) > kArenaBytes ||
               static_cast<std::uint64_t>(status.st_size) % page_bytes() != 0) {
        error = EINVAL;
    } else if (status.st_uid != geteuid()) {
        error = EACCES;
    } else {
        std::snprintf(path, sizeof path, "/proc/self/fd/%d", handle);
        file = libc::open(path, O_RDWR | O_CLOEXEC);
        if (file < 0) error = errno;
    }
    libc::close(handle);
    std::byte* base = nullptr;
    if (file >= 0) {
        const std::uint64_t size = static_cast<std::uint64_t>(status.st_size);
        const int seals = libc::fcntl(file, F_GET_SEALS);
        if (seals < 0 || (seals & kSeals) != kSeals) {
            error = EINVAL;
        } else if (base = map_window(file, size); !base) {
            error = errno;
        } else {
            Arena& a = arena();
            std::lock_guard lock(a.mutex);
            try {
                forget_inherited(a);
                SOFTHCA_ASSERT(!a.peers.contains(base));
                a.peers.emplace(base, size);
                if (bytes) *bytes = size;
            } catch (const std::bad_alloc&) {
                libc::munmap(base, size);
                base = nullptr;
                error = ENOMEM;
            }
        }
        libc::close(file);
    }
    if (!base) errno = error;
    return base;
}

bool arena_is_open(pid_t pid, int fd, std::uint64_t inode) noexcept {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    struct stat status;
    if (libc::stat(path, &status) != 0) return errno != ENOENT && errno != ESRCH;
    return status.st_ino == inode;
}

void arena_unmap_peer(std::byte* base) noexcept {
    SOFTHCA_ASSERT(base != nullptr && base != arena_base());
    Arena& a = arena();
    std::lock_guard lock(a.mutex);
    forget_inherited(a);
    const auto peer = a.peers.find(base);
    if (peer == a.peers.end()) return;
    libc::munmap(base, peer->second);
    a.peers.erase(peer);
}

void arena_lock_for_fork() noexcept { arena().mutex.lock(); }

void arena_unlock_after_fork(bool child) noexcept {
    Arena& a = arena();
    if (child) {
        a.fd.close();
        a.base.store(nullptr, std::memory_order_release);
        a.bytes.store(0, std::memory_order_release);
        a.inode.store(0, std::memory_order_release);
        a.inherited = true;
    }
    a.mutex.unlock();
}

}  // namespace softhca::device::memory
