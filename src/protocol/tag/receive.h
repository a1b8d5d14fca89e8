// SPDX-License-Identifier: BSD-2-Clause
// Receives that are posted, and messages that no receive has taken yet.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "common/copy.h"
#include "heddle/detail/assert.h"
#include "protocol/common/message_info.h"
#include "protocol/common/slot_pool.h"
#include "protocol/rndv/rendezvous.h"
#include "protocol/tag/matcher.h"

namespace heddle::protocol {

// What of a Receive is as new each time it is posted.
struct ReceiveFields {
    void* context = nullptr;
    std::uint64_t flags = 0;  // FI_TAGGED, FI_MULTI_RECV, FI_COMPLETION
    std::size_t iov_count = 0;
    std::size_t bytes = 0;  // room
    // The same, of one that the fast path is for; otherwise less than nothing.
    std::int64_t plain_room = -1;
    bool has_plain_room(std::size_t wanted) const noexcept {
        return static_cast<std::int64_t>(wanted) <= plain_room;
    }

    // FI_MULTI_RECV: how much is used, and how many messages are on their way into it.
    std::size_t used = 0;
    std::uint32_t parts = 0;
    bool exhausted = false;
    Receive* parent = nullptr;  // of a message on its way
};

// A posted receive, or a message on its way into one.
struct Receive final : PostedReceive, ReceiveFields, PoolSlot<Receive> {
    std::array<iovec, kMaxSegments> iov{};  // as many as iov_count says

    std::span<const iovec> buffers() const noexcept { return {iov.data(), iov_count}; }
    void* first_buffer() const noexcept { return iov_count != 0 ? iov[0].iov_base : nullptr; }
    // Called by SlotPool. `iov` has no meaning before iov_count says so, and resetting it would
    // cost each message.
    void renew() noexcept {
        HEDDLE_ASSERT(!queued);
        static_cast<PostedReceive&>(*this) = {};
        static_cast<ReceiveFields&>(*this) = {};
    }
};

// A message that came before its receive: an eager one with its payload, or one that is announced.
struct Unexpected final : UnexpectedMessage {
    static constexpr std::size_t kSmallPayload = kFreeBytes;  // no credit bounds their number

    Peer* peer = nullptr;
    MessageInfo info;
    bool is_announced = false;
    Unexpected* next_free = nullptr;  // of UnexpectedMessages

    // The eager one's bytes. A small payload is kept here, since most are.
    std::span<const std::byte> payload() const noexcept {
        return {large_ != nullptr ? large_.get() : small_.data(), payload_bytes_};
    }
    void set_payload(std::span<const std::byte> payload) {
        payload_bytes_ = payload.size();
        std::byte* to = small_.data();
        if (payload.size() > kSmallPayload) {
            large_.reset(new std::byte[payload.size()]);
            to = large_.get();
        }
        if (!payload.empty()) common::copy_payload(to, payload.data(), payload.size());
    }
    // The same with memory that has it already.
    void set_payload(std::unique_ptr<std::byte[]> payload, std::size_t bytes) noexcept {
        payload_bytes_ = bytes;
        large_ = std::move(payload);
    }
    void drop_payload() noexcept {
        payload_bytes_ = 0;
        if (large_ != nullptr) large_.reset();
    }

    // Those that are announced have these.
    AnnouncedMessage announced;
    std::size_t segment_count = 0;
    std::array<Segment, kMaxSegments> segments;  // as many as segment_count says

    std::size_t bytes() const noexcept { return is_announced ? announced.bytes : payload_bytes_; }
    std::size_t memory() const noexcept { return sizeof *this + payload_bytes_; }

private:
    std::size_t payload_bytes_ = 0;
    std::unique_ptr<std::byte[]> large_;
    std::array<std::byte, kSmallPayload> small_;  // without a meaning beyond payload_bytes_
};

}  // namespace heddle::protocol
