// SPDX-License-Identifier: BSD-2-Clause
// The numbers by which queue pairs and shared receive queues are addressed. They carry the
// generation of their slot, so that what is addressed to an object that is gone never reaches the
// next one in its place. With the trait reuse-numbers they do not, and the lowest free slot is
// taken, so that the number of an object that is gone comes back at once.
#pragma once

#include <cstdint>

#include "softhca/base/options.h"
#include "softhca/device/table.h"

namespace softhca::uverbs {

inline device::Search number_search() noexcept {
    return options().device.has(DeviceTrait::kReuseNumbers) ? device::Search::kLowest
                                                            : device::Search::kOnward;
}

inline std::uint32_t number_of(const device::ObjectHead& head, std::uint32_t index) noexcept {
    if (options().device.has(DeviceTrait::kReuseNumbers)) return index;
    return (head.generation & 0xff) << 16 | index;
}

}  // namespace softhca::uverbs
