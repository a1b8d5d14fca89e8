// SPDX-License-Identifier: BSD-2-Clause
#include "memory/reuse_table.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace heddle::memory {
namespace {

// Epochs of rest; in the next it looks again.
constexpr std::uint32_t kRest = 15, kFirstRests = 3;
constexpr std::uint16_t kMostUnused = 16;  // epochs: of its uses none count any more

}  // namespace

ReuseTable::ReuseTable()
    : sets_(kFewest / kWays),
      shift_(64 - static_cast<unsigned>(std::countr_zero(sets_.size()))),
      until_epoch_(uses_of_epoch()) {}

std::uint32_t ReuseTable::aged(std::uint32_t stamp) const noexcept {
    const auto unused = static_cast<std::uint16_t>(epoch() - (stamp >> 16) - 1);
    return now_ | (stamp & kMostUses) >> std::min(unused, kMostUnused);
}

// Not the first of its set. Who is found comes one place nearer, a new one comes first, and the
// last goes.
[[gnu::noinline]] ReuseTable::Entry* ReuseTable::find(Set& set, std::uint64_t key) noexcept {
    for (std::size_t i = 1; i < kWays; ++i)
        if (set[i].key == key) {
            std::swap(set[i], set[i - 1]);
            return &used(set[i - 1]);
        }
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
    if (resting_) {
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

// Twice as many; where a buffer belongs changes by one bit.
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
            *std::find_if(set.begin(), set.end(), [](const Entry& e) { return e.key == 0; }) =
                entry;
        }
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
