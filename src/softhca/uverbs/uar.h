// SPDX-License-Identifier: BSD-2-Clause
// User access regions: the pages through which a process rings doorbells. Two kernels:
//
// - dynamic (today's): UAR objects on demand; libmlx5 alone places QPs and names the page in
//   CREATE_QP. The context has no UARs of its own.
// - static (of the ICPADS'18 paper): a context has MLX5_TOTAL_UUARS / 2 pages from the start, the
//   kernel places QPs (drivers/infiniband/hw/mlx5/qp.c, alloc_bfreg), and thread domains take
//   further pages by mmap (MLX5_IB_MMAP_ALLOC_WC), up to 512 a context, which live as long as the
//   context.
#pragma once

#include <cstdint>

#include "softhca/uverbs/context.h"

namespace softhca::uverbs {

struct UarObject {
    std::uint32_t page;
    std::uint32_t length;
    std::uint64_t mmap_offset;
};

// 0 or ENOMEM (no page left), EINVAL, EPROTONOSUPPORT (static kernel).
int alloc_uar(DeviceContext& context, std::uint32_t type, UarObject* out) noexcept;
int free_uar(DeviceContext& context, std::uint32_t page) noexcept;

// At GET_CONTEXT with the static kernel.
int alloc_static_uars(DeviceContext& context) noexcept;

// Where a QP goes. On success *page (in Segment.uars), *uuar (0 or 1 in the page), *blueflame, and
// *answer, what the response's bfreg_index says.
struct Placement {
    std::uint32_t page, uuar, answer;
    std::uint32_t bfreg;  // static kernel: to be given back; else kNone
    bool blueflame;
};
int place_qp(DeviceContext& context, std::uint32_t flags, std::uint32_t bfreg_index,
             Placement* out) noexcept;
void unplace_qp(DeviceContext& context, std::uint32_t bfreg) noexcept;

// Size of a command descriptor's memfd, and where the page of an UAR object lies in it.
inline constexpr std::uint64_t kObjectPages = 0x90000;  // above all offsets that encode a command
std::uint64_t command_fd_bytes() noexcept;

}  // namespace softhca::uverbs
