// SPDX-License-Identifier: BSD-2-Clause
// Holds writers back: see write_guard.h. No thread ever reads the userfaultfd. A thread that
// touches a held page waits in the kernel until it is woken.

#include "softhca/device/memory/write_guard.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/base/options.h"
#include "softhca/device/memory/arena_internal.h"
#include "softhca/device/memory/pagemap.h"

namespace softhca::device::memory {

namespace {

// Newer than distributions' headers.
constexpr std::uint64_t kFeatureWpUnpopulated = 1ULL << 13;  // Linux 6.4
constexpr std::uint64_t kFeatureMove = 1ULL << 16;           // Linux 6.8
struct UffdioMove {
    std::uint64_t dst;
    std::uint64_t src;
    std::uint64_t len;
    std::uint64_t mode;
    std::int64_t move;
};
constexpr unsigned long kUffdioMove = _IOWR(UFFDIO, 0x05, UffdioMove);
constexpr int kUserModeOnly = 1;  // UFFD_USER_MODE_ONLY, Linux 5.11

constexpr std::uint64_t kCureBytes = 64ULL << 10;

constexpr std::uint64_t kWanted = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM |
                                  kFeatureWpUnpopulated | kFeatureMove;

int new_userfaultfd(bool all_stores) noexcept {
    constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
    if (options().device.has(DeviceTrait::kNoUserfaultfd)) {
        errno = EPERM;
        return -1;
    }
    if (!all_stores) return static_cast<int>(::syscall(SYS_userfaultfd, kFlags | kUserModeOnly));
    int fd = static_cast<int>(::syscall(SYS_userfaultfd, kFlags));
    if (fd >= 0) return fd;
    // A device whose permissions the administrator set for this purpose (Linux 6.1).
    const int device = libc::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device < 0) return -1;
    fd = static_cast<int>(::syscall(SYS_ioctl, device, USERFAULTFD_IOC_NEW, kFlags));
    libc::close(device);
    return fd;
}

// Negotiates features. Returns those that the kernel has, or 0 if the negotiation fails.
std::uint64_t handshake(int fd, std::uint64_t features) noexcept {
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = features;
    return libc::ioctl(fd, UFFDIO_API, &api) == 0 ? api.features : 0;
}

// Reads a byte of every page, so that each page has a table entry that can be protected. It uses a
// system call, because the application may unmap the range at any time.
void touch(std::uint64_t address, std::uint64_t length) noexcept {
    if (libc::madvise(reinterpret_cast<void*>(address), length, libc::kMadvPopulateRead) == 0)
        return;
    char sink;
    for (std::uint64_t at = address; at < address + length; at += page_bytes()) {
        const iovec local{&sink, 1};
        const iovec remote{reinterpret_cast<void*>(at), 1};
        libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1);
    }
}

}  // namespace

bool WriteGuard::open() noexcept {
    if (uffd_.get() >= 0 && uffd_.intact()) return true;
    if (tried_ && reach_ == Reach::kNothing) return false;
    tried_ = true;
    area_ = 0;  // it was registered with the lost descriptor; its address space stays reserved
    for (const Reach reach : {Reach::kAllStores, Reach::kUserStores}) {
        if (reach > most_) continue;
        const bool all = reach == Reach::kAllStores;
        // The only handshake must name the features, and the kernel must have them. So ask with
        // another descriptor first.
        int fd = new_userfaultfd(all);
        if (fd < 0) continue;
        features_ = handshake(fd, 0) & kWanted;
        libc::close(fd);
        fd = new_userfaultfd(all);
        if (fd < 0) continue;
        if (!(features_ & UFFD_FEATURE_PAGEFAULT_FLAG_WP) || !handshake(fd, features_)) {
            libc::close(fd);
            continue;
        }
        if (uffd_.adopt(fd) < 0) continue;
        reach_ = reach;
        LOG_DEBUG("userfaultfd holds back %s; features %#llx",
                  all ? "all stores" : "stores of user mode",
                  static_cast<unsigned long long>(features_));
        return true;
    }
    reach_ = Reach::kNothing;
    LOG_DEBUG("no userfaultfd: %s", strerrordesc_np(errno));
    return false;
}

WriteGuard::Reach WriteGuard::reach() noexcept { return open() ? reach_ : Reach::kNothing; }

bool WriteGuard::finds_pins() noexcept {
    return means_ == Means::kBest && open() && (features_ & kFeatureMove) && open_area();
}

bool WriteGuard::holds_shared() noexcept {
    return means_ != Means::kNone && open() && (features_ & UFFD_FEATURE_WP_HUGETLBFS_SHMEM);
}

