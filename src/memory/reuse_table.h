// SPDX-License-Identifier: BSD-2-Clause
// How often which buffers are used ("Exploiting application buffer reuse", sections 3.3 and 3.4).
// The paper hashes (address, length) into 2^20 chains; this is a table of sets of four, each one
// cache line, that is never larger than it is worth (the program reuse_lookup measures it beside
// both of the paper's). What a use costs is bounded: no list, no memory, no lock.
//
// Time goes by in epochs of some thousand uses. A count halves with each epoch in which its buffer
// was not used. A set is in the order of use, nearly: who was used longest ago makes room. Where
// sets overflow the table grows, but beyond a first size only while at least a fifth of its entries
// are of buffers in frequent use (the two conditions of section 3.4); and where hardly anything is
// found, and nothing frequent was used for an epoch either, it rests, so that programs that never
// use a buffer twice pay next to nothing.
//
// One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle::memory {

class ReuseTable {
public:
    static constexpr std::size_t kWays = 4, kFewest = 1 << 10, kFreely = 1 << 13, kMost = 1 << 16;
    static constexpr std::uint32_t kMostUses = 0xffff;

    struct Entry {
        std::uint64_t key = 0;    // 0: none
        std::uint32_t stamp = 0;  // epoch of the last use << 16 | uses
        // The caller's; not 0: this buffer is in frequent use, and its entry stays.
        std::uint32_t value = 0;
        std::uint32_t uses() const noexcept { return stamp & kMostUses; }
        void forget() noexcept { stamp &= ~kMostUses, value = 0; }
    };

    // Of programs that count what it does.
    struct State {
        std::size_t entries = 0, used = 0, frequent = 0;
        std::uint64_t uses = 0, misses = 0, overflows = 0, rests = 0;
        std::uint32_t epoch = 0;
        // Of those used: so many buffers have been 2^(i-1) to 2^i - 1 times; lately, at least.
        std::array<std::uint64_t, 17> by_uses{};
    };

    ReuseTable();
    ReuseTable(const ReuseTable&) = delete;
    ReuseTable& operator=(const ReuseTable&) = delete;

    // One more use of these bytes; its entry, valid until the next call, or nullptr: the table
    // rests, or has no room. Buffers of equal key (length and address differ by a multiple) share
    // an entry: whoever keeps something for one looks at what it is.
    [[gnu::always_inline]] Entry* use(const void* address, std::size_t bytes) noexcept {
        if (--until_epoch_ == 0) [[unlikely]]
            end_epoch();
        if (resting_) [[unlikely]]
            return nullptr;
        const std::uint64_t key = key_of(address, bytes);
        Set& set = sets_[key * kSpread >> shift_];
        return set[0].key == key ? &used(set[0]) : find(set, key);
    }

    // It is as new the next time.
    void forget(const void* address, std::size_t bytes) noexcept;

    // Of the last use. Changes by one.
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
    // Of this epoch. Not side by side, where the compiler counts both by one vector, in more
    // instructions.
    std::uint32_t misses_ = 0;
    bool frequent_used_ = false;
    std::uint32_t overflows_ = 0;
    bool resting_ = false;
    std::uint32_t rest_ = 0;  // epochs that are left of it
    State past_;              // sums
};

}  // namespace heddle::memory
