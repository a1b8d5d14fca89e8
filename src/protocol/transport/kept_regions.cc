// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/transport/kept_regions.h"

#include <algorithm>
#include <utility>

#include "heddle/detail/assert.h"

namespace heddle::protocol {

// Remembers a few hundred. If another overwrites the mark of one, it is new the next time.
bool KeptRegions::seen_before(const Key& key) noexcept {
    std::uint64_t mark = (key.address ^ (std::uint64_t{key.bytes} << 24) ^
                          static_cast<std::uint64_t>(key.access) << 57) *
                         0x9e37'79b9'7f4a'7c15ull;
    mark ^= mark >> 31;
    std::uint64_t& place = seen_[mark % kRemembered];
    return std::exchange(place, mark) == mark;
}

void KeptRegions::take_out(List::iterator which, List& ended) noexcept {
    bytes_ -= which->key.bytes;
    ended.splice(ended.end(), kept_, which);
}

// Those whose memory is not what it was.
void KeptRegions::take_gone(List& ended) noexcept {
    for (auto at = kept_.begin(); at != kept_.end();)
        if (const auto each = at++; each->witness->gone()) take_out(each, ended);
}

void KeptRegions::end(List& ended) noexcept {
    for (Kept& each : ended)
        if (each.witness != nullptr) cache_.release(each.witness);
    ended.clear();
}

KeptRegions::Held KeptRegions::take(const Key& key) {
    if (most_bytes_ == 0 || key.bytes > most_bytes_) return {};
    List ended;
    Held taken;
    bool is_again = false;
    {
        const std::lock_guard guard(mutex_);
        is_again = seen_before(key);
        // In this order: all that had gone before the program called us has been marked.
        const bool is_settled = kept_.empty() || cache_.monitor().settled();
        take_gone(ended);
        const auto found = std::find_if(kept_.begin(), kept_.end(),
                                        [&](const Kept& each) { return each.key == key; });
        if (found != kept_.end()) {
            if (is_settled)
                taken = {std::move(found->region), std::exchange(found->witness, nullptr)};
            take_out(found, ended);
        }
    }
    end(ended);
    if (taken.region == nullptr && is_again)
        taken.witness = cache_.hold(reinterpret_cast<const void*>(key.address), key.bytes, 0);
    return taken;
}

bool KeptRegions::give(const Key& key, Held held) noexcept {
    if (held.witness == nullptr) return false;
    List ended;
    ended.emplace_back(Kept{std::move(held), key});
    bool is_kept = false;
    {
        const std::lock_guard guard(mutex_);
        if (ended.front().region != nullptr && cache_.monitor().settled() &&
            !ended.front().witness->gone()) {
            take_gone(ended);
            kept_.splice(kept_.begin(), ended, ended.begin());
            bytes_ += key.bytes;
            is_kept = true;
            while (kept_.size() > kMost || bytes_ > most_bytes_)
                take_out(std::prev(kept_.end()), ended);
        }
    }
    end(ended);
    return is_kept;
}

std::size_t KeptRegions::end_all() noexcept {
    List ended;
    {
        const std::lock_guard guard(mutex_);
        ended.swap(kept_);
        bytes_ = 0;
    }
    const std::size_t count = ended.size();
    end(ended);
    return count;
}

}  // namespace heddle::protocol
