// SPDX-License-Identifier: BSD-2-Clause
// Several measurements of ReuseCosts, one after the other. One alone is of one moment of the
// machine: where a gather takes about as long as the copy, one says "never" and the next a number.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "protocol/reuse/reuse_costs.h"

namespace heddle::protocol {

struct ReuseRounds {
    // A change of the kept decision needs so many of the rounds.
    static constexpr double kAgreed = 0.75;

    std::vector<ReuseCosts> rounds;

    // Measures `count` times, one or more. Throws VerbsError.
    static ReuseRounds measure(ibv_context* context, ibv_pd* pd, std::size_t largest,
                               std::size_t count);

    // The median of each time, by size and way.
    ReuseCosts median() const;

    // In how many of the rounds a buffer of that size pays; index: as in ReuseCosts::costs.
    std::size_t paying(std::size_t index, ReuseCosts::Way way) const noexcept;

    // What to keep. before: what was kept so far, if anything. Where the medians decide otherwise
    // about a way of a size than `before`, but not clearly (kAgreed), that size stays as it was.
    ReuseCosts settled(const std::optional<ReuseCosts>& before) const;
};

}  // namespace heddle::protocol
