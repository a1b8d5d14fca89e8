// SPDX-License-Identifier: BSD-2-Clause
// User access regions (UARs): the pages through which a process rings doorbells. There are two
// policies:
// - dynamic, as in current kernels: UAR objects are allocated on demand. libmlx5 alone assigns
//   uUARs to QPs, and names the page in CREATE_QP. The context has no UARs of its own.
// - static, as in the ICPADS'18 paper: a context has MLX5_TOTAL_UUARS / 2 pages from the start, and
//   the kernel assigns uUARs to QPs (drivers/infiniband/hw/mlx5/qp.c, alloc_bfreg). Thread domains
//   allocate further pages by mmap (MLX5_IB_MMAP_ALLOC_WC), up to 512 in a context, which live as
//   long as the context.
#pragma once

#include <cstdint>

#include "softhca/uverbs/context.h"

namespace softhca::uverbs {

struct UarObject {
    std::uint32_t page;
    std::uint32_t length;
    std::uint64_t mmap_offset;
};

// Returns 0, ENOMEM (no page left), EINVAL, or EPROTONOSUPPORT (with the static policy).
int alloc_uar(DeviceContext& context, std::uint32_t type, UarObject* out) noexcept;
int free_uar(DeviceContext& context, std::uint32_t page) noexcept;

// Call this in GET_CONTEXT with the static policy.
int alloc_static_uars(DeviceContext& context) noexcept;

// The uUAR of a QP. `page` is an index in Segment.uars, `uuar` is 0 or 1 within the page, and
// `answer` is the bfreg_index of the response.
struct Placement {
    std::uint32_t page, uuar, answer;
    std::uint32_t bfreg;  // static policy: to be returned by unplace_qp(); else kNone
    bool blueflame;
};
int place_qp(DeviceContext& context, std::uint32_t flags, std::uint32_t bfreg_index,
             Placement* out) noexcept;
void unplace_qp(DeviceContext& context, std::uint32_t bfreg) noexcept;

// The size of a command descriptor's memfd, and where the page of a UAR object lies in it.
// kObjectPages is above all offsets that encode a command.
inline constexpr std::uint64_t kObjectPages = 0x90000;
std::uint64_t command_fd_bytes() noexcept;

}  // namespace softhca::uverbs
