// SPDX-License-Identifier: BSD-2-Clause
// Which buffers of the application are registered for being used again ("Exploiting application
// buffer reuse"): by FI_HEDDLE_REUSE, or by what registering and copying cost on this host.
// Threads: the endpoint's.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "protocol/reuse/reuse.h"
#include "protocol/reuse/reuse_costs.h"
#include "protocol/transport/process.h"

namespace heddle::protocol {

class ReusePolicy {
public:
    // The domain is kept. It tells the tables when registrations have to go.
    explicit ReusePolicy(Domain::Body& domain);
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

    Domain::Body& domain_;
    const Options& options_;
    std::optional<Reuse> sent_from_, read_into_;  // none: nothing is kept
    // Less than that is copied without a look: where the costs are known, and there are no tables.
    std::array<std::size_t, ReuseCosts::kWays> from_;
    // How many uses are enough, as far as it was asked; 0: it was not.
    std::array<std::array<std::uint32_t, ReuseCosts::kSizes>, ReuseCosts::kWays> enough_uses_{};
};

}  // namespace heddle::protocol
