// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/paper_resources.h"

#include "heddle/detail/assert.h"

namespace heddle::cli {

std::uint32_t paper_uars(Category category, std::uint32_t threads, std::uint32_t qps) {
    HEDDLE_ASSERT(threads != 0 && qps != 0, "endpoints have threads and queues");
    constexpr std::uint32_t kOfContext = 8;
    switch (category) {
        case Category::kMpiEverywhere:
            return kOfContext * threads;
        case Category::k2xDynamic:
            return kOfContext + 2 * qps;
        case Category::kDynamic:
            return kOfContext + qps;
        case Category::kSharedDynamic:
            return kOfContext + (qps + 1) / 2;
        default:
            return kOfContext;
    }
}

std::size_t paper_bytes(const Usage& usage) {
    constexpr std::size_t kContext = 256 << 10, kPd = 144, kMr = 144, kQp = 80 << 10, kCq = 9 << 10;
    return usage.contexts * kContext + usage.pds * kPd + usage.mrs * kMr + usage.qps * kQp +
           usage.cqs * kCq;
}

}  // namespace heddle::cli
