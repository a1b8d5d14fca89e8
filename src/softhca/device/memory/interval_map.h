// SPDX-License-Identifier: BSD-2-Clause
// A function of page numbers, addresses or offsets that is constant on runs and T{} nearly
// everywhere: who uses which pages, what is mapped where. Neighbouring runs of equal value are one
// run, so its size follows what is different, not how it came to be.
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

// T: a small value type with ==. Not thread-safe. Changes may throw std::bad_alloc, and then have
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

    // The longest run of one value that holds the point.
    Run run_at(std::uint64_t point) const {
        auto next = starts_.upper_bound(point);
        Run run{0, next == starts_.end() ? kEnd : next->first, T{}};
        if (next != starts_.begin()) {
            auto here = std::prev(next);
            run.start = here->first;
            run.value = here->second;
        }
        return run;
    }

    T at(std::uint64_t point) const { return run_at(point).value; }

    // Applies change(T&) to every run within [start, end), cutting those that stick out.
    template <typename Change>
    void update(std::uint64_t start, std::uint64_t end, Change change) {
        SOFTHCA_ASSERT(start < end);
        auto first = cut(start);
        auto last = cut(end);
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

    // Calls visit(Run) for every run of a value other than T{}, ascending. The map must not change
    // meanwhile.
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

    // Makes `point` the start of a run (of the value it has).
    typename Starts::iterator cut(std::uint64_t point) {
        auto next = starts_.lower_bound(point);
        if (next != starts_.end() && next->first == point) return next;
        return starts_.emplace_hint(next, point,
                                    next == starts_.begin() ? T{} : std::prev(next)->second);
    }

    Starts starts_;  // each value holds up to the next key; T{} before the first
};

}  // namespace softhca::device::memory
