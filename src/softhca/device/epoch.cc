// SPDX-License-Identifier: BSD-2-Clause
// Taking epoch records, and waiting for quiescence: see epoch.h.
#include "softhca/device/epoch.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <bitset>

#include "common/give_way.h"
#include "softhca/base/assert.h"
#include "softhca/device/fabric.h"

namespace softhca::device::epoch {

thread_local constinit EpochRecord* t_record_fast __attribute__((tls_model("initial-exec"))) =
    nullptr;

namespace {

constexpr std::uint64_t kPatienceNs = 2'000'000'000;
// The record of all threads that find no record of their own.
constexpr std::uint32_t kSharedRecord = kMaxThreads - 1;

SpinLock g_records_lock;
std::bitset<kMaxThreads> g_records;  // under g_records_lock
SpinLock g_shared_record_lock;       // held by the thread that is inside by kSharedRecord

struct ThreadRecord {
    EpochRecord* record = nullptr;
    std::uint32_t index = kNone;
    bool tried = false;
    ~ThreadRecord() {
        if (index == kNone) return;
        Guard<SpinLock> guard(g_records_lock);
        SOFTHCA_ASSERT(index < kSharedRecord && g_records.test(index));
        g_records.reset(index);
        record = nullptr;
        index = kNone;
        t_record_fast = nullptr;
    }
};
thread_local ThreadRecord t_record;

bool wait_out(Fabric& fabric, std::uint32_t slot) noexcept {
    SOFTHCA_ASSERT(slot < kMaxProcesses);
    Process& process = fabric.segment().processes[slot];
    const std::uint32_t generation = process.generation.load(std::memory_order_acquire);
    const std::uint32_t threads = process.threads_high.load(std::memory_order_acquire);
    for (std::uint32_t t = 0; t < threads && t < kMaxThreads; ++t) {
        const auto& value = process.epochs[t].value;
        const std::uint64_t seen = value.load(std::memory_order_seq_cst);
        if (!(seen & 1)) continue;
        const std::uint64_t start = now_ns();
        for (unsigned spin = 0; value.load(std::memory_order_acquire) == seen; ++spin) {
            if (spin < 200) {
                cpu_relax();
                continue;
            }
            if (spin < 400) {
                common::give_way();
                continue;
            }
            if (!fabric.alive(slot, generation)) break;
            if (now_ns() - start > kPatienceNs) return false;
            const timespec pause{0, 100'000};
            nanosleep(&pause, nullptr);
        }
    }
    return true;
}

}  // namespace

bool g_light = false;

void prepare(Segment& segment, bool first) noexcept {
#if defined(__SANITIZE_THREAD__)
    constexpr bool kPossible = false;  // ThreadSanitizer does not model membarrier(2)
#else
    constexpr bool kPossible = true;
#endif
    const bool registered =
        kPossible && syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
    if (first) segment.light_epochs = registered;
    g_light = segment.light_epochs && registered;
}

void heavy_barrier(Fabric& fabric) noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!fabric.segment().light_epochs) return;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0) return;
    // This process may not use membarrier(2), though the fabric's first process could (it may run
    // in another container). A store leaves the processor's buffer in less than a microsecond, so
    // 10 ms suffice.
    const timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
}

EpochRecord* acquire_record() noexcept {
    Fabric* fabric = Fabric::current();
    if (!fabric || t_record.tried) return nullptr;
    t_record.tried = true;
    SOFTHCA_ASSERT(t_record.index == kNone && !t_record_fast);
    Guard<SpinLock> guard(g_records_lock);
    SOFTHCA_ASSERT(!g_records.test(kSharedRecord));
    for (std::uint32_t i = 0; i < kSharedRecord; ++i) {
        if (g_records.test(i)) continue;
        g_records.set(i);
        auto& self = fabric->self();
        if (self.threads_high.load(std::memory_order_relaxed) <= i)
            self.threads_high.store(i + 1, std::memory_order_release);
        t_record.index = i;
        t_record.record = t_record_fast = &self.epochs[i];
        return t_record_fast;
    }
    return nullptr;
}

void Section::enter_without_record() noexcept {
    Fabric* fabric = Fabric::current();
    if (!fabric) return;
    g_shared_record_lock.lock();
    auto& self = fabric->self();
    if (self.threads_high.load(std::memory_order_relaxed) < kMaxThreads)
        self.threads_high.store(kMaxThreads, std::memory_order_release);
    self.epochs[kSharedRecord].value.fetch_add(1, std::memory_order_seq_cst);
}

void Section::leave_without_record() noexcept {
    Fabric* fabric = Fabric::current();
    if (!fabric) return;
    fabric->self().epochs[kSharedRecord].value.fetch_add(1, std::memory_order_release);
    g_shared_record_lock.unlock();
}

bool synchronize() noexcept {
#if SOFTHCA_DEBUG_ASSERTIONS
    SOFTHCA_DEBUG_ASSERT(t_sections == 0, "it would wait for its own thread");
#endif
    Fabric* fabric = Fabric::current();
    if (!fabric) return true;
    heavy_barrier(*fabric);
    bool quiet = true;
    const std::uint32_t high = fabric->segment().processes_high.load(std::memory_order_acquire);
    for (std::uint32_t slot = 0; slot < high && slot < kMaxProcesses; ++slot)
        if (fabric->segment().processes[slot].state.load(std::memory_order_acquire) == kLive)
            quiet = wait_out(*fabric, slot) && quiet;
    return quiet;
}

bool synchronize_own() noexcept {
#if SOFTHCA_DEBUG_ASSERTIONS
    SOFTHCA_DEBUG_ASSERT(t_sections == 0, "it would wait for its own thread");
#endif
    Fabric* fabric = Fabric::current();
    if (!fabric) return true;
    heavy_barrier(*fabric);
    return wait_out(*fabric, fabric->slot());
}

void forget_after_fork() noexcept {
    // The child has one thread and no slot. Its records will be those of a new process.
    g_records_lock.unlock();
    g_shared_record_lock.unlock();
    g_records.reset();
    t_record.record = nullptr;
    t_record.index = kNone;
    t_record.tried = false;
    t_record_fast = nullptr;
}

}  // namespace softhca::device::epoch
