// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>

namespace heddle {

// Where a QP can be reached: by lid on InfiniBand, by gid on Ethernet (RoCE).
struct QpAddress {
    std::uint32_t qpn = 0;
    std::uint16_t lid = 0;
    std::uint8_t gid[16] = {};
    bool ethernet = false;
};

}  // namespace heddle
