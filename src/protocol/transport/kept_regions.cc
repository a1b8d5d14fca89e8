// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/transport/kept_regions.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace heddle::protocol {

void KeptRegions::take_out(List::iterator which, List& ended) noexcept {
    bytes_ -= which->key.bytes;
    ended.splice(ended.end(), kept_, which);
}

// Those whose memory is not what it was.
void KeptRegions::take_gone(List& ended) noexcept {
    for (auto at = kept_.begin(); at != kept_.end();)
        if (const auto each = at++; each->witness->gone()) take_out(each, ended);
}

KeptRegions::Held KeptRegions::take(const Key& key) {
    if (most_bytes_ == 0 || key.bytes > most_bytes_) return {};
    List ended;
    Held taken;
    bool is_again = false;
    {
        const std::lock_guard guard(mutex_);
        is_again = seen_.seen_before(key.address ^ (std::uint64_t{key.bytes} << 24) ^
                                     static_cast<std::uint64_t>(key.access) << 57);
        // In this order: all that had gone before the program called us has been marked.
        const bool is_settled = kept_.empty() || cache_.monitor().settled();
        take_gone(ended);
        const auto found = std::find_if(kept_.begin(), kept_.end(),
                                        [&](const Kept& each) { return each.key == key; });
        if (found != kept_.end()) {
            take_out(found, ended);
            if (is_settled) taken = std::move(static_cast<Held&>(*found));
        }
    }
    ended.clear();
    if (taken.region == nullptr && is_again)
        taken.witness = {cache_.hold(reinterpret_cast<const void*>(key.address), key.bytes, 0),
                         {&cache_}};
    return taken;
}

void KeptRegions::give(const Key& key, Held held) {
    if (held.witness == nullptr) return;
    List ended;
    ended.push_back({std::move(held), key});
    const std::lock_guard guard(mutex_);
    if (ended.front().witness->gone()) return;  // take() asks whether more has gone
    take_gone(ended);
    kept_.splice(kept_.begin(), ended, ended.begin());
    bytes_ += key.bytes;
    while (kept_.size() > kMost || bytes_ > most_bytes_)
        take_out(std::prev(kept_.end()), ended);
}

void KeptRegions::end_all() noexcept {
    List ended;
    const std::lock_guard guard(mutex_);
    ended.swap(kept_);
    bytes_ = 0;
}

}  // namespace heddle::protocol
