// SPDX-License-Identifier: BSD-2-Clause
// State that outlives a QP: the static bfreg that it returns to its context, and its counters,
// which the context adds to its own.
#pragma once

#include <cstdint>

#include "softhca/device/segment.h"

namespace softhca::uverbs {

void remember_bfreg(std::uint32_t qp, std::uint32_t bfreg) noexcept;
std::uint32_t recall_bfreg(std::uint32_t qp) noexcept;  // and forgets it; kNone if there is none

void retire_counters(device::Context& record, const device::QueuePair& qp) noexcept;

}  // namespace softhca::uverbs
