// SPDX-License-Identifier: BSD-2-Clause
// The interface of /dev/infiniband/rdma_cm for the libc layer: the effect of open, write and close
// on it. All functions are thread-safe. Errors are errnos as in the kernel's ucma.c.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace softhca::rdmacm {

// Opens an event channel: the read end of a pipe, which is readable while an event is queued.
// Returns -1 and errno on an error.
int open_channel(int flags) noexcept;
bool owns(int fd) noexcept;  // whether it is an event channel of this process; one load
// Runs a command (rdma/rdma_user_cm.h). As write(2), whose place it takes.
ssize_t write(int fd, const void* command, std::size_t size) noexcept;
// Call this before closing a descriptor for which owns() holds: its ids are destroyed.
void closing(int fd) noexcept;

}  // namespace softhca::rdmacm
