// SPDX-License-Identifier: BSD-2-Clause
// Device memory (MEMIC; kernel: drivers/infiniband/hw/mlx5/dm.c): 128 KiB of the device, which
// programs allocate, map and register.
//
// It lies in a window of the owner's arena, where peers reach it like any shared memory, and which
// is never used for anything else: a program that goes on using a mapping after it has freed the
// memory meets nothing but device memory. libmlx5 maps it by the command descriptor as soon as it
// has allocated it, and is given pages of the window. If by the time a region is made on it no
// mapping was seen, then that went past us (some libraries patch mmap itself) and shows the pages
// of the command descriptor's own file; those are the device memory then, and are reached by
// copies.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "softhca/uverbs/attributes.h"
#include "softhca/uverbs/context.h"

namespace softhca::uverbs {

// Methods of UVERBS_OBJECT_DM, and UVERBS_METHOD_DM_MR_REG of regions. 0 or an errno.
int device_memory_method(DeviceContext& context, unsigned method,
                         const Attributes& attributes) noexcept;
int reg_dm_mr(DeviceContext& context, const Attributes& attributes) noexcept;

void forget_device_memory_after_fork() noexcept;

// EBUSY while there are regions on it.
int free_device_memory(DeviceContext& context, std::uint32_t index) noexcept;

// An mmap of device memory by the command descriptor: `index` is that of its first page, and all of
// it must be mapped. As mmap(2).
struct Mapping {
    void* address;
    std::size_t length;
    int prot, flags, fd;
    off_t offset;
};
void* map_device_memory(DeviceContext& context, std::uint32_t index,
                        const Mapping& mapping) noexcept;

}  // namespace softhca::uverbs
