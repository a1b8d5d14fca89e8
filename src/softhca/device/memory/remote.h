// SPDX-License-Identifier: BSD-2-Clause
// Copies to and from another process's memory that is not shared, by process_vm_writev(2) and
// process_vm_readv(2). If a filter refuses these system calls, the copies use /proc/PID/mem.
//
// All functions are thread-safe.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>
#include <cstddef>

namespace softhca::device::memory {

// Copy the first `bytes` bytes of the vectors. Both vectors must hold at least that many (else
// EINVAL). The result is 0 or an errno; after an error the bytes before the failing one may have
// been copied:
// - EFAULT: a part of either side is not mapped (never a signal, not for the own process either)
// - EPERM: the system refuses access to that process; one message is logged in a process
// - ESRCH: the process is gone
// `pid` may be the own process.
int copy_to(pid_t pid, const iovec* local, unsigned nlocal, const iovec* remote, unsigned nremote,
            std::size_t bytes) noexcept;
int copy_from(pid_t pid, const iovec* local, unsigned nlocal, const iovec* remote, unsigned nremote,
              std::size_t bytes) noexcept;

// Whether that process, or its main thread, is ending or gone. The kernel says so before it takes
// memory and descriptors away. False if the system does not tell.
bool is_ending(pid_t pid) noexcept;

// Whether the system has refused a copy since this process started.
bool copy_refused() noexcept;

}  // namespace softhca::device::memory
