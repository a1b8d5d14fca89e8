// SPDX-License-Identifier: BSD-2-Clause
// The transitions of a QP's state, and the attributes that each one requires or allows: IBTA
// 11.2.5.2, as in the kernel's ib_modify_qp_is_ok().
#pragma once

#include <cstdint>

namespace softhca::uverbs {

// `type` is enum ib_uverbs_qp_type, `from` and `to` are enum ibv_qp_state, and `mask` has bits of
// enum ibv_qp_attr_mask.
bool qp_change_allowed(std::uint32_t type, std::uint32_t from, std::uint32_t to,
                       std::uint32_t mask) noexcept;

}  // namespace softhca::uverbs
