// SPDX-License-Identifier: BSD-2-Clause
// A memory key whose memory is that of other keys, one part behind the other (the PRM's indirect
// mkeys; mlx5dv_create_mkey(3), mlx5dv_wr_post(3)). Its keys follow those of the memory windows:
// key >> 8 is kMaxMrs + kMaxMws plus its index.
#pragma once

#include <atomic>
#include <cstdint>

#include "softhca/device/limits.h"
#include "softhca/device/object.h"

namespace softhca::device {

// `bytes` bytes from `address` on, in the addresses of `key`. In a pattern that repeats, the next
// ones begin `stride` bytes further on.
struct MkeyPart {
    std::atomic<std::uint64_t> address, bytes;
    std::atomic<std::uint32_t> key, stride;
};

// A key that any QP may use (Mkey.qp).
inline constexpr std::uint32_t kAnyQp = 0xffffff;

struct alignas(64) Mkey {
    ObjectHead head;
    std::uint32_t pd;
    std::uint32_t room;                // parts that it was created for
    std::uint32_t may_change;          // by UMR work requests (umr_en)
    std::uint32_t may_be_invalidated;  // by a peer's SEND (en_rinval)
    // UMR work requests and invalidations rewrite the rest (engine/mkeys.h). Whoever makes
    // `changes` odd may; a reader whose values are not of one time reads them again.
    std::atomic<std::uint32_t> changes;
    std::atomic<std::uint32_t> key;
    std::atomic<std::uint32_t> is_free, access;  // access: IBV_ACCESS_*
    std::atomic<std::uint32_t> qp;               // the only one that may use it, or kAnyQp
    std::atomic<std::uint32_t> parts;
    std::atomic<std::uint32_t> repeats;        // how often the parts are repeated
    std::atomic<std::uint64_t> start, length;  // what a user of the key addresses
    MkeyPart part[kMaxMkeyParts];
};

}  // namespace softhca::device
