// SPDX-License-Identifier: BSD-2-Clause
// Which WRs of each thread are done. A thread that polls a shared CQ finds completions of other
// threads. So a WR's id names the thread, its QP, and how many WRs the thread has then posted
// there; the polling thread records that for the owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "heddle/detail/assert.h"

namespace heddle::bench {

// How many of its WRs are done, for each thread and each of its QPs. record() and done() may be
// called by any thread; a release store and an acquire load order the payload.
class CompletionTracker {
public:
    CompletionTracker(std::uint32_t threads, std::uint32_t qps)
        : qps_(qps), lines_(std::size_t{threads} * qps) {}

    static std::uint64_t id(std::uint32_t thread, std::uint32_t k, std::uint64_t count) {
        HEDDLE_DEBUG_ASSERT(thread < 1u << 16 && k < 1u << 8 && count >> 40 == 0,
                            "each number has its bits of the id");
        return std::uint64_t{thread} << 48 | std::uint64_t{k} << 40 | count;
    }
    void record(std::uint64_t id) noexcept {
        HEDDLE_DEBUG_ASSERT((id >> 48) * qps_ + ((id >> 40) & 0xff) < lines_.size(),
                            "the id is one that id() made");
        std::atomic<std::uint64_t>& done = lines_[(id >> 48) * qps_ + ((id >> 40) & 0xff)].done;
        const std::uint64_t count = id & ((std::uint64_t{1} << 40) - 1);
        // Two threads that poll one CQ may record in another order than the device completed: the
        // count never goes back.
        std::uint64_t known = done.load(std::memory_order_relaxed);
        while (known < count && !done.compare_exchange_weak(known, count, std::memory_order_release,
                                                            std::memory_order_relaxed)) {
        }
    }
    std::uint64_t done(std::uint32_t thread, std::uint32_t k) const noexcept {
        HEDDLE_DEBUG_ASSERT(k < qps_ && thread * qps_ + k < lines_.size(),
                            "each thread has as many QPs");
        return lines_[thread * qps_ + k].done.load(std::memory_order_acquire);
    }

private:
    struct alignas(64) Line {
        std::atomic<std::uint64_t> done{0};
    };
    std::uint32_t qps_;
    std::vector<Line> lines_;
};

}  // namespace heddle::bench
