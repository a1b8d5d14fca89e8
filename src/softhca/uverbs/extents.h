// SPDX-License-Identifier: BSD-2-Clause
// The pages of this process that were shared for an object, so that they are released with it. They
// are recorded in the process and not in the fabric, because a process may release only what it
// shared itself.
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
// Releases one range of a queue, and takes it from the memory that own_memory.h knows.
void release_queue(const device::memory::Extents& extents) noexcept;
void forget_extents_after_fork() noexcept;

}  // namespace softhca::uverbs
