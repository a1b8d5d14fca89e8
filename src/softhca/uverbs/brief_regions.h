// SPDX-License-Identifier: BSD-2-Clause
// Detects memory that is registered for one operation at a time. Exchanging pages costs more than
// a few copies through the kernel. So after eight short-lived regions in a row that begin at one
// page, the next ones there stay private (docs/reference/softhca.md, "Memory"). Only regions that
// peers may not write to are counted; the others are always shared.
//
// What other memory is used for says nothing: a library that frees its buffers after each operation
// may lie beside a program whose buffers stay registered.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "softhca/device/memory/sharing.h"

namespace softhca::uverbs {

class BriefRegions {
public:
    static constexpr std::uint64_t kBriefNs = 100'000'000;
    static constexpr unsigned kEnough = 8;  // in a row

    device::memory::Purpose purpose(std::uint64_t address) const noexcept {
        const std::uint64_t mark = marks_[place(address)].load(std::memory_order_relaxed);
        return page(mark) == page(address) && row(mark) >= kEnough
                   ? device::memory::Purpose::kBrief
                   : device::memory::Purpose::kApplication;
    }
    void ended(std::uint64_t address, std::uint64_t lived_ns) noexcept {
        std::atomic<std::uint64_t>& kept = marks_[place(address)];
        const std::uint64_t mark = kept.load(std::memory_order_relaxed);
        const unsigned before = page(mark) == page(address) ? row(mark) : 0;
        const unsigned now = lived_ns >= kBriefNs ? 0 : before == kEnough ? before : before + 1;
        kept.store(page(address) | now, std::memory_order_relaxed);
    }

private:
    // A mark: the address of the page, and below it how many in a row.
    static constexpr std::uint64_t kPage = 4096;
    static std::uint64_t page(std::uint64_t mark) noexcept { return mark & ~(kPage - 1); }
    static unsigned row(std::uint64_t mark) noexcept {
        return static_cast<unsigned>(mark & (kPage - 1));
    }
    static std::size_t place(std::uint64_t address) noexcept {
        return page(address) * 0x9e3779b97f4a7c15 >> 56;
    }

    // Written by any thread; hints, of which one that is lost costs an exchange or a few copies.
    std::array<std::atomic<std::uint64_t>, 256> marks_{};
};

}  // namespace softhca::uverbs
