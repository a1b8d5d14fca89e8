// SPDX-License-Identifier: BSD-2-Clause
// Work queue entries as an input wants them. Their layout: infiniband/mlx5dv.h.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "wqe_world.h"

namespace softhca::fuzz {

inline constexpr unsigned kUnit = 16;  // WQEs are made of units of 16 bytes
inline constexpr unsigned kMostUnits = 63;

// A WQE under construction, in units.
struct Entry {
    std::byte bytes[kMostUnits * kUnit + kUnit];
    unsigned units = 0;

    template <class T>
    void add(const T& segment) {
        const unsigned more = (sizeof segment + kUnit - 1) / kUnit;
        if (units + more > kMostUnits) return;
        std::memset(bytes + units * kUnit, 0, more * kUnit);
        std::memcpy(bytes + units * kUnit, &segment, sizeof segment);
        units += more;
    }
    void add_inline(Input& input);
};

// A segment of the gather or scatter list.
mlx5_wqe_data_seg data_segment(World& w, Input& input);

// An entry as libmlx5 would write it, with some bytes corrupted afterwards.
Entry send_entry(World& w, Queue& queue, std::uint16_t counter, Input& input);

}  // namespace softhca::fuzz
