// SPDX-License-Identifier: BSD-2-Clause
// What an endpoint keeps of operations that do not end where they are asked for. They live in pools
// of the endpoint (slot_pool.h), whose numbers for them travel in messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "heddle/detail/assert.h"
#include "protocol/common/slot_pool.h"
#include "protocol/core/peer.h"
#include "protocol/core/pending_op.h"
#include "protocol/reuse/reuse.h"
#include "protocol/tag/matcher.h"
#include "protocol/transport/bulk.h"
#include "protocol/tupleq/tuple_device.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

class EndpointImpl;
struct Receive;
struct TupleIn;
struct TupleOut;

// An eager message, as send.cc takes it apart.
struct Outgoing {
    Header header;
    const iovec* iov;
    std::size_t count, bytes;
    std::uint64_t data;
    bool has_data;
};

// What the application is told at the end of an operation.
struct Report {
    std::uint8_t what = 0;  // WrContext::What
    bool read = false;      // an RMA read, or an atomic that fetches
    bool is_done = false;   // it was told before the message was sent
    void* context = nullptr;
    Counter* counter = nullptr;
};

// Where the values go that an atomic fetches.
struct AtomicResults {
    std::array<iovec, kMaxSegments> iov{};
    std::size_t count = 0;
};

// How a request goes by the queue of its tuple (kTuple), or went.
struct TupleSend {
    TupleOut* tuple = nullptr;
    bool later = false;  // it was to go by its tuple's queue, when so much had been sent:
    std::uint64_t place = 0;
    std::uint32_t order = 0;
    std::byte* buffer = nullptr;  // of the channel's pool, with a copy
    bool delivered = false, flushed = false;
};

// An operation of the application that takes more than one WR, or waits.
struct SendRequest final : PendingOp, CompletionHandler, TupleWork, PoolSlot<SendRequest> {
    enum class Step : std::uint8_t {
        kMessage,  // not yet sent: its form is chosen when it goes
        kRts,      // RTS is to be sent
        kAnswer,   // a CTS, FIN or atomic reply is to come
        kBulk,     // bytes are moving
        kFin,      // its end is being told
        kTuple,    // it waits for its tuple's queue, or has been posted to it
    };
    EndpointImpl* endpoint = nullptr;
    Peer* peer = nullptr;
    Step step = Step::kMessage;
    std::uint64_t flags = 0;  // of the operation
    Report report;
    std::uint64_t tag = 0, data = 0;
    std::size_t bytes = 0;
    std::array<iovec, kMaxSegments> iov{};
    std::array<void*, kMaxSegments> descriptors{};
    std::size_t iov_count = 0;
    std::vector<std::byte> copy;  // what was injected; operands of an atomic
    Bulk bulk;
    OutstandingReply reply;  // kAnswer
    AtomicResults results;
    std::uint64_t receive = 0;  // RPUT: the receiver's number
    TupleSend by_tuple;

    bool try_post() override;
    void fail(int error) override;
    bool is_sequenced() const noexcept override;
    void done(int error, int device_error) override;
    void completed(const ibv_wc& wc) override;
};

// An operation of one work that moves small data from, or to, where the application has it; or that
// reads into a buffer of ours, to be copied.
struct ZcopyRequest final : CompletionHandler, PoolSlot<ZcopyRequest> {
    EndpointImpl* endpoint = nullptr;
    Reuse::Buffer* reused = nullptr;
    std::byte* copy_from = nullptr;  // of the channel's pool
    void* copy_to = nullptr;
    std::size_t bytes = 0;
    std::uint8_t what = 0;
    bool read = false;
    void* context = nullptr;
    Counter* counter = nullptr;

    void done(int error, int device_error) override;
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
