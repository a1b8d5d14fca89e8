// SPDX-License-Identifier: BSD-2-Clause
// Mappings of peers' arenas: see peers.h.
#include "softhca/device/peers.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "softhca/base/assert.h"
#include "softhca/base/log.h"
#include "softhca/device/epoch.h"
#include "softhca/device/fabric.h"
#include "softhca/device/memory/arena.h"
#include "softhca/device/memory/remote.h"
#include "softhca/device/memory/sharing.h"

namespace softhca::device::peers {

Mapping g_mappings[kMaxProcesses];

namespace {

SpinLock g_lock;  // guards g_retired, and writes to g_mappings
// Mappings that are not reachable any more, but that a thread may still use. The list is bounded
// and off the heap, because the progress thread, which must not use the heap, adds to it. When it
// is full, mappings are leaked.
std::byte* g_retired[kMaxProcesses];
std::uint32_t g_retired_count = 0;

void retire(std::byte* mapping) noexcept {
    SOFTHCA_ASSERT(mapping != nullptr && g_retired_count <= kMaxProcesses);
    if (g_retired_count < kMaxProcesses) g_retired[g_retired_count++] = mapping;
}

std::uint64_t g_cookie[2];

}  // namespace

std::atomic<std::uint64_t> g_verified[kMaxProcesses];

void make_cookie(Process& self) noexcept {
    if (::syscall(SYS_getrandom, g_cookie, sizeof g_cookie, 0) != sizeof g_cookie) {
        g_cookie[0] = now_ns();
        g_cookie[1] = static_cast<std::uint64_t>(self.pid);
    }
    self.cookie[0] = g_cookie[0];
    self.cookie[1] = g_cookie[1];
    self.cookie_address = reinterpret_cast<std::uintptr_t>(&g_cookie);
}

int verify_slow(Fabric& fabric, std::uint32_t slot, std::uint32_t generation, pid_t* pid) noexcept {
    const pid_t own = ::getpid();
    SOFTHCA_ASSERT(slot < kMaxProcesses);
    if (slot == fabric.slot()) {
        *pid = own;
        return 0;
    }
    const Process& process = fabric.segment().processes[slot];
    // Under another slot this process would pass: what it is asked for is in the segment.
    if (*pid <= 0 || *pid == own) return EPERM;
    std::uint64_t found[2] = {};
    const iovec here{found, sizeof found};
    const iovec there{reinterpret_cast<void*>(static_cast<std::uintptr_t>(process.cookie_address)),
                      sizeof found};
    const int error = memory::copy_from(*pid, &here, 1, &there, 1, sizeof found);
    if (error == EPERM) return EPERM;
    if (!error && found[0] == process.cookie[0] && found[1] == process.cookie[1]) {
        g_verified[slot].store(std::uint64_t{static_cast<std::uint32_t>(*pid)} << 32 | generation,
                               std::memory_order_relaxed);
        return 0;
    }
    if (error == ESRCH || !fabric.alive(slot) || memory::is_ending(*pid)) return ESRCH;
    LOG_ERROR(
        "process %d is not the process that joined the fabric under that number: nothing is copied "
        "from or to it. Are the processes of this fabric in different PID namespaces (containers)?",
        *pid);
    return EPERM;
}

namespace {

// The own arena stays where it is, whatever becomes of the slot's record: it is never retired.
std::byte* map_own(const Process& process) noexcept {
    Guard<SpinLock> guard(g_lock);
    Mapping& mapping = g_mappings[Fabric::current()->slot()];
    mapping.generation.store(process.generation.load(std::memory_order_acquire),
                             std::memory_order_relaxed);
    mapping.bytes.store(memory::arena_bytes(), std::memory_order_relaxed);
    mapping.base.store(memory::arena_base(), std::memory_order_release);
    return mapping.base.load(std::memory_order_relaxed);
}

}  // namespace

std::byte* map_slow(std::uint32_t slot) noexcept {
    SOFTHCA_ASSERT(slot < kMaxProcesses);
    Fabric* fabric = Fabric::current();
    if (!fabric) return nullptr;
    const Process& process = fabric->segment().processes[slot];
    if (slot == fabric->slot()) return map_own(process);
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
        memory::arena_map_peer(process.pid, process.arena_fd, process.arena_inode, &bytes);
    if (!fresh) {
        LOG_DEBUG("cannot map the memory of process %d", process.pid);
        return nullptr;
    }
    SOFTHCA_ASSERT(bytes > 0 && bytes <= memory::kArenaBytes);
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
    memory::SharingPause pause;  // munmap(2) bookkeeping uses the heap
    Guard<SpinLock> guard(g_lock);
    SOFTHCA_ASSERT(count <= g_retired_count);
    for (std::uint32_t i = 0; i < count; ++i)
        memory::arena_unmap_peer(g_retired[i]);
    g_retired_count -= count;  // other threads may have added more behind
    for (std::uint32_t i = 0; i < g_retired_count; ++i)
        g_retired[i] = g_retired[count + i];
}

void forget_after_fork() noexcept {
    g_lock.unlock();  // a thread that the child does not have may have held it
    for (Mapping& mapping : g_mappings)
        mapping.base.store(nullptr, std::memory_order_relaxed);
    g_retired_count = 0;
    for (auto& generation : g_verified)
        generation.store(0, std::memory_order_relaxed);
}

}  // namespace softhca::device::peers
