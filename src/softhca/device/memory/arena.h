// SPDX-License-Identifier: BSD-2-Clause
// The arena: the one piece of memory of a process that the other processes of the fabric can map.
// It is a sparse, size-sealed memfd (memfd_create(2), F_ADD_SEALS in fcntl(2)); a peer opens it as
// /proc/PID/fd/FD and maps it whole, once. Offsets in it are handed out in pages.
//
// All functions are thread-safe. None is async-signal-safe.
#pragma once

#include <sys/types.h>
#include <cstddef>
#include <cstdint>

namespace softhca::device::memory {

inline constexpr std::uint64_t kArenaBytes = 64ULL << 30;       // address space, not memory
inline constexpr std::uint64_t kLeastArenaBytes = 16ULL << 20;  // with less, opening fails
inline constexpr std::uint64_t kNoOffset = ~std::uint64_t{0};

// Opens the own arena. Idempotent. The (close-on-exec, high-numbered) file descriptor, or -1 and
// errno. The arena is as large as the limits of the process (RLIMIT_AS, RLIMIT_FSIZE) allow.
int arena_open() noexcept;

// The descriptor, the own mapping, its size and the inode that names the arena; -1, nullptr, 0 and
// 0 before arena_open() and in a forked child until it opens its own.
int arena_fd() noexcept;
std::byte* arena_base() noexcept;
std::uint64_t arena_bytes() noexcept;
std::uint64_t arena_inode() noexcept;

// Pages of the arena for softhca's own shared memory: zero-filled, length rounded up to pages.
// kNoOffset and errno when there are none (ENOMEM) or the arena cannot be opened.
std::uint64_t arena_allocate(std::uint64_t length) noexcept;
// Gives pages back, to the system too. Offset and length as in the allocation, or page multiples
// within it. They must not be reachable by a peer any more.
void arena_free(std::uint64_t offset, std::uint64_t length) noexcept;

// Empties pages of an allocation without giving them back: they are zero again, and take no memory.
void arena_empty(std::uint64_t offset, std::uint64_t length) noexcept;

// Maps pages of the own arena once more, shared, for the application to use: as mmap(2). EBADF when
// the application has closed the descriptor.
void* arena_map_own(void* address, std::uint64_t length, int prot, int flags,
                    std::uint64_t offset) noexcept;

// Maps the arena of another process of the same user, whole, readable and writable. Refuses
// (EINVAL) whatever is not the sealed memfd with that inode, so that nothing a peer does later can
// make an access fault; EACCES when it belongs to another user. Size in *bytes. nullptr and errno
// on error.
std::byte* arena_map_peer(pid_t pid, int fd, std::uint64_t inode,
                          std::uint64_t* bytes = nullptr) noexcept;
void arena_unmap_peer(std::byte* base) noexcept;
// Does the process still have that arena open? True as well where the system does not say.
bool arena_is_open(pid_t pid, int fd, std::uint64_t inode) noexcept;

// Descriptors that this folder holds for itself; the application must not close or replace them.
bool owns_fd(int fd) noexcept;

}  // namespace softhca::device::memory
