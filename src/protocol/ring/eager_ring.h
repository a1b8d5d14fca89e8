// SPDX-License-Identifier: BSD-2-Clause
// The fast path of eager messages (MVAPICH's "RDMA fast path"; section 2.2 of "Exploiting
// application buffer reuse"): a ring of buffers at the receiver that one peer writes into by RDMA.
// No receive is consumed and no completion raised: the receiver looks at the end of the buffer that
// is next.
//
// A message lies at the end of its buffer: header, wide data, payload, tail. It is no longer than
// the path MTU: within one packet the last bytes are stored last, but packets may be placed in any
// order (ibv_query_qp_data_in_order(3); adaptive routing). The tail is the last eight of these
// bytes, and where it will be is known before the message's length is. It bears the number of times
// that the ring went round, so nothing has to be cleared.
//
// The receiver decides who has a ring (rings.cc). Messages keep their sequence numbers: one by the
// ring and one by a SEND are dealt with in the order in which they were sent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "memory/pool.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

// Buffers here, that a peer writes into.
class ReceiveRing {
public:
    enum class Next : std::uint8_t { kNothing, kMessage, kBroken };
    struct Found {
        std::span<const std::byte> bytes;
        std::uint32_t immediate = 0;
        bool has_immediate = false;
    };

    // slots: a power of two. Throws VerbsError.
    ReceiveRing(ibv_pd* pd, std::uint32_t slots, std::size_t message_bytes)
        : pool_(pd, message_bytes + sizeof(RingTail), slots, IBV_ACCESS_REMOTE_WRITE) {}

    RingBody offer() const noexcept {
        return {reinterpret_cast<std::uintptr_t>(pool_.at(0)), pool_.remote_key(), pool_.count(),
                static_cast<std::uint32_t>(pool_.bytes()), 0};
    }
    // The oldest message. Its bytes stay until pop().
    Next next(Found& found) const noexcept;
    void pop() noexcept { ++taken_; }

    // For the peer, half a ring at a time.
    bool has_news() const noexcept { return taken_ - acknowledged_ >= pool_.count() / 2; }
    RingTakenBody news() noexcept { return {acknowledged_ = taken_, 0}; }

    bool stopping = false;  // kRingStop is out
    bool broken = false;    // nothing is taken from it any more

private:
    memory::Pool pool_;
    std::uint32_t taken_ = 0, acknowledged_ = 0;  // free-running
};

// Buffers at a peer, that are written into here.
class SendRing {
public:
    explicit SendRing(const RingBody& ring) noexcept : at_(ring) {}

    bool takes(std::size_t bytes) const noexcept {
        return sent_ - taken_ != at_.slots && bytes + sizeof(RingTail) <= at_.slot_bytes;
    }
    // Where a message of so many bytes, its tail besides, is written to.
    std::uint64_t address(std::size_t bytes) const noexcept {
        const std::uint64_t end = (std::uint64_t{sent_ & (at_.slots - 1)} + 1) * at_.slot_bytes;
        return at_.address + end - bytes - sizeof(RingTail);
    }
    std::uint32_t key() const noexcept { return at_.key; }
    RingTail tail(std::size_t bytes) const noexcept {
        return {0, 0, static_cast<std::uint32_t>(bytes), sent_ / at_.slots + 1};
    }
    void count_sent() noexcept { ++sent_; }
    // False: more than were written.
    bool took(std::uint32_t taken) noexcept {
        if (taken - taken_ > sent_ - taken_) return false;
        taken_ = taken;
        return true;
    }

private:
    const RingBody at_;
    std::uint32_t sent_ = 0, taken_ = 0;  // free-running
};

inline ReceiveRing::Next ReceiveRing::next(Found& found) const noexcept {
    const std::byte* const end =
        pool_.at(taken_ & (pool_.count() - 1)) + pool_.bytes() - sizeof(RingTail);
    // Aligned: buffers are whole cache lines.
    const auto last = __atomic_load_n(
        reinterpret_cast<const std::uint64_t*>(end + offsetof(RingTail, bytes)), __ATOMIC_ACQUIRE);
    if (static_cast<std::uint32_t>(last >> 32) != taken_ / pool_.count() + 1) [[likely]]
        return Next::kNothing;
    const auto bytes = static_cast<std::uint32_t>(last);
    if (bytes < sizeof(Header) || bytes > pool_.bytes() - sizeof(RingTail)) return Next::kBroken;
    RingTail tail;
    std::memcpy(&tail, end, sizeof tail);
    found.bytes = {end - bytes, bytes};
    found.immediate = tail.immediate;
    found.has_immediate = tail.flags & RingTail::kImmediate;
    return Next::kMessage;
}

}  // namespace heddle::protocol
