// SPDX-License-Identifier: BSD-2-Clause
// Which changes of a QP's state are allowed, and with which attributes: IBTA 11.2.5.2, as the
// kernel's ib_modify_qp_is_ok() has it.
#pragma once

#include <cstdint>

namespace softhca::uverbs {

// types and states are enum ib_uverbs_qp_type and ibv_qp_state; mask is of enum ibv_qp_attr_mask.
bool qp_change_allowed(std::uint32_t type, std::uint32_t from, std::uint32_t to,
                       std::uint32_t mask) noexcept;

}  // namespace softhca::uverbs
