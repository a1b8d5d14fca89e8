// SPDX-License-Identifier: BSD-2-Clause
// uUARs: the doorbell registers. QPs that the driver put on one share its lock and its alternation
// between two halves, so there is one of these for each register address of the process.
#pragma once

#include <cstdint>
#include <memory>

#include "heddle/post/lock.h"

namespace heddle::post {

struct Uuar {
    std::byte* address = nullptr;  // of the first half
    std::uint32_t half_bytes = 0;  // 0: takes no BlueFlame, does not alternate
    bool shared = false;           // by QPs of different threads: hold `lock` while ringing
    SpinLock lock;
    std::uint32_t offset = 0;  // of the half that is next; by who rings, under lock if shared
};

// The register at this address; the same object while anybody holds it. Thread-safe.
std::shared_ptr<Uuar> uuar_at(void* address, std::uint32_t half_bytes, bool shared);

}  // namespace heddle::post
