// SPDX-License-Identifier: BSD-2-Clause
// The maximum number of SGEs of a work request. The trait few-sges lowers it.
#pragma once

#include <cstdint>

#include "softhca/base/options.h"
#include "softhca/device/limits.h"

namespace softhca::uverbs {

// For the send and receive queue of a QP.
inline std::uint32_t most_sges() noexcept {
    return options().device.has(DeviceTrait::kFewSges) ? device::kFewSges : device::kMaxSge;
}

// For a shared receive queue.
inline std::uint32_t most_srq_sges() noexcept {
    return options().device.has(DeviceTrait::kFewSges) ? device::kFewSges : device::kMaxSrqSge;
}

}  // namespace softhca::uverbs
