// SPDX-License-Identifier: BSD-2-Clause
// How many entries a list of a request may have: few-sges is a device of fewer.
#pragma once

#include <cstdint>

#include "softhca/base/options.h"
#include "softhca/device/limits.h"

namespace softhca::uverbs {

// Of a queue pair's own queues.
inline std::uint32_t most_sges() noexcept {
    return options().device.has(DeviceTrait::kFewSges) ? device::kFewSges : device::kMaxSge;
}

// Of a shared receive queue.
inline std::uint32_t most_srq_sges() noexcept {
    return options().device.has(DeviceTrait::kFewSges) ? device::kFewSges : device::kMaxSrqSge;
}

}  // namespace softhca::uverbs
