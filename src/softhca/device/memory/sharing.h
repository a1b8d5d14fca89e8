// SPDX-License-Identifier: BSD-2-Clause
// Turns private pages of this process into shared ones (pages of the arena, mapped at the same
// address) while they are registered, so that peers reach them with plain loads and stores.
//
// What holds throughout
// - No store is lost: a page is only exchanged while nobody can write to it. That is so when the
//   process has no other thread, or when userfaultfd holds the writers back, system calls included.
//   Where neither is to be had the page stays private, and peers reach it by remote.h.
// - fork(2) keeps its meaning: the child has private copies of the values of the moment, and
// neither
//   side sees the other's later stores. See fork.h.
// - What the application does behind our back (munmap, mremap, MAP_FIXED inside libc) is found out
//   before an old segment is used again. What is not plain private memory is never touched.
//
// What does not
// - While pages are shared, madvise(MADV_DONTNEED) does not zero them, unless throw_away() is told.
// - Direct I/O (O_DIRECT) that is under way into the pages when their last registration goes, or,
//   before Linux 6.8, when the first comes, may end in the old pages. Longer pins (buffers
//   registered with io_uring) are seen.
#pragma once

#include <cstdint>

namespace softhca::device::memory {

// [address, +length) of the owner's address space is [offset, +length) of its arena. Page
// multiples.
struct Extent {
    std::uint64_t address;
    std::uint64_t length;
    std::uint64_t offset;
};

inline constexpr unsigned kMaxExtents = 6;

// The shared part of a registered range, ascending by address. Plain data, which may be kept where
// peers read (and damage) it: release() looks at nothing but the ticket.
struct Extents {
    std::uint32_t count;
    bool complete;          // every byte asked for is shared; else the rest is reached by remote.h
    std::uint64_t address;  // what was asked for
    std::uint64_t length;
    std::uint64_t ticket;  // names the registration in this process; 0: none
    Extent extent[kMaxExtents];
};

enum class Purpose {
    kQueue,  // pages that the driver owns whole: nobody writes them during the command, except
             // for doorbell records of other queues, which their own creation initialises again
    kApplication,  // payload: shared with SOFTHCA_MEMORY=auto only
    kBrief,        // payload that will not stay registered for long: left as it is
};

// Shares what can be shared of [address, +length), or counts one more user of what already is.
// 0, and *out says how much (it may be nothing); or errno and *out empty: EFAULT when a page of the
// range is not mapped or not accessible, EINVAL when it is empty or wraps, ENOMEM.
int share(std::uint64_t address, std::uint64_t length, Purpose purpose, Extents* out) noexcept;

// Undoes one share(). Pages that nobody uses any more become private memory with the same content;
// where writers cannot be held back they stay shared until the process has one thread again or the
// application unmaps them. The caller sees to it that no peer is still reading or writing through
// the extents.
void release(const Extents& extents) noexcept;

// The program throws the pages of [address, +length) away (madvise). Where they are shared it gets
// private pages of zeros instead, as from the kernel; registrations keep the old ones.
void throw_away(std::uint64_t address, std::uint64_t length) noexcept;

// Where fork does not copy (DeviceTrait::kNoCopyOnFork): the program wants its children to have
// [address, +length), or not (MADV_DONTFORK).
void keep_from_children(std::uint64_t address, std::uint64_t length, bool keep) noexcept;

// How many threads of this process are softhca's own; never more than there are: to be raised after
// such a thread has been created, and lowered before it ends. They do not count as writers. So,
// outside of a SharingPause, they must neither write memory of the application by plain stores that
// is not in an extent, nor allocate or free heap memory. A forked child starts with none.
void set_own_threads(int threads) noexcept;

// While one exists, no page is exchanged. Short sections only: it holds back share() and release()
// of other threads. Not to be nested, nor held across share(), release() or fork.
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
    std::uint64_t idle_bytes;    // of these, bytes that no registration uses
    std::uint64_t conversions;   // private to shared, since the start
    std::uint64_t restorations;  // shared to private
    std::uint64_t left_private;  // ranges of which some part stayed private
    std::uint64_t stale;         // segments that the application had unmapped or replaced
};
SharingCounters sharing_counters() noexcept;

}  // namespace softhca::device::memory
