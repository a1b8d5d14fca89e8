// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/reuse/reuse_rounds.h"

#include <algorithm>

#include "heddle/detail/assert.h"

namespace heddle::protocol {

ReuseRounds ReuseRounds::measure(ibv_context* context, ibv_pd* pd, std::size_t largest,
                                 std::size_t count) {
    HEDDLE_ASSERT(count != 0, "medians are of some rounds");
    ReuseRounds all;
    for (std::size_t i = 0; i < count; ++i)
        all.rounds.push_back(ReuseCosts::measure(context, pd, largest));
    return all;
}

ReuseCosts ReuseRounds::median() const {
    HEDDLE_ASSERT(!rounds.empty(), "medians are of some rounds");
    ReuseCosts all;
    for (std::size_t i = 0; i < ReuseCosts::kSizes; ++i) {
        const auto of_rounds = [&](auto&& field) {
            std::vector<double> values;
            for (const ReuseCosts& each : rounds) {
                ReuseCosts::Cost cost = each.costs[i];
                values.push_back(field(cost));
            }
            const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
            std::nth_element(values.begin(), middle, values.end());
            field(all.costs[i]) = *middle;
        };
        using Cost = ReuseCosts::Cost;
        of_rounds([](Cost& c) -> double& { return c.registration; });
        of_rounds([](Cost& c) -> double& { return c.copy; });
        of_rounds([](Cost& c) -> double& { return c.lookup; });
        for (std::size_t way = 0; way < ReuseCosts::kWays; ++way) {
            of_rounds([way](Cost& c) -> double& { return c.copied[way]; });
            of_rounds([way](Cost& c) -> double& { return c.gathered[way]; });
        }
    }
    return all;
}

std::size_t ReuseRounds::paying(std::size_t index, ReuseCosts::Way way) const noexcept {
    HEDDLE_ASSERT(index < ReuseCosts::kSizes && way < ReuseCosts::kWays);
    return static_cast<std::size_t>(
        std::count_if(rounds.begin(), rounds.end(),
                      [&](const ReuseCosts& each) { return each.costs[index].pays(way); }));
}

ReuseCosts ReuseRounds::settled(const std::optional<ReuseCosts>& before) const {
    ReuseCosts all = median();
    if (!before) return all;
    for (std::size_t i = 0; i < ReuseCosts::kSizes; ++i) {
        // A size that only one of the two has measured is not decided by the other.
        if (before->costs[i].registration <= 0 || all.costs[i].registration <= 0) continue;
        for (const ReuseCosts::Way way :
             {ReuseCosts::kSend, ReuseCosts::kRing, ReuseCosts::kOneSided}) {
            const bool pays = all.costs[i].pays(way);
            if (pays == before->costs[i].pays(way)) continue;
            const std::size_t agree = pays ? paying(i, way) : rounds.size() - paying(i, way);
            if (static_cast<double>(agree) >= kAgreed * static_cast<double>(rounds.size()))
                continue;
            all.costs[i] = before->costs[i];
            break;
        }
    }
    return all;
}

}  // namespace heddle::protocol