bool WriteGuard::open_area() noexcept {
    if (area_) return true;
    // One huge page more lets pages move to a place that is equal modulo huge pages, so that whole
    // ones stay whole. Another one is for the alignment.
    constexpr std::uint64_t kReserve = kMostBytes + 2 * kHugeBytes;
    void* at = libc::mmap(nullptr, kReserve, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return false;
    ::syscall(SYS_munlock, at, kReserve);  // undoes mlockall(2): both sides of a move must agree
    libc::madvise(at, kReserve, MADV_DONTFORK);
    libc::madvise(at, kReserve, MADV_DONTDUMP);
    const auto base = (reinterpret_cast<std::uint64_t>(at) + kHugeBytes - 1) & ~(kHugeBytes - 1);
    // Only a registered range can be the target of a move. In this mode no thread waits in the
    // area.
    if (!register_range(base, kMostBytes + kHugeBytes, UFFDIO_REGISTER_MODE_WP)) {
        libc::munmap(at, kReserve);
        return false;
    }
    area_ = base;
    return true;
}

void WriteGuard::discard_area() noexcept {
    SOFTHCA_ASSERT(area_ != 0);
    libc::madvise(reinterpret_cast<void*>(area_), kMostBytes + kHugeBytes, MADV_DONTNEED);
}

bool WriteGuard::register_range(std::uint64_t address, std::uint64_t length,
                                std::uint64_t mode) noexcept {
    SOFTHCA_DEBUG_ASSERT(uffd_.get() >= 0 && length > 0);
    uffdio_register range{};
    range.range = {address, length};
    range.mode = mode;
    return libc::ioctl(uffd_.get(), UFFDIO_REGISTER, &range) == 0;
}

void WriteGuard::unregister_range(std::uint64_t address, std::uint64_t length) noexcept {
    uffdio_range range{address, length};
    libc::ioctl(uffd_.get(), UFFDIO_UNREGISTER, &range);
}

bool WriteGuard::protect(std::uint64_t address, std::uint64_t length, bool on) noexcept {
    uffdio_writeprotect range{};
    range.range = {address, length};
    range.mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0;
    while (libc::ioctl(uffd_.get(), UFFDIO_WRITEPROTECT, &range) != 0)
        if (errno != EAGAIN) return false;
    return true;
}

void WriteGuard::wake(std::uint64_t address, std::uint64_t length) noexcept {
    uffdio_range range{address, length};
    libc::ioctl(uffd_.get(), UFFDIO_WAKE, &range);
}

std::uint64_t WriteGuard::hole(std::uint64_t address, std::uint64_t length) const noexcept {
    const std::uint64_t page = page_bytes();
    std::array<std::uint64_t, 512> entries;
    std::uint64_t found = page;
    // Most holes are short, or very long.
    for (std::size_t most = 16; found < length; most = std::min(4 * most, entries.size())) {
        const std::span some(entries.data(), std::min<std::size_t>(most, (length - found) / page));
        if (!read_pagemap(pagemap_, address + found, some)) break;
        const auto end = std::find_if(some.begin(), some.end(), has_content);
        found += static_cast<std::uint64_t>(end - some.begin()) * page;
        if (end != some.end()) break;
    }
    return found;
}

// UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES would pass over pages without content. But Linux 6.18 never
// returns from it, until the process is killed, if another thread discards such pages by madvise(2)
// meanwhile.
std::uint64_t WriteGuard::move(std::uint64_t to, std::uint64_t from, std::uint64_t length,
                               int* error) noexcept {
    std::uint64_t done = 0;
    *error = 0;
    // EAGAIN without progress means that the kernel met a page lock or a mapping in change, which
    // is transient. So is EINVAL where madvise(2) has just freed a page table; else it stays.
    for (unsigned attempts = 0, refusals = 0; done < length && attempts < 10000; ++attempts) {
        UffdioMove range{to + done, from + done, length - done, 0, 0};
        if (libc::ioctl(uffd_.get(), kUffdioMove, &range) == 0) return length;
        if (range.move > 0)
            done += static_cast<std::uint64_t>(range.move);
        else if (errno == ENOENT)
            done += hole(from + done, length - done);
        else if (errno == EAGAIN || (errno == EINVAL && ++refusals < 100))
            continue;
        else {
            *error = errno;
            return done;
        }
        attempts = refusals = 0;
    }
    if (done < length) *error = EAGAIN;
    return done;
}

WriteGuard::Held WriteGuard::hold_by_move(std::uint64_t address, std::uint64_t length) noexcept {
    SOFTHCA_ASSERT(area_ != 0);
    constexpr std::uint64_t kMode = UFFDIO_REGISTER_MODE_MISSING;
    // This is done without writers, too: it detects a range that the application watches by a
    // userfaultfd of its own.
    if (!register_range(address, length, kMode)) return {};
    const std::uint64_t to = area_ + (address & (kHugeBytes - 1));
    int error;
    std::uint64_t done = move(to, address, length, &error);
    while (error == EBUSY) {
        // Either the page is pinned, or, after a fork, the kernel does not know that the page
        // belongs to this process alone. A write fault cures the latter. That fault must not wait
        // for this thread. It is done for a few pages at a time, because it allocates pages that
        // had none.
        const std::uint64_t rest = address + done;
        const std::uint64_t some = std::min(length - done, kCureBytes);
        unregister_range(rest, length - done);
        if (libc::madvise(reinterpret_cast<void*>(rest), some, libc::kMadvPopulateWrite) != 0 ||
            !register_range(rest, length - done, kMode))
            return {to, done, false};
        const std::uint64_t more = move(to + done, rest, length - done, &error);
        done += more;
        if (more == 0) break;
    }
    SOFTHCA_ASSERT(done <= length);
    if (done < length) unregister_range(address + done, length - done);
    return {to, done, error == EBUSY};
}

WriteGuard::Held WriteGuard::hold_by_protection(std::uint64_t address,
                                                std::uint64_t length) noexcept {
    const bool populate =
        !(features_ & kFeatureWpUnpopulated) || means_ == Means::kPopulatedWriteProtect;
    if (populate) touch(address, length);
    if (!register_range(address, length, UFFDIO_REGISTER_MODE_WP)) return {};
    if (!protect(address, length, true)) {
        unregister_range(address, length);
        return {};
    }
    held_by_ = HeldBy::kProtection;
    return {address, length, false};
}

WriteGuard::Held WriteGuard::hold(std::uint64_t address, std::uint64_t length, bool writers,
                                  int pagemap) noexcept {
    SOFTHCA_ASSERT(length > 0 && length <= kMostBytes);
    SOFTHCA_ASSERT(held_by_ == HeldBy::kNothing, "one range is held at a time");
    pagemap_ = pagemap;
    if (finds_pins()) {
        const Held held = hold_by_move(address, length);
        SOFTHCA_ASSERT(held.bytes <= length);
        if (held.bytes > 0) held_by_ = HeldBy::kMove;
        return held;
    }
    if (!writers) return {address, length, false};
    if (means_ == Means::kNone || !open()) return {};
    return hold_by_protection(address, length);
}

void WriteGuard::replaced(std::uint64_t address, const Held& held) noexcept {
    SOFTHCA_ASSERT(held.bytes > 0 && held.bytes <= kMostBytes);
    if (held_by_ != HeldBy::kNothing) wake(address, held.bytes);
    if (held_by_ == HeldBy::kMove) discard_area();
    held_by_ = HeldBy::kNothing;
}

void WriteGuard::put_back(std::uint64_t address, const Held& held) noexcept {
    if (held_by_ == HeldBy::kNothing) return;
    if (held_by_ == HeldBy::kMove) {
        int error = 0;
        if (move(address, held.source, held.bytes, &error) != held.bytes) {
            LOG_ERROR("cannot put pages back at %#llx: %s",
                      static_cast<unsigned long long>(address), strerrordesc_np(error));
            std::abort();  // memory of the application is not in its place: nothing can continue
        }
        discard_area();
    } else {
        protect(address, held.bytes, false);
    }
    unregister_range(address, held.bytes);  // wakes the waiting threads
    held_by_ = HeldBy::kNothing;
}

bool WriteGuard::hold_shared(std::uint64_t address, std::uint64_t length) noexcept {
    if (!holds_shared() || !register_range(address, length, UFFDIO_REGISTER_MODE_WP)) return false;
    if (protect(address, length, true)) return true;
    unregister_range(address, length);
    return false;
}

void WriteGuard::shared_replaced(std::uint64_t address, std::uint64_t length) noexcept {
    wake(address, length);
}

void WriteGuard::shared_put_back(std::uint64_t address, std::uint64_t length) noexcept {
    protect(address, length, false);
    unregister_range(address, length);
}

void WriteGuard::forget() noexcept {
    uffd_.close();
    area_ = 0;
    tried_ = false;
    reach_ = Reach::kNothing;
    held_by_ = HeldBy::kNothing;
}

void WriteGuard::restrict(Reach reach, Means means) noexcept {
    forget();
    most_ = reach;
    means_ = means;
}

}  // namespace softhca::device::memory
