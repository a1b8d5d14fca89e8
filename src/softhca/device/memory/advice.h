// SPDX-License-Identifier: BSD-2-Clause
// Private pages that the application keeps out of core dumps (MADV_DONTDUMP) or from its children
// (MADV_WIPEONFORK). Shared pages cannot keep such advice, so these pages are never shared.
//
// Only smaps says which pages have it, and that file takes long. It is therefore read only after
// the application has given such advice through libc, and as long as some page has it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "softhca/device/memory/address_space.h"

namespace softhca::device::memory {

// The application has called madvise(2) with this advice. Any thread.
void note_advice(int advice) noexcept;

// Callers hold the sharing mutex. Never uses the heap.
class AdvisedPages {
public:
    // To be called before questions, when the application may have given advice since.
    void refresh() noexcept;
    // Has any page of [start, end) such advice?
    bool meet(std::uint64_t start, std::uint64_t end) const noexcept;

private:
    struct Range {
        std::uint64_t start, end;
    };
    bool read() noexcept;
    void take_line(std::string_view line, Vma* vma) noexcept;
    void add(const Range& range) noexcept;

    std::uint64_t noted_ = 0;         // advice given before the last look
    std::array<Range, 64> ranges_{};  // ascending; the last one of very many reaches to the end
    std::size_t count_ = 0;
};

}  // namespace softhca::device::memory
