// SPDX-License-Identifier: BSD-2-Clause
// Taking a reliable connection from RESET to RTS (IBTA 10.3.1).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace heddle::verbs {

inline constexpr std::uint8_t kPort = 1;

// Where a QP is reached: one of InfiniBand (lid) or Ethernet (gid).
struct Address {
    std::uint32_t qpn = 0;
    std::uint16_t lid = 0;
    ibv_gid gid{};
    bool ethernet = false;
};

// Throws VerbsError.
Address address_of(ibv_qp* qp);
void connect(ibv_qp* qp, const Address& peer);

}  // namespace heddle::verbs
