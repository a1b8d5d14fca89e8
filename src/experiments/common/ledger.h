// SPDX-License-Identifier: BSD-2-Clause
// Whose completion is it? Who polls a CQ that is shared finds those of others. So a work's id says
// whose it is, on which of its QPs, and how many that thread has then posted there; who polls tells
// the owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace heddle::bench {

// How far the works of each thread on each of its QPs are done.
class Ledger {
public:
    Ledger(std::uint32_t threads, std::uint32_t qps) : qps_(qps), lines_(threads * qps) {}

    static std::uint64_t id(std::uint32_t thread, std::uint32_t k, std::uint64_t count) {
        return std::uint64_t{thread} << 48 | std::uint64_t{k} << 40 | count;
    }
    void tell(std::uint64_t id) noexcept {
        std::atomic<std::uint64_t>& done = lines_[(id >> 48) * qps_ + ((id >> 40) & 0xff)].done;
        const std::uint64_t count = id & ((std::uint64_t{1} << 40) - 1);
        // Two that poll one CQ may tell in another order than it happened: it never goes back.
        std::uint64_t known = done.load(std::memory_order_relaxed);
        while (known < count && !done.compare_exchange_weak(known, count, std::memory_order_release,
                                                            std::memory_order_relaxed)) {
        }
    }
    std::uint64_t done(std::uint32_t thread, std::uint32_t k) const noexcept {
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
