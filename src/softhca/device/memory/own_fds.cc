// SPDX-License-Identifier: BSD-2-Clause
// Keeps descriptors at high numbers: see own_fds.h.

#include "softhca/device/memory/own_fds.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"

namespace softhca::device::memory {

namespace {

// Above the numbers that programs assign themselves, that select(2) reaches and that shells use,
// but within the usual limit of 1024.
constexpr int kLowestFd = 640;

}  // namespace

int OwnFd::adopt(int fd) noexcept {
    if (fd < 0) return -1;
    // If the limit is lower, or the table is full, the descriptor keeps its number.
    const int high = fd >= kLowestFd ? -1 : libc::fcntl(fd, F_DUPFD_CLOEXEC, long{kLowestFd});
    if (high >= 0) {
        libc::close(fd);
        fd = high;
    }
    struct stat status;
    SOFTHCA_ASSERT(fd >= 0);
    if (libc::fstat(fd, &status) != 0) {
        const int error = errno;
        libc::close(fd);
        errno = error;
        return -1;
    }
    inode_ = status.st_ino;
    device_ = status.st_dev;
    fd_.store(fd, std::memory_order_release);
    return fd;
}

bool OwnFd::intact() const noexcept {
    struct stat status;
    const int fd = get();
    return fd >= 0 && libc::fstat(fd, &status) == 0 && status.st_ino == inode_ &&
           status.st_dev == device_;
}

void OwnFd::close() noexcept {
    if (intact()) libc::close(get());
    fd_.store(-1, std::memory_order_release);
}

int ProcFile::get() noexcept {
    if (own_.intact()) return own_.get();
    own_.close();
    return own_.adopt(libc::open(path_, flags_ | O_CLOEXEC));
}

}  // namespace softhca::device::memory
