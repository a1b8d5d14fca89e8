// SPDX-License-Identifier: BSD-2-Clause
// Another endpoint, as this one knows it, and the replies that it owes.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "heddle/detail/assert.h"
#include "protocol/common/address_vector.h"
#include "protocol/common/endpoint_address.h"
#include "protocol/core/pending_op.h"
#include "protocol/transport/channel.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

class ProcessMemory;
class ShmSender;

// Sequence numbers of the messages from a peer.
struct IncomingSequence {
    // How the next message begins if it is an eager one without a tag. Nothing begins so, at first.
    std::uint64_t expected = ~std::uint64_t{0};
    std::uint16_t expected_sequence() const noexcept {
        return static_cast<std::uint16_t>(expected / kSequenceOfStart);
    }
    void count_received() noexcept { expected += kSequenceOfStart; }
    // How many sequenced messages of the peer have been dealt with. It has to be asked for more
    // often than 65536 of them come.
    std::uint64_t number_received() noexcept {
        received_ += static_cast<std::uint16_t>(expected_sequence() - received_at_);
        received_at_ = expected_sequence();
        return received_;
    }

private:
    std::uint64_t received_ = 0;
    std::uint16_t received_at_ = 0;
};

// Sequence numbers of the messages to a peer.
struct OutgoingSequence {
    // The part of the next header that messages of all kinds share, for an eager one without a tag.
    std::uint64_t next_start = 0;
    std::uint64_t sent = 0;  // sequenced messages, but those of post_small()
    std::uint16_t send_sequence() const noexcept {
        return static_cast<std::uint16_t>(next_start / kSequenceOfStart);
    }
    void count_sent() noexcept { next_start += kSequenceOfStart; }
    void count_sequenced() noexcept {
        count_sent();
        ++sent;
    }
};

// Another endpoint, as this one knows it.
struct Peer {
    EndpointAddress name;
    std::uint32_t number = 0;
    std::uint64_t address = AddressVector::kNone;  // the lowest in the address vector
    Connection* connection = nullptr;              // once something was sent to it
    Connection* open = nullptr;                    // the same, while it is ready and nothing waits
    Connection* small = nullptr;                   // the same, while send_small() may use it
    ShmSender* shm = nullptr;        // messages to it lie in shared memory (local/local_peers.h)
    ShmSender* shm_small = nullptr;  // the same, while send_small() may use it
    PendingList waiting;             // empty, mostly, and then takes no memory of its own
    std::uint64_t waiting_sequenced = 0;  // of those that wait, so many will be numbered
    IncomingSequence incoming;
    OutgoingSequence outgoing;
    std::uint64_t srq = 0;                    // name.srqn, as an entry has it
    std::uint32_t outstanding_replies = 0;    // see OutstandingReply
    bool has_left = false;                    // so it seemed at the last tick
    int failed = 0;                           // errno: nothing can be sent any more
    std::uint16_t sequence_at_keepalive = 0;  // the same, when its turn of keep_alive() was
    // RDMA writes were posted since the last sequenced SEND. So the next sequenced message goes by
    // SEND, behind them, and those in shared memory wait for it (FI_ORDER_SAW).
    bool has_writes = false;
    bool writes_to_us = false;        // by shared memory, or it was offered that
    ProcessMemory* memory = nullptr;  // of its process, if it may be read
    // Ways of small messages besides plain SENDs. While there are some, Peer::small is not set.
    std::uint32_t other_ways = 0;
};

// One reply that a peer owes, or credit that it has to give. While there is one, the endpoint
// probes the peer (liveness.cc), since nothing at this device would fail if the peer died.
class OutstandingReply {
public:
    OutstandingReply() noexcept = default;
    explicit OutstandingReply(Peer& peer) noexcept : peer_(&peer) { ++peer.outstanding_replies; }
    OutstandingReply(OutstandingReply&& other) noexcept
        : peer_(std::exchange(other.peer_, nullptr)) {}
    OutstandingReply& operator=(OutstandingReply&& other) noexcept {
        std::swap(peer_, other.peer_);
        other.reset();
        return *this;
    }
    ~OutstandingReply() { reset(); }
    // It has come, or will not come.
    void reset() noexcept {
        if (peer_ == nullptr) return;
        HEDDLE_ASSERT(peer_->outstanding_replies != 0, "a reply was counted twice");
        --std::exchange(peer_, nullptr)->outstanding_replies;
    }
    bool is_open() const noexcept { return peer_ != nullptr; }

private:
    Peer* peer_ = nullptr;
};

}  // namespace heddle::protocol
