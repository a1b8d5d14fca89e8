// SPDX-License-Identifier: BSD-2-Clause
// Which buffers of the application are registered for being used again ("Exploiting application
// buffer reuse"): by FI_HEDDLE_REUSE, or by what registering and copying cost on this host.
// Threads: the endpoint's.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "memory/registration_cache.h"
#include "protocol/common/options.h"
#include "protocol/reuse/reuse.h"
#include "protocol/reuse/reuse_costs.h"

namespace heddle::protocol {

class ReusePolicy {
public:
    // What buffers cost here: asked for at first need, as measuring takes some milliseconds.
    using Costs = std::function<const ReuseCosts&()>;
    // All are kept. tables: while the policy lives, its tables are among them, so that their owner
    // can sweep() them when registrations have to go.
    ReusePolicy(const Options& options, memory::RegistrationCache& cache,
                std::vector<Reuse*>& tables, Costs costs);
    ~ReusePolicy();
    ReusePolicy(const ReusePolicy&) = delete;
    ReusePolicy& operator=(const ReusePolicy&) = delete;

    // A buffer is sent from, or read into, once more. nullptr: a copy is better, so far.
    [[gnu::always_inline]] Reuse::Buffer* source(const iovec& buffer,
                                                 ReuseCosts::Way way) noexcept {
        return use(sent_from_, buffer, way);
    }
    [[gnu::always_inline]] Reuse::Buffer* destination(const iovec& buffer,
                                                      ReuseCosts::Way way) noexcept {
        return use(read_into_, buffer, way);
    }
    ReuseCounts counts() const noexcept;

private:
    [[gnu::always_inline]] Reuse::Buffer* use(std::optional<Reuse>& table, const iovec& buffer,
                                              ReuseCosts::Way way) noexcept {
        if (buffer.iov_len < from_[way]) return nullptr;
        return table->use(buffer.iov_base, buffer.iov_len,
                          [this, way](std::size_t bytes) { return uses_for(bytes, way); });
    }
    std::uint32_t uses_for(std::size_t bytes, ReuseCosts::Way way) noexcept;

    const Options& options_;
    std::vector<Reuse*>& tables_;
    const Costs costs_;
    std::optional<Reuse> sent_from_, read_into_;  // none: nothing is kept
    // Less than that is copied without a look: where the costs are known, and there are no tables.
    std::array<std::size_t, ReuseCosts::kWays> from_;
    // How many uses are enough, as far as it was asked; 0: it was not.
    std::array<std::array<std::uint32_t, ReuseCosts::kSizes>, ReuseCosts::kWays> enough_uses_{};
};

}  // namespace heddle::protocol
