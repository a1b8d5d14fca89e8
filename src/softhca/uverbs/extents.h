// SPDX-License-Identifier: BSD-2-Clause
// Which pages of this process were shared for an object, to be released with it. Kept by the
// process and not in the fabric: only what it shared itself may be given back.
#pragma once

#include <cstdint>
#include <vector>

#include "softhca/device/memory/sharing.h"

namespace softhca::uverbs {

enum class ObjectKind : std::uint32_t { kCq, kQp, kSrq, kMr };

struct QueueExtents {
    device::memory::Extents buffer{}, record{};  // a region has only the first
    std::vector<device::memory::Extents> more;
};

void keep_extents(ObjectKind kind, std::uint32_t index, QueueExtents extents) noexcept;
void keep_more_extents(ObjectKind kind, std::uint32_t index,
                       const device::memory::Extents& extents) noexcept;
QueueExtents take_extents(ObjectKind kind, std::uint32_t index) noexcept;
void release_extents(const QueueExtents& extents) noexcept;
// One piece of a queue, which own_memory.h knows.
void release_queue(const device::memory::Extents& extents) noexcept;
void forget_extents_after_fork() noexcept;

}  // namespace softhca::uverbs
