// SPDX-License-Identifier: BSD-2-Clause
// The arenas of all processes as this one sees them: its own, and those of peers, mapped at first
// need. A mapping is good for one generation of a slot; that of a process that is gone is removed
// when no thread of ours can be using it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "softhca/device/segment.h"

namespace softhca::device {
class Fabric;
}

namespace softhca::device::peers {

struct Mapping {
    std::atomic<std::byte*> base;           // under the mutex in peers.cc; read by anyone
    std::atomic<std::uint32_t> generation;  // of the process; written before base
    std::atomic<std::uint64_t> bytes;       // of the arena; written before base
};
extern Mapping g_mappings[kMaxProcesses];

[[gnu::cold, gnu::noinline]] std::byte* map_slow(std::uint32_t slot) noexcept;

// Where the arena of that process is mapped here, or nullptr when it cannot be (the process is
// gone). The caller is inside an epoch. The generation is that of the slot's process now.
inline std::byte* base(const Segment& segment, std::uint32_t slot) noexcept {
    if (slot >= kMaxProcesses) return nullptr;
    Mapping& mapping = g_mappings[slot];
    std::byte* at = mapping.base.load(std::memory_order_acquire);
    if (at && mapping.generation.load(std::memory_order_relaxed) ==
                  segment.processes[slot].generation.load(std::memory_order_relaxed))
        return at;
    return map_slow(slot);
}

// A pointer to [offset, +length) of that arena; nullptr when it is not shared or out of range. The
// size belongs to the base: a mapping is replaced only when nobody of ours is inside an epoch.
inline std::byte* at(const Segment& segment, std::uint32_t slot, std::uint64_t offset,
                     std::uint64_t length) noexcept {
    std::byte* start = base(segment, slot);
    if (!start) [[unlikely]]
        return nullptr;
    const std::uint64_t bytes = g_mappings[slot].bytes.load(std::memory_order_relaxed);
    return offset < bytes && length <= bytes - offset ? start + offset : nullptr;
}

// The number by which the memory of the slot's process is copied, after it was made sure that the
// process of that number is the one that joined the fabric. To be asked before each copy, and no
// other number used: the one in the segment may change. 0, or an errno: ESRCH (it is gone), EPERM
// (the system refuses copies, or it is another process: then nothing of it may be touched). A
// system call for each process, once.
[[gnu::cold, gnu::noinline]] int verify_slow(Fabric& fabric, std::uint32_t slot,
                                             std::uint32_t generation, pid_t* pid) noexcept;
// Number << 32 | generation of the slot's process; 0: not yet.
extern std::atomic<std::uint64_t> g_verified[kMaxProcesses];
inline int verify(Fabric& fabric, const Segment& segment, std::uint32_t slot, pid_t* pid) noexcept {
    const Process& process = segment.processes[slot];
    const std::uint32_t generation = process.generation.load(std::memory_order_relaxed);
    *pid = process.pid;
    const std::uint64_t word = std::uint64_t{static_cast<std::uint32_t>(*pid)} << 32 | generation;
    if (*pid > 0 && g_verified[slot].load(std::memory_order_relaxed) == word) return 0;
    return verify_slow(fabric, slot, generation, pid);
}
// What the others verify this process by; written before its slot is live.
void make_cookie(Process& self) noexcept;

// Removes the mappings of processes that are gone. Not to be called inside an epoch.
void collect() noexcept;
void forget_after_fork() noexcept;

}  // namespace softhca::device::peers
