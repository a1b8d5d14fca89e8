// SPDX-License-Identifier: BSD-2-Clause
// Copies to and from memory of another process that is not shared: process_vm_writev(2),
// process_vm_readv(2), or /proc/PID/mem where the system calls are filtered out.
//
// All functions are thread-safe.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>
#include <cstddef>

namespace softhca::device::memory {

// Copy the first `bytes` bytes of the vectors, which both hold at least that much (else EINVAL).
// 0, or an errno; bytes before the failing one may have been copied:
//   EFAULT  part of either side is not mapped (never a signal, not for the own process either)
//   EPERM   the system refuses access to that process; logs one message a process
//   ESRCH   the process is gone
// pid may be the own process.
int copy_to(pid_t pid, const iovec* local, unsigned nlocal, const iovec* remote, unsigned nremote,
            std::size_t bytes) noexcept;
int copy_from(pid_t pid, const iovec* local, unsigned nlocal, const iovec* remote, unsigned nremote,
              std::size_t bytes) noexcept;

// Is that process, or its main thread, ending or gone? The kernel says so before it takes memory
// and descriptors away. False where the system does not say.
bool is_ending(pid_t pid) noexcept;

// Has the system refused a copy since this process started?
bool copy_refused() noexcept;

}  // namespace softhca::device::memory
