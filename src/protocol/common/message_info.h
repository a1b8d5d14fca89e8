// SPDX-License-Identifier: BSD-2-Clause
// What a message is known by, besides its sender and its bytes.
#pragma once

#include <cstdint>

namespace heddle::protocol {

struct MessageInfo {
    std::uint64_t tag = 0;
    std::uint64_t data = 0;  // remote CQ data; 0 if there is none
    bool has_data = false;
};

}  // namespace heddle::protocol
