// SPDX-License-Identifier: BSD-2-Clause
// While private pages of this process are registered, sharing replaces them by shared ones: pages
// of the arena, mapped at the same address. So peers reach them by plain loads and stores.
//
// Guarantees:
// - No store is lost. A page is exchanged only while nobody can write to it: either the process has
//   no other thread, or userfaultfd holds the writers back, including those in system calls. If
//   neither is possible, the page stays private, and peers reach it by remote.h.
// - fork(2) keeps its meaning. The child gets private copies of the current values, and neither
//   side sees later stores of the other. See fork.h.
// - madvise(2) and mremap(2) do to shared pages what they do to private ones: program_calls.h.
// - Mappings that the application changes without our seeing it (munmap, mremap or MAP_FIXED inside
//   libc) are found before an old segment is used again. Memory that is not plain and private is
//   never touched.
//
// Limits:
// - If the program discards pages by a raw system call, shared pages keep their content.
// - Direct I/O (O_DIRECT) into the pages may end in the old pages if it is under way when their
//   last registration is released, or, before Linux 6.8, when the first one begins. Longer pins,
//   such as buffers registered with io_uring, are detected.
#pragma once

#include <cstdint>

namespace softhca::device::memory {

// [address, +length) of the owner's address space is [offset, +length) of its arena. All are page
// multiples.
struct Extent {
    std::uint64_t address;
    std::uint64_t length;
    std::uint64_t offset;
};

inline constexpr unsigned kMaxExtents = 6;

// The shared part of a registered range, in ascending order. It is plain data that may lie where
// peers can read and damage it, so release() uses nothing but the ticket.
struct Extents {
    std::uint32_t count;
    bool complete;          // every byte asked for is shared; else remote.h reaches the rest
    std::uint64_t address;  // the range that the caller asked for
    std::uint64_t length;
    std::uint64_t ticket;  // identifies the registration in this process; 0: none
    Extent extent[kMaxExtents];
};

enum class Purpose {
    // Whole pages that the driver owns. During the command nobody writes them, except to doorbell
    // records of other queues, which the creation of those queues initialises again.
    kQueue,
    kApplication,  // payload, shared with SOFTHCA_MEMORY=auto only
    kBrief,        // payload that is registered only briefly, so it stays private
};

// Shares as much as possible of [address, +length), and counts one more user of what is already
// shared. Returns 0 and describes the shared part, which may be empty, in *out. On an error *out is
// empty and the result is an errno:
// - EFAULT: a page of the range is not mapped or not accessible
// - EINVAL: the range is empty or wraps around
// - ENOMEM
int share(std::uint64_t address, std::uint64_t length, Purpose purpose, Extents* out) noexcept;

// Undoes one share(). Pages without users become private memory with the same content. If writers
// cannot be held back, the pages stay shared until the process has one thread again or the
// application unmaps them. The caller ensures that no peer still reads or writes through the
// extents.
void release(const Extents& extents) noexcept;

// For devices on which fork does not copy (DeviceTrait::kNoCopyOnFork): the program withholds
// [address, +length) from its children (MADV_DONTFORK), or gives it back.
void keep_from_children(std::uint64_t address, std::uint64_t length, bool keep) noexcept;

// Sets how many threads of this process belong to softhca. They do not count as writers. The number
// must never exceed the real one: raise it after such a thread was created, and lower it before one
// ends. So, outside of a SharingPause, these threads must not write application memory outside of
// an extent by plain stores, nor allocate or free heap memory. A forked child starts with none.
void set_own_threads(int threads) noexcept;

// While a SharingPause exists, no page is exchanged. Keep it short: it delays share() and release()
// in other threads. It does not nest, and must not be held across share(), release() or fork.
class SharingPause {
public:
    SharingPause() noexcept;
    ~SharingPause();
    SharingPause(const SharingPause&) = delete;
    SharingPause& operator=(const SharingPause&) = delete;
};

// For `softhca stat` and tests.
struct SharingCounters {
    std::uint64_t segments;      // runs of pages that are shared now
    std::uint64_t shared_bytes;  // bytes in them
    std::uint64_t idle_bytes;    // bytes in them that no registration uses
    std::uint64_t conversions;   // runs changed from private to shared since the start
    std::uint64_t restorations;  // runs changed from shared to private
    std::uint64_t left_private;  // ranges of which a part stayed private
    std::uint64_t stale;         // segments that the application unmapped or replaced
};
SharingCounters sharing_counters() noexcept;

}  // namespace softhca::device::memory
