// SPDX-License-Identifier: BSD-2-Clause
// A ring in memory of this process, and what its tests write into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/shm/shm_ring.h"

namespace heddle::protocol::test {

inline constexpr ShmShape kSmallRing{kLeastShmSlots, kLeastShmArea};

// Memory of a ring, as ShmSegment makes it.
class RingMemory {
public:
    explicit RingMemory(const ShmShape& shape)
        : shape_(shape), room_(new(std::align_val_t{kAlign}) std::byte[shape.bytes()]{}) {
        new (room_.get()) ShmControl;
    }
    std::byte* at() const noexcept { return room_.get(); }
    ShmControl& control() const noexcept { return control_of(at()); }
    ShmSlot& slot(std::uint32_t number) const noexcept {
        return slots_of(at())[number & (shape_.slots - 1)];
    }

private:
    static constexpr std::size_t kAlign = 2 * kCacheLine;
    struct Free {
        void operator()(std::byte* room) const noexcept {
            ::operator delete[](room, std::align_val_t{kAlign});
        }
    };
    const ShmShape shape_;
    const std::unique_ptr<std::byte[], Free> room_;
};

// Writes a message. False: there is no room. `wakes`: publish() has said that the receiver sleeps.
inline bool write_message(ShmSender& ring, const Header& header,
                          std::span<const std::byte> payload = {},
                          std::optional<std::uint32_t> immediate = {}, bool* wakes = nullptr) {
    const std::size_t bytes = sizeof header + payload.size();
    std::byte* const to = ring.reserve(bytes);
    if (to == nullptr) return false;
    std::memcpy(to, &header, sizeof header);
    if (!payload.empty()) std::memcpy(to + sizeof header, payload.data(), payload.size());
    const bool sleeps = ring.publish(bytes, immediate.has_value(), immediate.value_or(0));
    if (wakes != nullptr) *wakes = sleeps;
    return true;
}

}  // namespace heddle::protocol::test
