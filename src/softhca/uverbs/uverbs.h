// SPDX-License-Identifier: BSD-2-Clause
// The interface of /dev/infiniband/uverbs0 and its like for the libc layer: the effect of open,
// ioctl, mmap and close on it. All functions are thread-safe. Errors are errnos as in the kernel's
// uverbs.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace softhca::uverbs {

// Opens a new command descriptor of one of the fabric's devices: a sparse memfd in which every UAR
// offset is valid, so that even an mmap that nobody intercepts works. Returns -1 and errno on an
// error.
int open_device(unsigned device) noexcept;
bool owns(int fd) noexcept;  // whether it is a command descriptor of this process; one load
// Whether `fd` is a duplicate (dup, fcntl) of a command descriptor. If so, owns() is true for it
// from then on. Not cheap: call it only for descriptors that look like one.
bool adopt(int fd) noexcept;
// The device of a command descriptor, or 0.
unsigned device_of(int fd) noexcept;
int ioctl(int fd, unsigned long request, void* argument) noexcept;
void* map(int fd, void* address, std::size_t length, int prot, int flags, off_t offset) noexcept;

// Call this before closing a descriptor for which owns() or owns_channel() holds.
void closing(int fd) noexcept;
bool owns_channel(int fd) noexcept;
bool is_internal(int fd) noexcept;

// Calls Fabric::leave_abruptly() before _exit(), if the process is in a fabric. Async-signal-safe.
void leave_fabric_abruptly() noexcept;

}  // namespace softhca::uverbs
