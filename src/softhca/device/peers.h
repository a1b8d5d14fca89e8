// SPDX-License-Identifier: BSD-2-Clause
// The arenas of all processes as this one sees them: its own, and those of peers, mapped at first
// need. A mapping is good for one generation of a slot; that of a process that is gone is removed
// when no thread of ours can be using it.
#pragma once

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

// Is the process that has the number of the slot's process that process? To be asked before its
// memory is copied by its number. 0, or an errno: ESRCH (it is gone), EPERM (the system refuses
// copies, or it is another process: then nothing of it may be touched). A system call for each
// process, once.
[[gnu::cold, gnu::noinline]] int verify_slow(Fabric& fabric, std::uint32_t slot) noexcept;
extern std::atomic<std::uint32_t> g_verified[kMaxProcesses];  // generation, or 0
inline int verify(Fabric& fabric, const Segment& segment, std::uint32_t slot) noexcept {
    const std::uint32_t generation =
        segment.processes[slot].generation.load(std::memory_order_relaxed);
    if (g_verified[slot].load(std::memory_order_relaxed) == generation) return 0;
    return verify_slow(fabric, slot);
}
// What the others verify this process by; written before its slot is live.
void make_cookie(Process& self) noexcept;

// Removes the mappings of processes that are gone. Not to be called inside an epoch.
void collect() noexcept;
void forget_after_fork() noexcept;

}  // namespace softhca::device::peers
