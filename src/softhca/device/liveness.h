// SPDX-License-Identifier: BSD-2-Clause
// How a process shows that it lives: a write lock (open file description lock) on one byte of the
// segment's file for each process slot, far behind the segment itself. The kernel releases the lock
// when the process ends or calls exec, however it ends.
#pragma once

#include <fcntl.h>

#include <sys/types.h>

#include <cstdint>

namespace softhca::device {

// Where the liveness byte of slot 0 lies.
inline constexpr off_t kLivenessBase = off_t{1} << 40;

// An exclusive lock of the liveness bytes of `count` slots from `slot` on, for fcntl(2).
inline struct flock liveness_lock(std::uint32_t slot, std::uint32_t count) noexcept {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = kLivenessBase + slot;
    lock.l_len = count;
    return lock;
}

}  // namespace softhca::device
