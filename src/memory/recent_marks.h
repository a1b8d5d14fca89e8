// SPDX-License-Identifier: BSD-2-Clause
// Whether something was seen before, of the last few hundred: a table of marks by hash.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace heddle::memory {

// Threads: the caller's lock.
template <std::size_t kPlaces>
class RecentMarks {
public:
    // mixed: what it is, mixed into one word. If another overwrites the mark of one, it is new the
    // next time.
    bool seen_before(std::uint64_t mixed) noexcept {
        std::uint64_t mark = mixed * 0x9e37'79b9'7f4a'7c15ull;
        mark ^= mark >> 29;
        return std::exchange(marks_[mark % kPlaces], mark) == mark;
    }

private:
    std::array<std::uint64_t, kPlaces> marks_{};
};

}  // namespace heddle::memory
