// SPDX-License-Identifier: BSD-2-Clause
// Receives, messages that no receive has taken yet, and eager messages on their way out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "heddle/detail/assert.h"
#include "protocol/common/slot_pool.h"
#include "protocol/core/peer.h"
#include "protocol/core/pending_op.h"
#include "protocol/tag/matcher.h"
#include "protocol/transport/bulk.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

class EndpointImpl;
struct Receive;
struct TupleIn;

// An eager message, as send.cc takes it apart.
struct Outgoing {
    Header header;
    const iovec* iov;
    std::size_t count, bytes;
    std::uint64_t data;
    bool has_data;
};

// What of a Receive is as new each time it is posted.
struct ReceiveFields {
    EndpointImpl* endpoint = nullptr;
    void* context = nullptr;
    std::uint64_t flags = 0;  // FI_TAGGED, FI_MULTI_RECV, FI_COMPLETION
    std::size_t iov_count = 0;
    std::size_t bytes = 0;  // room
    // The same, of one that deliver_whole() is for; otherwise less than nothing.
    std::int64_t plain_room = -1;
    bool has_plain_room(std::size_t wanted) const noexcept {
        return static_cast<std::int64_t>(wanted) <= plain_room;
    }

    // FI_MULTI_RECV: how much is used, and how many messages are on their way into it.
    std::size_t used = 0;
    std::uint32_t parts = 0;
    bool exhausted = false;
    Receive* parent = nullptr;  // of a message on its way

    // of the message, by rendezvous
    Peer* peer = nullptr;
    std::uint64_t message_tag = 0, message_data = 0, operation = 0;
    bool has_data = false, by_put = false;
    bool started = false;  // the CTS is out, or reads are
    std::size_t message_bytes = 0, taken = 0;
    TupleIn* tuple = nullptr;  // where it is posted instead of being matched here
    bool tuple_cancelled = false;
};

// A posted receive, or a message on its way into one.
struct Receive final : PostedReceive, ReceiveFields, PendingOp, PoolSlot<Receive> {
    std::array<iovec, kMaxSegments> iov{};  // as many as iov_count says
    Bulk bulk;                              // between begin_rendezvous() and its end
    OutstandingReply reply;                 // RPUT: the FIN, once the CTS is out

    // Called by SlotPool. The other fields have no meaning before these say so, and resetting them
    // would cost each message.
    void renew() noexcept {
        HEDDLE_ASSERT(!queued && bulk.local.count == 0);
        HEDDLE_DEBUG_ASSERT(!reply.is_open());
        static_cast<PostedReceive&>(*this) = {};
        static_cast<ReceiveFields&>(*this) = {};
    }
    bool try_post() override;
    void fail(int error) override;
};

struct Unexpected final : UnexpectedMessage {
    Peer* peer = nullptr;
    std::uint64_t data = 0;
    bool has_data = false, rendezvous = false, by_put = false;
    std::size_t bytes = 0;
    std::vector<std::byte> payload;
    std::size_t memory() const noexcept { return sizeof *this + payload.size(); }
    std::uint64_t operation = 0;
    std::size_t segment_count = 0;
    std::array<Segment, kMaxSegments> segments{};
};

}  // namespace heddle::protocol
