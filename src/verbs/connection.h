// SPDX-License-Identifier: BSD-2-Clause
// Taking a reliable connection from RESET to RTS (IBTA 10.3.1).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "heddle/address.h"

namespace heddle::verbs {

inline constexpr std::uint8_t kPort = 1;

// Throws VerbsError.
QpAddress address_of(ibv_qp* qp);
void connect(ibv_qp* qp, const QpAddress& peer);

}  // namespace heddle::verbs
