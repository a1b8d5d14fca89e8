// SPDX-License-Identifier: BSD-2-Clause
// Small numbers for addresses, in the order of their first use.
#pragma once

#include <bit>
#include <cstdint>

#include "softhca/device/lock.h"

namespace softhca::record {

// Numbers the first kMost keys from 0 on. All further keys share the number kMost. Thread-safe.
template <std::uint32_t kMost>
class Numbering {
    static_assert(std::has_single_bit(kMost));

public:
    std::uint32_t of(std::uint64_t key) noexcept {
        device::Guard<device::SpinLock> guard(lock_);
        std::uint32_t at = static_cast<std::uint32_t>(key * 0x9e37'79b9'7f4a'7c15ULL >> 32);
        for (;; ++at) {
            Slot& slot = slots_[at % kSlots];
            if (slot.number_plus_one != 0 && slot.key == key) return slot.number_plus_one - 1;
            if (slot.number_plus_one != 0) continue;
            if (count_ == kMost) return kMost;
            slot = {key, ++count_};
            return count_ - 1;
        }
    }
    // In a forked child, where another thread of the parent may have held the lock.
    void forget_after_fork() noexcept {
        lock_.unlock();
        for (Slot& slot : slots_)
            if (slot.number_plus_one != 0) slot = {};
        count_ = 0;
    }

private:
    static constexpr std::uint32_t kSlots = 2 * kMost;  // half of them stay free: a search ends
    struct Slot {
        std::uint64_t key = 0;
        std::uint32_t number_plus_one = 0;
    };
    device::SpinLock lock_;
    std::uint32_t count_ = 0;
    Slot slots_[kSlots];
};

}  // namespace softhca::record
