// SPDX-License-Identifier: BSD-2-Clause
// A map from page numbers, addresses or offsets to values that are constant on runs, and T{} nearly
// everywhere: which registrations use a page, or what is mapped at an address. Neighbouring runs of
// equal value are merged, so the map's size depends on its content and not on its history.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "softhca/base/assert.h"
#include "softhca/device/memory/pool_allocator.h"

namespace softhca::device::memory {

// T is a small value type with ==. Not thread-safe. A change may throw std::bad_alloc, and then has
// changed no value.
template <typename T>
class IntervalMap {
public:
    static constexpr std::uint64_t kEnd = ~std::uint64_t{0};

    struct Run {
        std::uint64_t start;
        std::uint64_t end;  // kEnd for the last one
        T value;
    };

    // The longest run of one value that contains the point.
    Run run_at(std::uint64_t point) const {
        auto next = starts_.upper_bound(point);
        Run run{0, next == starts_.end() ? kEnd : next->first, T{}};
        if (next != starts_.begin()) {
            auto here = std::prev(next);
            run.start = here->first;
            run.value = here->second;
        }
        SOFTHCA_DEBUG_ASSERT(run.start <= point && (point < run.end || run.end == kEnd));
        return run;
    }

    T at(std::uint64_t point) const { return run_at(point).value; }

    // Applies change(T&) to every run within [start, end), and splits runs that extend beyond it.
    template <typename Change>
    void update(std::uint64_t start, std::uint64_t end, Change change) {
        SOFTHCA_ASSERT(start < end);
        auto first = cut(start);
        auto last = cut(end);
        SOFTHCA_DEBUG_ASSERT(first->first == start && last->first == end);
        for (auto here = first; here != last; ++here)
            change(here->second);
        for (auto here = first;;) {
            const bool stop = here == last;
            auto next = std::next(here);
            const bool redundant = here == starts_.begin()
                                       ? here->second == T{}
                                       : here->second == std::prev(here)->second;
            if (redundant) starts_.erase(here);
            if (stop) break;
            here = next;
        }
    }

    void set(std::uint64_t start, std::uint64_t end, const T& value) {
        update(start, end, [&value](T& old) { old = value; });
    }

    // Calls visit(Run) for every run of a value other than T{}, in ascending order. The map must
    // not change during the call.
    template <typename Visit>
    void for_each(Visit visit) const {
        for (auto here = starts_.begin(); here != starts_.end(); ++here) {
            if (here->second == T{}) continue;
            auto next = std::next(here);
            visit(Run{here->first, next == starts_.end() ? kEnd : next->first, here->second});
        }
    }

    std::size_t boundaries() const { return starts_.size(); }
    bool empty() const { return starts_.empty(); }
    void clear() { starts_.clear(); }

private:
    using Starts =
        std::map<std::uint64_t, T, std::less<>, PoolAllocator<std::pair<const std::uint64_t, T>>>;

    // Makes `point` the start of a run, which keeps its value.
    typename Starts::iterator cut(std::uint64_t point) {
        auto next = starts_.lower_bound(point);
        if (next != starts_.end() && next->first == point) return next;
        return starts_.emplace_hint(next, point,
                                    next == starts_.begin() ? T{} : std::prev(next)->second);
    }

    Starts starts_;  // each value holds up to the next key; T{} holds before the first
};

}  // namespace softhca::device::memory
