// SPDX-License-Identifier: BSD-2-Clause
// Does this process register memory for one operation each? To exchange pages costs more than to
// reach them through the kernel a few times, so after some regions that did not live long the next
// ones stay private (docs/softhca.md, "Memory"). Of regions that peers may not write to: others are
// always shared, and say nothing.
#pragma once

#include <atomic>
#include <cstdint>

#include "softhca/device/memory/sharing.h"

namespace softhca::uverbs {

class BriefRegions {
public:
    static constexpr std::uint64_t kBriefNs = 100'000'000;
    static constexpr unsigned kEnough = 8;  // in a row

    device::memory::Purpose purpose() const noexcept {
        return row_.load(std::memory_order_relaxed) >= kEnough
                   ? device::memory::Purpose::kBrief
                   : device::memory::Purpose::kApplication;
    }
    void ended(std::uint64_t lived_ns) noexcept {
        if (lived_ns >= kBriefNs)
            row_.store(0, std::memory_order_relaxed);
        else
            row_.fetch_add(1, std::memory_order_relaxed);
    }

private:
    std::atomic<unsigned> row_{0};  // any thread; a hint
};

}  // namespace softhca::uverbs
