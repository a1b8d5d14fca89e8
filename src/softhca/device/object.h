// SPDX-License-Identifier: BSD-2-Clause
// The head of every object in the fabric's segment (segment.h), and how an object comes and goes.
//
// ObjectHead.state goes free -> reserved -> live -> dying -> free. A release store makes it live
// when the rest of the object is complete. The owner, or the process that reclaims the owner,
// makes it dying. It becomes free only after epoch::synchronize(). So a thread that looks an
// object up inside an epoch may use it until the epoch's end.
#pragma once

#include <atomic>
#include <cstdint>

namespace softhca::device {

enum ObjectState : std::uint32_t { kFree = 0, kReserved = 1, kLive = 2, kDying = 3 };

struct ObjectHead {
    std::atomic<std::uint32_t> state;
    // Grows with each reuse of the slot, under the table's lock. A memory region's generation also
    // grows with each rereg.
    std::uint32_t generation;
    // The owner's slot. Written under the table's lock, and when a shared object loses its owner.
    // It is valid only for a reader that has loaded a state other than free before.
    std::atomic<std::uint32_t> process;
    std::uint32_t context;  // index of the owner's context, or kNone
    bool live() const noexcept { return state.load(std::memory_order_acquire) == kLive; }
    bool dying() const noexcept { return state.load(std::memory_order_acquire) == kDying; }
    std::uint32_t owner() const noexcept { return process.load(std::memory_order_relaxed); }
    void set_owner(std::uint32_t slot) noexcept { process.store(slot, std::memory_order_relaxed); }
};

}  // namespace softhca::device
