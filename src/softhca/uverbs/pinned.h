// SPDX-License-Identifier: BSD-2-Clause
// Counts the pages that the kernel would pin for regions and queues of the process (mm->pinned_vm),
// as ib_umem_get and ib_umem_release count them (drivers/infiniband/core/umem.c). Pages of doorbell
// records are counted as by mlx5_ib_db_map_user (hw/mlx5/doorbell.c): once for all records of a
// context on one page. Nothing is pinned here.
// With SOFTHCA_MEMLOCK=enforce a request is refused where the kernel refuses it: for pages beyond
// RLIMIT_MEMLOCK, unless the process has CAP_IPC_LOCK.
#pragma once

#include <cstdint>

#include "softhca/device/segment.h"
#include "softhca/uverbs/context.h"

namespace softhca::uverbs {

// Returns 0, ENOMEM if the pages exceed the limit, or EPERM if the limit is 0.
int pin(device::Fabric& fabric, std::uint64_t address, std::uint64_t length) noexcept;
void unpin(device::Fabric& fabric, std::uint64_t address, std::uint64_t length) noexcept;

// Pins the page of a doorbell record.
int pin_record(DeviceContext& context, std::uint64_t address) noexcept;
// Unpins a queue's buffer and its record. Either may be empty.
void unpin_queue(DeviceContext& context, const device::QueueMemory& buffer,
                 const device::QueueMemory& record) noexcept;

}  // namespace softhca::uverbs
