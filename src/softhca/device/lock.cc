// SPDX-License-Identifier: BSD-2-Clause
// The slow paths of the locks: see lock.h.
#include "softhca/device/lock.h"

#include <time.h>

#include "common/give_way.h"
#include "softhca/base/assert.h"
#include "softhca/device/fabric.h"

namespace softhca::device {
namespace {

constexpr unsigned kSpins = 400;  // some microseconds, longer than any critical section
constexpr std::uint64_t kPatienceNs = 3'000'000'000;

}  // namespace
static_assert(kMaxProcesses == 1u << 10, "the word has ten bits for the slot");
static_assert(lock_word(kMaxProcesses - 1, ~0u) == 0 && lock_word(kMaxProcesses - 1, 0) != 0);

std::uint32_t g_lock_owner = 0xffffffffu;

void SpinLock::lock() noexcept {
    SOFTHCA_DEBUG_ASSERT(word_.load(std::memory_order_relaxed) <= 1);
    for (unsigned spin = 0; !try_lock(); ++spin) {
        if (spin % 128 == 127)
            common::give_way();
        else
            cpu_relax();
    }
}

// The word is (generation of the process << 10 | slot) + 1; kMaxProcesses is 2^10.
bool SharedLock::lock_slow(bool patient) noexcept {
    for (unsigned spin = 0; spin < kSpins; ++spin) {
        cpu_relax();
        if (try_lock()) return true;
    }
    Fabric* fabric = Fabric::current();
    if (!fabric) return false;
    const std::uint64_t start = now_ns();
    do {
        std::uint32_t owner = word_.load(std::memory_order_relaxed);
        if (owner == 0) {
            if (try_lock()) return true;
            continue;
        }
        const std::uint32_t slot = (owner - 1) % kMaxProcesses;
        const std::uint32_t generation = (owner - 1) / kMaxProcesses;
        const std::uint32_t now =
            fabric->segment().processes[slot].generation.load(std::memory_order_acquire);
        const bool same = (now & (0xffffffffu / kMaxProcesses)) == generation;
        if (!same || (owner != g_lock_owner && !fabric->alive(slot))) {
            // The owner died inside. The guarded data is consistent (see lock.h), so take the lock
            // over.
            if (word_.compare_exchange_strong(owner, g_lock_owner, std::memory_order_acquire))
                return true;
            continue;
        }
        if (!patient) return false;
        common::give_way();
        if (try_lock()) return true;
        const timespec pause{0, 20'000};
        nanosleep(&pause, nullptr);
    } while (now_ns() - start < kPatienceNs);
    return false;
}

}  // namespace softhca::device
