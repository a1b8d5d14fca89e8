// SPDX-License-Identifier: BSD-2-Clause
// How the device learns of the WQEs of a send queue: the doorbell record, then the register, to
// which a WQE that is short enough goes whole (BlueFlame; mlx5 PRM, "Doorbells").
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "heddle/detail/assert.h"
#include "heddle/post/mlx5_wqe.h"
#include "heddle/post/softhca_hooks.h"
#include "heddle/post/stores.h"
#include "heddle/post/uuar.h"

namespace heddle::post::detail {

// Whether a WQE goes to the register whole (BlueFlame), as libmlx5's environment variables say.
// libmlx5 reads them when it opens a device. The direct path reads them when a queue is
// constructed, so the queues of one process can differ.
struct RegisterPolicy {
    bool blueflame_for_all =
        true;               // MLX5_POST_SEND_PREFER_BF; false: WQEs with inline payload only
    bool blueflame = true;  // not MLX5_SHUT_UP_BF
};
inline RegisterPolicy register_policy() noexcept {
    const char* prefer = std::getenv("MLX5_POST_SEND_PREFER_BF");
    const char* shut = std::getenv("MLX5_SHUT_UP_BF");
    RegisterPolicy policy;
    policy.blueflame_for_all = prefer == nullptr || std::string_view(prefer) != "0";
    policy.blueflame = shut == nullptr || std::string_view(shut) == "0";
    return policy;
}

// The words of a WQE of Mlx5SendQueue::post_small(), which is one block.
struct SmallEntry {
    std::uint64_t control[2];
    std::uint64_t srq;
    std::uint64_t payload[4];
};
// Stores a whole block by eight bytes in ascending order, as registers require.
template <bool kXrc>
[[gnu::always_inline]] inline void store(const SmallEntry& entry, std::byte* to) noexcept {
    store_register(to, entry.control[0]);
    store_register(to + 8, entry.control[1]);
    if (kXrc) {
        store_register(to + 16, entry.srq);
        store_register(to + 24, 0);
    }
    std::byte* const at = to + (kXrc ? 2 : 1) * kUnit;
    store_register(at, entry.payload[0]);
    store_register(at + 8, entry.payload[1]);
    store_register(at + 16, entry.payload[2]);
    store_register(at + 24, entry.payload[3]);
    if (!kXrc) {
        store_register(to + 48, 0);
        store_register(to + 56, 0);
    }
}

// The record and the register of one queue. The queue's lock guards it.
class SendDoorbell {
public:
    // register_shared: the driver may put QPs of other threads on this uUAR.
    SendDoorbell(const mlx5dv_qp& queue, bool register_shared)
        : record_(queue.dbrec + MLX5_SND_DBR),
          uuar_(uuar_at(queue.bf.reg, queue.bf.size, register_shared)) {
        const RegisterPolicy policy = register_policy();
        if (policy.blueflame) most_inline_ = uuar_->half_bytes / kUnit;
        if (policy.blueflame_for_all) most_gathered_ = most_inline_;
    }

    // The units that a WQE may have to go to the register whole; 0: none goes.
    std::uint32_t most_units(bool is_inline) const noexcept {
        return is_inline ? most_inline_ : most_gathered_;
    }
    // ring_small() may be used.
    bool takes_small() const noexcept { return !uuar_->shared && most_inline_ >= kUnitsInBlock; }

    // The WQE at `entry` is the last. A single WQE of at most most_units goes to the register
    // whole: the device need not fetch it. counter: behind it. queue: any address that stands for
    // the queue.
    [[gnu::always_inline]] void ring(const Ring& ring, const std::byte* entry, std::uint32_t units,
                                     std::uint32_t most_units, std::uint16_t counter,
                                     void* queue) noexcept {
        begin(counter, queue);
        Uuar& uuar = *uuar_;
        HEDDLE_DEBUG_ASSERT(uuar.half_bytes == 0 || uuar.offset <= uuar.half_bytes);
        if (uuar.shared) {
            uuar.lock.lock();
            ++uuar.locks_taken;
        }
        std::byte* const at = uuar.address + uuar.offset;
        begin_register_stores();
        if (units <= most_units && units > 1) {
            const std::byte* from = entry;
            std::byte* to = at;
            const std::byte* const end = at + std::size_t{units} * kUnit;
            do {
                store_register64(to, from);
                from += kBlock;
                if (from == ring.end) from = ring.begin;
                to += kBlock;
            } while (to < end);
        } else {
            std::uint64_t first;
            std::memcpy(&first, entry, sizeof first);
            store_register(at, first);
        }
        end_register_stores();
        uuar.offset ^= uuar.half_bytes;
        if (uuar.shared) uuar.lock.unlock();
        if (hook_ != nullptr) hook_(at);
    }

    // A small WQE with an XRC segment, which the ring has already. Where takes_small().
    [[gnu::always_inline]] void ring_small(const SmallEntry& entry, std::uint16_t counter,
                                           void* queue) noexcept {
        begin(counter, queue);
        Uuar& uuar = *uuar_;
        std::byte* const at = uuar.address + uuar.offset;
        begin_register_stores();
        store<true>(entry, at);
        end_register_stores();
        uuar.offset ^= uuar.half_bytes;
        if (hook_ != nullptr) hook_(at);
    }

private:
    [[gnu::always_inline]] void begin(std::uint16_t counter, void* queue) noexcept {
        release_to_device(queue);
        order_memory_stores();
        store_record(record_, htobe32(counter));
    }

    __be32* record_;
    std::shared_ptr<Uuar> uuar_;
    std::uint32_t most_inline_ = 0, most_gathered_ = 0;
    Doorbell hook_ = doorbell_hook();
};

}  // namespace heddle::post::detail
