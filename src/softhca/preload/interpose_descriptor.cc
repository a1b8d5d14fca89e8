// SPDX-License-Identifier: BSD-2-Clause
// Interposed libc functions that close descriptors: close, close_range, closefrom, fclose, dup2,
// dup3.
//
// uverbs and nldev are notified before each of their descriptors is closed. Internal descriptors
// stay open whatever the program does, because daemons close every descriptor that they can. A
// vfork child usually closes them all before it calls exec; its calls go to the kernel without a
// notification.
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <unistd.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/nldev/sockets.h"
#include "softhca/preload/interpose.h"
#include "softhca/preload/next.h"
#include "softhca/preload/process.h"
#include "softhca/rdmacm/rdmacm.h"
#include "softhca/uverbs/uverbs.h"

namespace softhca::preload {

namespace {

bool special(int fd) noexcept {
    return fd >= 0 && (uverbs::owns(fd) || uverbs::owns_channel(fd) || uverbs::is_internal(fd) ||
                       nldev::owns(fd));
}

// Call this before closing the program's descriptor `fd`.
void tell_of_closing(int fd) noexcept {
    rdmacm::closing(fd);
    uverbs::closing(fd);
    nldev::closing(fd);
}

__attribute__((noinline)) int close_special(int fd) noexcept {
    if (in_borrowed_memory()) {
        return libc::close(fd);
    }
    if (uverbs::is_internal(fd)) {
        return 0;
    }
    tell_of_closing(fd);
    return libc::close(fd);
}

// The special descriptors of a range, in ascending order, up to the capacity of the array.
struct Specials {
    static constexpr unsigned kRoom = 1024;
    unsigned count = 0;
    bool complete = true;  // there are no others up to the range's end
    int fds[kRoom];

    void add(int fd) noexcept {
        SOFTHCA_DEBUG_ASSERT(count <= kRoom && (count == 0 || fds[count - 1] < fd), "ascending");
        if (count == kRoom) {
            complete = false;
            return;
        }
        fds[count++] = fd;
    }
};

unsigned decimal(const char* text) noexcept {
    unsigned value = 0;
    for (; *text >= '0' && *text <= '9'; ++text) {
        value = 10 * value + static_cast<unsigned>(*text - '0');
    }
    return value;
}

// The kernel lists /proc/self/fd in ascending order. Without /proc the first 64 Ki numbers are
// tried.
void find_specials(unsigned first, unsigned last, Specials* out) noexcept {
    const int directory = libc::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) {
        for (unsigned fd = first; fd <= last && fd < 65536; ++fd) {
            if (special(static_cast<int>(fd))) {
                out->add(static_cast<int>(fd));
            }
        }
        return;
    }
    alignas(dirent64) char buffer[2048];
    for (;;) {
        const ssize_t size = libc::getdents64(directory, buffer, sizeof buffer);
        if (size <= 0) {
            break;
        }
        for (ssize_t at = 0; at < size;) {
            const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
            at += entry->d_reclen;
            if (entry->d_name[0] < '0' || entry->d_name[0] > '9') {
                continue;
            }
            const unsigned fd = decimal(entry->d_name);
            if (fd >= first && fd <= last && static_cast<int>(fd) != directory &&
                special(static_cast<int>(fd))) {
                out->add(static_cast<int>(fd));
            }
        }
    }
    libc::close(directory);
}

// Closes [first, last], except for internal descriptors.
int close_all(unsigned first, unsigned last, unsigned flags) noexcept {
    // Closing an empty range tells whether the kernel has the call and the flags, before uverbs is
    // notified.
    if (first > last || libc::close_range(~0U, ~0U, flags & ~CLOSE_RANGE_UNSHARE) != 0) {
        return libc::close_range(first, last, flags);
    }
    const unsigned whole_last = last;
    for (;;) {
        Specials found;
        find_specials(first, whole_last, &found);
        SOFTHCA_ASSERT(found.complete || found.count == Specials::kRoom);
        last = found.complete ? whole_last : static_cast<unsigned>(found.fds[found.count - 1]);
        unsigned from = first;
        for (unsigned i = 0; i < found.count; ++i) {
            const int fd = found.fds[i];
            const auto number = static_cast<unsigned>(fd);
            SOFTHCA_ASSERT(number >= first && number <= last);
            if (!uverbs::is_internal(fd)) {
                tell_of_closing(fd);
                continue;
            }
            if (number > from && libc::close_range(from, number - 1, flags) != 0) {
                return -1;
            }
            from = number + 1;
        }
        if (from <= last && libc::close_range(from, last, flags) != 0) {
            return -1;
        }
        if (found.complete) {
            return 0;
        }
        SOFTHCA_ASSERT(last >= first && last <= whole_last);
        first = last + 1;
    }
}

int close_range_any(unsigned first, unsigned last, unsigned flags) noexcept {
    const bool only_marks = (flags & CLOSE_RANGE_CLOEXEC) != 0;
    if (only_marks || in_borrowed_memory()) {
        return libc::close_range(first, last, flags);
    }
    return close_all(first, last, flags);
}

// Call this before a dup closes `target`. Returns false if `target` must stay open.
bool release_target(int target) noexcept {
    if (!special(target) || in_borrowed_memory()) {
        return true;
    }
    if (uverbs::is_internal(target)) {
        LOG_WARN_ONCE("descriptor %d is softhca's own: dup2 and dup3 onto it are refused (EBUSY)",
                      target);
        errno = EBUSY;
        return false;
    }
    tell_of_closing(target);
    return true;
}

bool is_open(int fd) noexcept { return libc::fcntl(fd, F_GETFD) >= 0; }

}  // namespace

