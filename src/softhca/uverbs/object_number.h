// SPDX-License-Identifier: BSD-2-Clause
// The numbers by which QPs and SRQs are addressed. A number carries the generation of its slot, so
// a message for a destroyed object never reaches the next object in the slot. With the trait
// reuse-numbers it does not, and the lowest free slot is taken. So the number of a destroyed object
// is reused at once.
#pragma once

#include <cstdint>

#include "softhca/base/assert.h"
#include "softhca/base/options.h"
#include "softhca/device/table.h"

namespace softhca::uverbs {

inline device::Search number_search() noexcept {
    return options().device.has(DeviceTrait::kReuseNumbers) ? device::Search::kLowest
                                                            : device::Search::kOnward;
}

inline std::uint32_t number_of(const device::ObjectHead& head, std::uint32_t index) noexcept {
    SOFTHCA_DEBUG_ASSERT(index < 1u << 16, "the generation has the upper eight bits");
    if (options().device.has(DeviceTrait::kReuseNumbers)) return index;
    return (head.generation & 0xff) << 16 | index;
}

}  // namespace softhca::uverbs
