// SPDX-License-Identifier: BSD-2-Clause
// The interface of /dev/infiniband/uverbs0 towards the libc layer: what open, ioctl, mmap and close
// on it mean. Everything is thread-safe; errors are errno as the kernel's uverbs gives them.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace softhca::uverbs {

inline constexpr unsigned kMajor = 231, kMinor = 192;

// A new command descriptor: a sparse memfd in which every UAR offset is valid, so that even an mmap
// that nobody intercepts works. -1 and errno.
int open_device(int flags) noexcept;
bool owns(int fd) noexcept;  // a command descriptor of this process; one load
// Whether `fd` is a duplicate (dup, fcntl) of a command descriptor, and thereby one itself: from
// here on owns() says so. Not cheap: for descriptors that look like one.
bool adopt(int fd) noexcept;
int ioctl(int fd, unsigned long request, void* argument) noexcept;
void* map(int fd, void* address, std::size_t length, int prot, int flags, off_t offset) noexcept;

// Told before a descriptor for which owns() or owns_channel() holds is closed.
void closing(int fd) noexcept;
bool owns_channel(int fd) noexcept;
bool is_internal(int fd) noexcept;

// Before _exit(): Fabric::leave_abruptly, for a process that is in one. Async-signal-safe.
void leave_fabric_abruptly() noexcept;

}  // namespace softhca::uverbs
