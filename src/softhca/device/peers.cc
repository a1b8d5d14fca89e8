// SPDX-License-Identifier: BSD-2-Clause
// Mappings of peers' arenas: see peers.h.
#include "softhca/device/peers.h"

#include "softhca/base/log.h"
#include "softhca/device/epoch.h"
#include "softhca/device/fabric.h"
#include "softhca/device/memory/arena.h"
#include "softhca/device/memory/sharing.h"

namespace softhca::device::peers {

Mapping g_mappings[kMaxProcesses];

namespace {

SpinLock g_lock;  // g_mappings (writers), g_retired
// Mappings that are not reachable any more but perhaps still in use. Bounded, without a heap: the
// progress thread, which must not use one, comes here too. When it is full, mappings are leaked.
std::byte* g_retired[kMaxProcesses];
std::uint32_t g_retired_count = 0;

void retire(std::byte* mapping) noexcept {
    if (g_retired_count < kMaxProcesses) g_retired[g_retired_count++] = mapping;
}

}  // namespace

std::byte* map_slow(std::uint32_t slot) noexcept {
    Fabric* fabric = Fabric::current();
    if (!fabric) return nullptr;
    const Process& process = fabric->segment().processes[slot];
    Guard<SpinLock> guard(g_lock);
    Mapping& mapping = g_mappings[slot];
    const std::uint32_t generation = process.generation.load(std::memory_order_acquire);
    std::byte* old = mapping.base.load(std::memory_order_relaxed);
    if (old && mapping.generation.load(std::memory_order_relaxed) == generation) return old;
    if (old) {
        mapping.base.store(nullptr, std::memory_order_release);
        retire(old);
    }
    if (process.state.load(std::memory_order_acquire) != kLive) return nullptr;
    std::uint64_t bytes = memory::arena_bytes();
    std::byte* fresh =
        slot == fabric->slot()
            ? memory::arena_base()
            : memory::arena_map_peer(process.pid, process.arena_fd, process.arena_inode, &bytes);
    if (!fresh) {
        LOG_DEBUG("cannot map the memory of process %d", process.pid);
        return nullptr;
    }
    mapping.generation.store(generation, std::memory_order_relaxed);
    mapping.bytes.store(bytes, std::memory_order_relaxed);
    mapping.base.store(fresh, std::memory_order_release);
    return fresh;
}

void collect() noexcept {
    Fabric* fabric = Fabric::current();
    if (!fabric) return;
    std::uint32_t count;
    {
        Guard<SpinLock> guard(g_lock);
        const std::uint32_t high = fabric->segment().processes_high.load(std::memory_order_acquire);
        for (std::uint32_t slot = 0; slot < high && slot < kMaxProcesses; ++slot) {
            Mapping& mapping = g_mappings[slot];
            std::byte* old = mapping.base.load(std::memory_order_relaxed);
            const Process& process = fabric->segment().processes[slot];
            if (!old || slot == fabric->slot()) continue;
            if (process.state.load(std::memory_order_acquire) == kLive &&
                process.generation.load() == mapping.generation.load())
                continue;
            mapping.base.store(nullptr, std::memory_order_release);
            retire(old);
        }
        count = g_retired_count;
    }
    if (!count || !epoch::synchronize_own()) return;
    memory::SharingPause pause;  // unmapping keeps books on the heap
    Guard<SpinLock> guard(g_lock);
    for (std::uint32_t i = 0; i < count; ++i)
        memory::arena_unmap_peer(g_retired[i]);
    g_retired_count -= count;  // others may have been added behind
    for (std::uint32_t i = 0; i < g_retired_count; ++i)
        g_retired[i] = g_retired[count + i];
}

void forget_after_fork() noexcept {
    g_lock.unlock();  // a thread that is not in the child may have held it
    for (Mapping& mapping : g_mappings)
        mapping.base.store(nullptr, std::memory_order_relaxed);
    g_retired_count = 0;
}

}  // namespace softhca::device::peers
