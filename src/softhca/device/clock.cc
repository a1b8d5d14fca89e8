// SPDX-License-Identifier: BSD-2-Clause
// Measures the rate of the completion clock: see clock.h.
#include "softhca/device/clock.h"

#include <time.h>

#include "softhca/base/assert.h"
#include "softhca/device/fabric.h"

namespace softhca::device {

std::uint64_t measure_clock_factor() noexcept {
#if defined(__aarch64__)
    std::uint64_t hz;
    asm("mrs %0, cntfrq_el0" : "=r"(hz));
    const double ns_per_tick = 1e9 / static_cast<double>(hz);
#else
    const std::uint64_t t0 = now_ns(), c0 = counter();
    const timespec pause{0, 2'000'000};
    nanosleep(&pause, nullptr);
    const std::uint64_t t1 = now_ns(), c1 = counter();
    const double ns_per_tick =
        static_cast<double>(t1 - t0) / static_cast<double>(c1 > c0 ? c1 - c0 : 1);
#endif
    SOFTHCA_ASSERT(ns_per_tick > 0);
    return static_cast<std::uint64_t>(ns_per_tick * 4294967296.0);
}

}  // namespace softhca::device
