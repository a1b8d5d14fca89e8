// SPDX-License-Identifier: BSD-2-Clause
// The memory of a ring by which one endpoint sends messages to another on the same host: what lies
// where. shm/shm_ring.h says who writes what, and in which order.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace heddle::protocol {

inline constexpr std::size_t kCacheLine = 64;

// Limits of the rings that a peer may offer.
inline constexpr std::uint32_t kLeastShmSlots = 16, kMostShmSlots = 4096, kLeastShmArea = 4 << 10,
                               kMostShmArea = 64 << 20;

// How large a ring is.
struct ShmShape {
    std::uint32_t slots = 0;       // messages at once
    std::uint32_t area_bytes = 0;  // for messages that do not fit into a slot

    bool is_possible() const noexcept {
        return std::has_single_bit(slots) && slots >= kLeastShmSlots && slots <= kMostShmSlots &&
               std::has_single_bit(area_bytes) && area_bytes >= kLeastShmArea &&
               area_bytes <= kMostShmArea;
    }
    // The longest message. A ring that is empty has room for it wherever the last one ended.
    std::size_t most_message() const noexcept { return area_bytes / 4; }
    // Where a message of so many bytes of the area begins if the one before has ended there.
    std::uint32_t begin_of(std::uint32_t at, std::uint32_t bytes) const noexcept {
        const std::uint32_t offset = at & (area_bytes - 1);
        return offset + bytes <= area_bytes ? at : at + area_bytes - offset;
    }
    std::size_t bytes() const noexcept;  // of the whole
    bool operator==(const ShmShape&) const = default;
};

// One message, or where one is. Two cache lines, as processors fetch them in pairs: messages of up
// to 32 bytes take the first alone, and the request for a rendezvous fits into both.
struct alignas(2 * kCacheLine) ShmSlot {
    static constexpr std::uint32_t kHasImmediate = std::uint32_t{1} << 31;
    static constexpr std::size_t kInside = 112;  // longer messages lie in the area

    std::atomic<std::uint64_t> mark;  // bytes and kHasImmediate; above them the round, from 1
    std::uint32_t immediate;          // remote CQ data
    std::uint32_t reserved;
    std::byte inside[kInside];
};
static_assert(sizeof(ShmSlot) == 2 * kCacheLine);

// What the memory begins with. Each side's words have cache lines of their own.
struct ShmControl {
    static constexpr std::uint32_t kMagic = 0x4d48'5348;  // "HSHM"
    static constexpr std::uint32_t kVersion = 1;
    enum Answer : std::uint32_t { kNone, kAccepted, kRefused };

    // The sender writes this before it opens the ring.
    struct alignas(kCacheLine) Constants {
        std::uint32_t magic = kMagic;
        std::uint32_t version = kVersion;
        std::uint64_t nonce = 0;
        ShmShape shape;
        // 1: the sender's requests have ended. What lies at their addresses is no message any more.
        std::atomic<std::uint32_t> is_closed{0};
    } constants;
    // The receiver writes these rarely, so that the sender can look at them for each message. What
    // it says of itself comes before its answer.
    struct alignas(kCacheLine) State {
        std::atomic<std::uint32_t> armed{0};  // the receiver sleeps, or is about to
        std::atomic<std::uint32_t> answer{kNone};
        std::atomic<std::uint32_t> reads{0};   // 1: it can read the sender's memory
        std::atomic<std::uint32_t> fences{0};  // 1: it cannot make the sender's barriers
    } state;
    struct alignas(2 * kCacheLine) Progress {
        std::atomic<std::uint32_t> taken{0};  // by the receiver: messages, free-running
    } progress;
};
static_assert(sizeof(ShmControl) == 4 * kCacheLine);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                  std::atomic<std::uint32_t>::is_always_lock_free,
              "two processes share them");

inline std::size_t ShmShape::bytes() const noexcept {
    return sizeof(ShmControl) + std::size_t{slots} * sizeof(ShmSlot) + area_bytes;
}

inline ShmControl& control_of(std::byte* memory) noexcept {
    return *reinterpret_cast<ShmControl*>(memory);
}
inline ShmSlot* slots_of(std::byte* memory) noexcept {
    return reinterpret_cast<ShmSlot*>(memory + sizeof(ShmControl));
}
inline std::byte* area_of(std::byte* memory, const ShmShape& shape) noexcept {
    return reinterpret_cast<std::byte*>(slots_of(memory) + shape.slots);
}
// The area is given out in whole cache lines.
inline std::uint32_t in_lines(std::size_t bytes) noexcept {
    return static_cast<std::uint32_t>((bytes + kCacheLine - 1) & ~(kCacheLine - 1));
}

}  // namespace heddle::protocol
