// SPDX-License-Identifier: BSD-2-Clause
// Which buffers are registered for being used again: see reuse_policy.h.
#include "protocol/core/reuse_policy.h"

#include <utility>

#include "heddle/detail/assert.h"

namespace heddle::protocol {

ReusePolicy::ReusePolicy(const Options& options, memory::RegistrationCache& cache,
                         std::vector<Reuse*>& tables, Costs costs)
    : options_(options), tables_(tables), costs_(std::move(costs)) {
    from_.fill(~std::size_t{0});
    if (options_.mr_cache_bytes == 0 || options_.reuse.after == 0) return;
    from_.fill(Reuse::kLeastBytes);
    const std::uint32_t fewest = options_.reuse.after.value_or(ReuseCosts::kFewestUses);
    sent_from_.emplace(cache, 0, fewest);
    read_into_.emplace(cache, IBV_ACCESS_LOCAL_WRITE, fewest);
    tables_.insert(tables_.end(), {&*sent_from_, &*read_into_});
}

ReusePolicy::~ReusePolicy() {
    [[maybe_unused]] const std::size_t gone = std::erase_if(tables_, [this](const Reuse* reuse) {
        return (sent_from_ && reuse == &*sent_from_) || (read_into_ && reuse == &*read_into_);
    });
    HEDDLE_DEBUG_ASSERT(gone == (sent_from_ ? 2U : 0U), "the owner of the tables did not know one");
}

std::uint32_t ReusePolicy::uses_for(std::size_t bytes, ReuseCosts::Way way) noexcept {
    if (options_.reuse.after) return *options_.reuse.after;
    std::uint32_t& enough = enough_uses_[way][ReuseCosts::index_of(bytes)];
    if (enough == 0) {
        const ReuseCosts& costs = costs_();
        from_[way] = costs.smallest(way);
        sent_from_->set_fewest(costs.fewest_uses(options_.reuse.speculation));
        read_into_->set_fewest(costs.fewest_uses(options_.reuse.speculation));
        enough = costs.uses_for(bytes, way, options_.reuse.speculation);
    }
    return enough;
}

ReuseCounts ReusePolicy::counts() const noexcept {
    ReuseCounts counts;
    if (sent_from_) counts += sent_from_->counts();
    if (read_into_) counts += read_into_->counts();
    return counts;
}

}  // namespace heddle::protocol
