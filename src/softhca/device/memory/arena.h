// SPDX-License-Identifier: BSD-2-Clause
// The arena is the one memory object of a process that the other processes of the fabric can map.
// It is a sparse, size-sealed memfd (memfd_create(2), F_ADD_SEALS in fcntl(2)). A peer opens it as
// /proc/PID/fd/FD and maps it whole, once. Offsets are allocated in pages.
//
// All functions are thread-safe. None is async-signal-safe.
#pragma once

#include <sys/types.h>
#include <cstddef>
#include <cstdint>

namespace softhca::device::memory {

inline constexpr std::uint64_t kArenaBytes = 64ULL << 30;       // address space, not memory
inline constexpr std::uint64_t kLeastArenaBytes = 16ULL << 20;  // a smaller arena is refused
inline constexpr std::uint64_t kNoOffset = ~std::uint64_t{0};

// Opens this process's arena. Idempotent. Returns the file descriptor (close-on-exec, with a high
// number), or -1 and errno. The arena is as large as the limits of the process (RLIMIT_AS,
// RLIMIT_FSIZE) allow.
int arena_open() noexcept;

// This process's arena: its descriptor, its mapping, its size, and the inode that identifies it.
// They are -1, nullptr, 0 and 0 before arena_open(), and in a forked child until it opens an arena
// of its own.
int arena_fd() noexcept;
std::byte* arena_base() noexcept;
std::uint64_t arena_bytes() noexcept;
std::uint64_t arena_inode() noexcept;

// Allocates pages of the arena for softhca's own shared memory. They are zero-filled, and length is
// rounded up to pages. Returns kNoOffset and errno if there are none (ENOMEM) or the arena cannot
// be opened.
std::uint64_t arena_allocate(std::uint64_t length) noexcept;
// Frees pages, and returns their memory to the system. Offset and length are those of the
// allocation, or page multiples within it. No peer may reach the pages any more.
void arena_free(std::uint64_t offset, std::uint64_t length) noexcept;

// Empties pages of an allocation without freeing them: they read as zero, and take no memory.
void arena_empty(std::uint64_t offset, std::uint64_t length) noexcept;

// Maps pages of this process's arena a second time, shared, for the application to use. Results as
// of mmap(2). EBADF if the application has closed the descriptor.
void* arena_map_own(void* address, std::uint64_t length, int prot, int flags,
                    std::uint64_t offset) noexcept;

// Maps the whole arena of another process of the same user, readable and writable. Refuses (EINVAL)
// anything but the sealed memfd with that inode, so that nothing a peer does later can make an
// access fault. EACCES if the file belongs to another user. Stores the size in *bytes. Returns
// nullptr and errno on an error.
std::byte* arena_map_peer(pid_t pid, int fd, std::uint64_t inode,
                          std::uint64_t* bytes = nullptr) noexcept;
void arena_unmap_peer(std::byte* base) noexcept;
// Whether the process still has that arena open. Also true if the system does not tell.
bool arena_is_open(pid_t pid, int fd, std::uint64_t inode) noexcept;

// Whether this folder keeps the descriptor for itself, so that the application must not close or
// replace it.
bool owns_fd(int fd) noexcept;

}  // namespace softhca::device::memory
