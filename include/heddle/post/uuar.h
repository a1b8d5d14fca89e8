// SPDX-License-Identifier: BSD-2-Clause
// uUARs: the doorbell registers of an mlx5 device. QPs that the driver put on one uUAR share its
// lock and the alternation between its two halves. So the process has one object for each address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "heddle/post/lock.h"

namespace heddle::post::detail {

struct Uuar {
    Uuar() = default;
    ~Uuar();
    Uuar(const Uuar&) = delete;
    Uuar& operator=(const Uuar&) = delete;

    std::byte* address = nullptr;  // of the first half
    std::uint32_t half_bytes = 0;  // 0: no BlueFlame, and no alternation
    // QPs of different threads ring it: the ringing thread holds `lock`.
    bool shared = false;
    SpinLock lock;
    // The offset of the half for the next ring. The ringing thread writes it, under `lock` if it is
    // shared.
    std::uint32_t offset = 0;
    std::uint64_t locks_taken = 0;  // by ringing threads, under `lock`
};

// Returns the object for the register at `address`; two calls return the same one while it lives.
// shared: QPs of several threads ring the register. All callers state the same half_bytes.
// Thread-safe.
std::shared_ptr<Uuar> uuar_at(void* address, std::uint32_t half_bytes, bool shared);

// Returns how often the locks of all registers of the process have been taken, those of registers
// that are gone included. Thread-safe.
std::uint64_t register_locks_taken();

}  // namespace heddle::post::detail