SOFTHCA_INTERPOSE(close, int, interpose_close, (int fd) noexcept);
int interpose_close(int fd) noexcept {
    if (special(fd)) [[unlikely]] {
        return close_special(fd);
    }
    return libc::close(fd);
}
SOFTHCA_ALSO(__close, close, interpose_close);

SOFTHCA_INTERPOSE(close_range, int, interpose_close_range,
                  (unsigned first, unsigned last, int flags) noexcept);
int interpose_close_range(unsigned first, unsigned last, int flags) noexcept {
    return close_range_any(first, last, static_cast<unsigned>(flags));
}

SOFTHCA_INTERPOSE(closefrom, void, interpose_closefrom, (int low) noexcept);
void interpose_closefrom(int low) noexcept {
    const unsigned first = low > 0 ? static_cast<unsigned>(low) : 0;
    if (close_range_any(first, ~0U, 0) == 0) {
        return;
    }
    // The kernel is older than 5.9. The limit may have been lowered since a descriptor was opened,
    // but nobody can tell how far.
    const long limit = ::sysconf(_SC_OPEN_MAX);
    for (unsigned fd = first; limit > 0 && fd < static_cast<unsigned>(limit); ++fd) {
        interpose_close(static_cast<int>(fd));
    }
}

SOFTHCA_INTERPOSE(fclose, int, interpose_fclose, (std::FILE * stream) noexcept);
int interpose_fclose(std::FILE* stream) noexcept {
    const int saved_errno = errno;
    const int fd = ::fileno(stream);
    errno = saved_errno;
    if (special(fd) && !in_borrowed_memory()) [[unlikely]] {
        tell_of_closing(fd);
    }
    return next<int(std::FILE*)>(Next::kFclose)(stream);
}

SOFTHCA_INTERPOSE(dup2, int, interpose_dup2, (int fd, int target) noexcept);
int interpose_dup2(int fd, int target) noexcept {
    if (special(target) && target != fd && is_open(fd) && !release_target(target)) [[unlikely]] {
        return -1;
    }
    return libc::dup2(fd, target);
}
SOFTHCA_ALSO(__dup2, dup2, interpose_dup2);

SOFTHCA_INTERPOSE(dup3, int, interpose_dup3, (int fd, int target, int flags) noexcept);
int interpose_dup3(int fd, int target, int flags) noexcept {
    const bool valid = target != fd && (flags & ~O_CLOEXEC) == 0;
    if (special(target) && valid && is_open(fd) && !release_target(target)) [[unlikely]] {
        return -1;
    }
    return libc::dup3(fd, target, flags);
}

}  // namespace softhca::preload
