// SPDX-License-Identifier: BSD-2-Clause
// Pages that the kernel would pin for regions and queues, counted for the process (mm->pinned_vm)
// as ib_umem_get and ib_umem_release do (drivers/infiniband/core/umem.c), and those of doorbell
// records as mlx5_ib_db_map_user (hw/mlx5/doorbell.c): once for all records of a context on one
// page. Nothing is pinned here. With SOFTHCA_MEMLOCK=enforce what the kernel would refuse is
// refused: pages beyond RLIMIT_MEMLOCK, to who has not CAP_IPC_LOCK.
#pragma once

#include <cstdint>

#include "softhca/device/segment.h"
#include "softhca/uverbs/context.h"

namespace softhca::uverbs {

// 0; ENOMEM: beyond the limit; EPERM: the limit is 0.
int pin(device::Fabric& fabric, std::uint64_t address, std::uint64_t length) noexcept;
void unpin(device::Fabric& fabric, std::uint64_t address, std::uint64_t length) noexcept;

// A doorbell record.
int pin_record(DeviceContext& context, std::uint64_t address) noexcept;
// A queue's buffer and its record; either may be empty.
void unpin_queue(DeviceContext& context, const device::QueueMemory& buffer,
                 const device::QueueMemory& record) noexcept;

}  // namespace softhca::uverbs
