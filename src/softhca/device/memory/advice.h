// SPDX-License-Identifier: BSD-2-Clause
// Finds private pages that the application excludes from core dumps (MADV_DONTDUMP) or clears in
// its children (MADV_WIPEONFORK). Shared pages cannot keep such advice, so these pages are never
// shared.
//
// Only smaps shows this advice, and reading that file takes long. So it is read only after the
// application has given such advice through libc, and only while a page has it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "softhca/device/memory/address_space.h"

namespace softhca::device::memory {

// Notes that the application called madvise(2) with this advice. Any thread may call it.
void note_advice(int advice) noexcept;

// The caller holds the sharing mutex. Never uses the heap.
class AdvisedPages {
public:
    // Call this before meet() if the application may have given advice since the last call.
    void refresh() noexcept;
    // Whether any page of [start, end) has such advice.
    bool meet(std::uint64_t start, std::uint64_t end) const noexcept;

private:
    struct Range {
        std::uint64_t start, end;
    };
    bool read() noexcept;
    void take_line(std::string_view line, Vma* vma) noexcept;
    void add(const Range& range) noexcept;

    std::uint64_t noted_ = 0;         // value of the advice counter at the last look
    std::array<Range, 64> ranges_{};  // ascending; if there are too many, the last has no end
    std::size_t count_ = 0;
};

}  // namespace softhca::device::memory
