// SPDX-License-Identifier: BSD-2-Clause
// The arenas of all processes, as this process sees them: its own, and those of peers, which are
// mapped at the first access. A mapping is valid for one generation of a slot. The mapping of a
// dead process is removed once no thread of this process can be using it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "softhca/base/assert.h"
#include "softhca/device/segment.h"

namespace softhca::device {
class Fabric;
}

namespace softhca::device::peers {

struct Mapping {
    std::atomic<std::byte*> base;           // written under the lock in peers.cc; any reader
    std::atomic<std::uint32_t> generation;  // the process's; written before base
    std::atomic<std::uint64_t> bytes;       // size of the arena; written before base
};
extern Mapping g_mappings[kMaxProcesses];

[[gnu::cold, gnu::noinline]] std::byte* map_slow(std::uint32_t slot) noexcept;

// Where the arena of that process is mapped in this one, or nullptr if it cannot be mapped because
// the process is gone. The caller is inside an epoch. The mapping belongs to the current generation
// of the slot.
inline std::byte* base(const Segment& segment, std::uint32_t slot) noexcept {
    if (slot >= kMaxProcesses) return nullptr;
    Mapping& mapping = g_mappings[slot];
    std::byte* at = mapping.base.load(std::memory_order_acquire);
    if (at && mapping.generation.load(std::memory_order_relaxed) ==
                  segment.processes[slot].generation.load(std::memory_order_relaxed))
        return at;
    return map_slow(slot);
}

// A pointer to [offset, +length) of that arena, or nullptr if the range is not shared or out of
// bounds. The size belongs to the base, because a mapping is replaced only while no thread of this
// process is inside an epoch.
inline std::byte* at(const Segment& segment, std::uint32_t slot, std::uint64_t offset,
                     std::uint64_t length) noexcept {
    std::byte* start = base(segment, slot);
    if (!start) [[unlikely]]
        return nullptr;
    const std::uint64_t bytes = g_mappings[slot].bytes.load(std::memory_order_relaxed);
    return offset < bytes && length <= bytes - offset ? start + offset : nullptr;
}

// Stores in *pid the pid by which the memory of the slot's process is copied, after checking that
// the process with that pid is the one that joined the fabric. Call it before each copy, and use no
// other pid: the one in the segment may change. Returns 0 or an errno:
// - ESRCH: the process is gone
// - EPERM: the system refuses copies, or the pid is that of another process, whose memory must not
//   be touched
// It makes system calls only once for each process.
[[gnu::cold, gnu::noinline]] int verify_slow(Fabric& fabric, std::uint32_t slot,
                                             std::uint32_t generation, pid_t* pid) noexcept;
// Pid << 32 | generation for which the slot's process has been verified, or 0.
extern std::atomic<std::uint64_t> g_verified[kMaxProcesses];
inline int verify(Fabric& fabric, const Segment& segment, std::uint32_t slot, pid_t* pid) noexcept {
    SOFTHCA_DEBUG_ASSERT(slot < kMaxProcesses);
    const Process& process = segment.processes[slot];
    const std::uint32_t generation = process.generation.load(std::memory_order_relaxed);
    *pid = process.pid;
    const std::uint64_t word = std::uint64_t{static_cast<std::uint32_t>(*pid)} << 32 | generation;
    if (*pid > 0 && g_verified[slot].load(std::memory_order_relaxed) == word) return 0;
    return verify_slow(fabric, slot, generation, pid);
}
// Writes the cookie by which other processes verify this one, before its slot becomes live.
void make_cookie(Process& self) noexcept;

// Removes the mappings of dead processes. The caller must be outside an epoch.
void collect() noexcept;
void forget_after_fork() noexcept;

}  // namespace softhca::device::peers
