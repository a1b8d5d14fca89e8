// SPDX-License-Identifier: BSD-2-Clause
// Device memory (MEMIC; kernel: drivers/infiniband/hw/mlx5/dm.c): 128 KiB of the device, which
// programs allocate, map and register.
//
// It lies in a window of the owner's arena, where peers reach it like any shared memory. The window
// is never used for anything else. So a program that uses a mapping after it freed the memory
// reaches nothing but device memory.
//
// libmlx5 maps device memory by the command descriptor right after the allocation, and gets pages
// of the window. If no mapping was seen when the first region is registered, the mmap bypassed us
// (some libraries patch mmap itself) and shows pages of the command descriptor's own file. Those
// pages then are the device memory, and peers reach them by copies.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "softhca/uverbs/attributes.h"
#include "softhca/uverbs/context.h"

namespace softhca::uverbs {

// The methods of UVERBS_OBJECT_DM, and UVERBS_METHOD_DM_MR_REG of memory regions. Each returns 0 or
// an errno.
int device_memory_method(DeviceContext& context, unsigned method,
                         const Attributes& attributes) noexcept;
int reg_dm_mr(DeviceContext& context, const Attributes& attributes) noexcept;

void forget_device_memory_after_fork() noexcept;

// Returns EBUSY while regions are registered on it.
int free_device_memory(DeviceContext& context, std::uint32_t index) noexcept;

// Maps device memory by the command descriptor, as mmap(2). `index` is that of the first page. The
// mapping must cover the whole allocation.
struct Mapping {
    void* address;
    std::size_t length;
    int prot, flags, fd;
    off_t offset;
};
void* map_device_memory(DeviceContext& context, std::uint32_t index,
                        const Mapping& mapping) noexcept;

}  // namespace softhca::uverbs
