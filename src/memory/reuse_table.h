// SPDX-License-Identifier: BSD-2-Clause
// Counts how often each buffer is used ("Exploiting application buffer reuse", sections 3.3 and
// 3.4). The paper hashes (address, length) into 2^20 chains. This is a table of sets of four
// entries, each set one cache line, that grows only while growing pays (the program reuse_lookup
// measures it beside both of the paper's). The cost of a use is bounded: it follows no list,
// allocates nothing and takes no lock.
//
// Time goes by in epochs of some thousand uses. A count halves with each epoch in which its buffer
// was not used. A set is nearly in the order of use, and its last entry makes room for a new one.
// If sets overflow, the table grows. Beyond a first size it grows only while at least a fifth of
// its entries are of buffers in frequent use (the two conditions of section 3.4). If hardly
// anything is found, and nothing frequent was used for an epoch either, the table rests, so that
// programs that never use a buffer twice pay next to nothing.
//
// One thread uses a table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "heddle/detail/assert.h"

namespace heddle::memory {

class ReuseTable {
public:
    static constexpr std::size_t kWays = 4, kFewest = 1 << 10, kFreely = 1 << 13, kMost = 1 << 16;
    static constexpr std::uint32_t kMostUses = 0xffff;

    struct Entry {
        std::uint64_t key = 0;    // 0: none
        std::uint32_t stamp = 0;  // epoch of the last use << 16 | uses
        // Belongs to the caller. Not 0: this buffer is in frequent use, and its entry stays.
        std::uint32_t value = 0;
        std::uint32_t uses() const noexcept { return stamp & kMostUses; }
        void forget() noexcept { stamp &= ~kMostUses, value = 0; }
    };

    // What the table holds and has done, for statistics and tests.
    struct State {
        std::size_t entries = 0, used = 0, frequent = 0;
        std::uint64_t uses = 0, misses = 0, overflows = 0, rests = 0;
        std::uint32_t epoch = 0;
        // by_uses[i] of the used entries have lately counted 2^(i-1) to 2^i - 1 uses.
        std::array<std::uint64_t, 17> by_uses{};
    };

    ReuseTable();
    ReuseTable(const ReuseTable&) = delete;
    ReuseTable& operator=(const ReuseTable&) = delete;

    // Counts one more use of these bytes. Returns its entry, valid until the next call, or nullptr:
    // the table rests, or has no room. Buffers of equal key (length and address differ by a
    // multiple) share an entry, so a caller that keeps something for a buffer checks that it is
    // that buffer's.
    [[gnu::always_inline]] Entry* use(const void* address, std::size_t bytes) noexcept {
        if (--until_epoch_ == 0) [[unlikely]]
            end_epoch();
        if (resting_) [[unlikely]]
            return nullptr;
        const std::uint64_t key = key_of(address, bytes);
        HEDDLE_DEBUG_ASSERT(key * kSpread >> shift_ < sets_.size(),
                            "the hash has the table's bits");
        Set& set = sets_[key * kSpread >> shift_];
        return set[0].key == key ? &used(set[0]) : find(set, key);
    }

    // The next use of these bytes counts as the first.
    void forget(const void* address, std::size_t bytes) noexcept;

    // The epoch of the last use. Grows by one at a time.
    std::uint32_t epoch() const noexcept { return now_ >> 16; }
    State state() const noexcept;

private:
    struct alignas(64) Set : std::array<Entry, kWays> {};
    static_assert(sizeof(Set) == 64);
    static constexpr std::uint64_t kSpread = 0x9e37'79b9'7f4a'7c15ull;
    static std::uint64_t key_of(const void* address, std::size_t bytes) noexcept {
        return reinterpret_cast<std::uintptr_t>(address) ^ static_cast<std::uint64_t>(bytes) << 48;
    }

    Entry& used(Entry& entry) noexcept {
        std::uint32_t stamp = entry.stamp;
        if ((stamp ^ now_) > kMostUses) [[unlikely]]
            stamp = aged(stamp);
        if ((stamp & kMostUses) != kMostUses) ++stamp;
        entry.stamp = stamp;
        if (entry.value != 0) [[unlikely]]
            frequent_used_ = true;
        return entry;
    }
    std::uint32_t uses_of_epoch() const noexcept {
        return static_cast<std::uint32_t>(4 * kWays * sets_.size());
    }
    std::uint32_t aged(std::uint32_t stamp) const noexcept;
    Entry* find(Set& set, std::uint64_t key) noexcept;
    void end_epoch() noexcept;
    void grow() noexcept;

    std::vector<Set> sets_;  // a power of two of them
    unsigned shift_ = 0;     // of a hash, to an index of these
    std::uint32_t until_epoch_ = 0;
    std::uint32_t now_ = 0;  // the epoch, as stamps have it
    // Counts of this epoch. They are not side by side, because the compiler would then count both
    // by one vector, in more instructions.
    std::uint32_t misses_ = 0;
    bool frequent_used_ = false;
    std::uint32_t overflows_ = 0;
    bool resting_ = false;
    std::uint32_t rest_ = 0;  // epochs of rest that are left
    State past_;              // sums
};

}  // namespace heddle::memory
