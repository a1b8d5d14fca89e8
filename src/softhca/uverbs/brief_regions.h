// SPDX-License-Identifier: BSD-2-Clause
// Detects a process that registers memory for one operation at a time. Exchanging pages costs more
// than a few copies through the kernel. So after eight short-lived regions in a row the next ones
// stay private (docs/reference/softhca.md, "Memory"). Only regions that peers may not write to
// are counted; the others are always shared.
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
    std::atomic<unsigned> row_{0};  // written by any thread; a hint
};

}  // namespace softhca::uverbs
