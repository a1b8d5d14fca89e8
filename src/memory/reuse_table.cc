// SPDX-License-Identifier: BSD-2-Clause
#include "memory/reuse_table.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace heddle::memory {
namespace {

// Epochs of rest, after which the table counts again for one.
constexpr std::uint32_t kRest = 15, kFirstRests = 3;
constexpr std::uint16_t kMostUnused = 16;  // epochs without a use after which a count is 0

}  // namespace

ReuseTable::ReuseTable()
    : sets_(kFewest / kWays),
      shift_(64 - static_cast<unsigned>(std::countr_zero(sets_.size()))),
      until_epoch_(uses_of_epoch()) {}

std::uint32_t ReuseTable::aged(std::uint32_t stamp) const noexcept {
    const auto unused = static_cast<std::uint16_t>(epoch() - (stamp >> 16) - 1);
    return now_ | (stamp & kMostUses) >> std::min(unused, kMostUnused);
}

// The key is not that of the first entry. An entry that is found moves one place towards the front.
// A new one comes first, and the last makes room.
[[gnu::noinline]] ReuseTable::Entry* ReuseTable::find(Set& set, std::uint64_t key) noexcept {
    for (std::size_t i = 1; i < kWays; ++i)
        if (set[i].key == key) {
            std::swap(set[i], set[i - 1]);
            return &used(set[i - 1]);
        }
    HEDDLE_DEBUG_ASSERT(set[0].key != key, "the caller has looked at the first entry");
    ++misses_;
    overflows_ += set[kWays - 1].key != 0;
    if (set[kWays - 1].value != 0) return nullptr;
    for (std::size_t i = kWays - 1; i != 0; --i)
        set[i] = set[i - 1];
    set[0] = {key, now_ | 1, 0};
    return &set[0];
}

[[gnu::noinline, gnu::cold]] void ReuseTable::end_epoch() noexcept {
    const std::uint32_t uses = until_epoch_ = uses_of_epoch();
    past_.uses += uses;
    past_.misses += misses_;
    past_.overflows += overflows_;
    now_ += kMostUses + 1;
    HEDDLE_ASSERT(misses_ <= uses && overflows_ <= misses_,
                  "a use misses at most once, and overflows only when it misses");
    if (resting_) {
        HEDDLE_ASSERT(rest_ != 0, "a table that rests has epochs of rest left");
        ++past_.rests;
        resting_ = --rest_ != 0;
    } else if (overflows_ > uses / 4) {
        const State now = state();
        const bool worth = now.frequent * 5 >= now.entries;
        if (!frequent_used_ && !worth && uses - misses_ < uses / 16) {
            // Perhaps what is used again comes too late: a larger table looks, the next time.
            resting_ = true;
            rest_ = now.entries < kFreely ? kFirstRests : kRest;
        }
        if (now.entries < kFreely || (worth && now.entries < kMost)) grow();
    }
    misses_ = overflows_ = 0;
    frequent_used_ = false;
}

// Twice as many sets. The index of a buffer's set gets one more bit.
void ReuseTable::grow() noexcept {
    std::vector<Set> larger;
    try {
        larger.resize(2 * sets_.size());
    } catch (const std::bad_alloc&) {
        return;
    }
    --shift_;
    for (const Set& old : sets_)
        for (const Entry& entry : old) {
            if (entry.key == 0) continue;
            Set& set = larger[entry.key * kSpread >> shift_];
            const auto free =
                std::find_if(set.begin(), set.end(), [](const Entry& e) { return e.key == 0; });
            HEDDLE_ASSERT(free != set.end(), "a new set has entries of one old set only");
            *free = entry;
        }
    HEDDLE_ASSERT(larger.size() == std::size_t{1} << (64 - shift_),
                  "the hash has the table's bits");
    sets_ = std::move(larger);
    until_epoch_ = uses_of_epoch();
}

void ReuseTable::forget(const void* address, std::size_t bytes) noexcept {
    const std::uint64_t key = key_of(address, bytes);
    for (Entry& entry : sets_[key * kSpread >> shift_])
        if (entry.key == key) entry.forget();
}

ReuseTable::State ReuseTable::state() const noexcept {
    State now = past_;
    now.entries = sets_.size() * kWays;
    now.epoch = epoch();
    now.uses += uses_of_epoch() - until_epoch_;
    now.misses += misses_;
    now.overflows += overflows_;
    for (const Set& set : sets_)
        for (const Entry& entry : set) {
            now.used += entry.key != 0;
            now.frequent += entry.value != 0;
            if (entry.key != 0)
                ++now.by_uses[static_cast<std::size_t>(std::bit_width(entry.uses()))];
        }
    return now;
}

}  // namespace heddle::memory
