// SPDX-License-Identifier: BSD-2-Clause
// Messages whose payload stays with the sender until there is a receive for it. RGET: the receiver
// reads it (RTS, RDMA read, FIN). RPUT: the receiver says where to, the sender writes it (RTS, CTS,
// RDMA write, FIN). Both from and to where the application has it: nothing is copied. Between peers
// on one host the receiver's processor may read it (by_process.cc): then nothing is registered
// either. RGET may use several ports of the hosts (stripes.h). Threads: the endpoint's.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "protocol/common/message_info.h"
#include "protocol/common/slot_pool.h"
#include "protocol/core/core_services.h"
#include "protocol/core/pending_op.h"
#include "protocol/core/request_pool.h"
#include "protocol/rndv/stripes.h"
#include "protocol/transport/bulk.h"

namespace heddle::protocol {

class RendezvousProtocol;
struct Receive;  // the user's

// A message, as its RTS tells.
struct AnnouncedMessage {
    MessageInfo info;
    std::uint64_t operation = 0;  // the sender's number
    bool by_put = false;          // RPUT
    std::size_t bytes = 0;
    bool by_process = false;     // the receiver's processor reads it
    bool has_rail_keys = false;  // it may be read over several rails
};

// The part of the endpoint that has the receives.
class RendezvousUser {
public:
    // The message is in its receive, `taken` bytes of it; or it failed.
    virtual void on_fetched(Receive& receive, Peer& peer, const AnnouncedMessage& message,
                            std::size_t taken, int error, int device_error) = 0;

protected:
    ~RendezvousUser() = default;
};

// What the part that has the receives asks for.
class MessageFetcher {
public:
    // A message that was announced goes into that receive, which has these buffers and `room`
    // bytes. The user learns its end, maybe before this returns.
    virtual void fetch(Receive& receive, std::span<const iovec> buffers, std::size_t room,
                       Peer& peer, const AnnouncedMessage& message,
                       std::span<const Segment> segments) = 0;
    // Tells the sender that its message is not wanted (error is 0), or cannot be had.
    virtual void refuse(Peer& peer, std::uint64_t operation, int error) = 0;

protected:
    ~MessageFetcher() = default;
};

// A message on its way into a receive.
struct FetchedMessageFields {
    RendezvousProtocol* rendezvous = nullptr;
    Receive* receive = nullptr;
    Peer* peer = nullptr;
    AnnouncedMessage message;
    std::size_t taken = 0;             // bytes that the receive has room for
    std::size_t read = 0;              // of them; by_process
    bool started = false;              // the CTS is out, or reads are
    bool is_moving = false;            // the connection of the peer reads a part
    int error = 0, device_error = 0;   // of a part
    std::uint32_t stripes_open = 0;    // at other rails
    std::uint32_t stripes_failed = 0;  // of `stripes`, those to be read again: a bit for each
};
struct FetchedMessage final : PendingOp,
                              FetchedMessageFields,
                              PoolSlot<FetchedMessage>,
                              StripeOwner {
    Bulk bulk;
    Stripes stripes;
    OutstandingReply reply;  // RPUT: the FIN, once the CTS is out

    // Called by SlotPool.
    void renew() noexcept {
        static_cast<FetchedMessageFields&>(*this) = {};
        bulk.renew();
        reply.reset();
    }
    bool try_post() override;
    void fail(int error) override;
    void on_stripe(Stripe& stripe, int error) override;
};

class RendezvousProtocol final : public RequestOwner, public MessageFetcher {
public:
    // Keeps references to all arguments.
    RendezvousProtocol(CoreServices& core, RequestPool& requests, RendezvousUser& user) noexcept
        : core_(core), requests_(requests), user_(user) {}
    RendezvousProtocol(const RendezvousProtocol&) = delete;
    RendezvousProtocol& operator=(const RendezvousProtocol&) = delete;

    // There are several rails. Kept.
    void set_stripes(StripeReader& stripes) noexcept { stripes_ = &stripes; }

    // Sends messages whose memory cannot be registered. Kept; without one they fail.
    void set_copier(MessageCopier& copier) noexcept { copier_ = &copier; }

    // A message out: registers its memory and posts the RTS.
    bool start(SendRequest& request) override;
    void fetch(Receive& receive, std::span<const iovec> buffers, std::size_t room, Peer& peer,
               const AnnouncedMessage& message, std::span<const Segment> segments) override;
    void refuse(Peer& peer, std::uint64_t operation, int error) override;

    // kCts, kFin.
    void on_message(Peer& peer, const Message& message);
    // Messages that the peer was to write end, and those that are read from its process.
    void on_peer_failed(const Peer& peer, int error);

    // There are messages to read from other processes (by_process.cc).
    bool is_reading() const noexcept { return !reading_.empty(); }
    // Reads some of them, but no more than a part of a long one: progress goes on meanwhile.
    void read_from_processes();

private:
    friend struct FetchedMessage;
    bool send_rts(SendRequest& request);
    bool send_cts(FetchedMessage& fetched);
    bool read(FetchedMessage& fetched);
    void begin_reading(FetchedMessage& fetched, const Bulk::Range& range);
    void begin_stripes(FetchedMessage& fetched);
    void on_part_read(FetchedMessage& fetched, int error, int device_error);
    void go_on(FetchedMessage& fetched);
    bool prepare_memory(SendRequest& request);
    bool may_be_copied(const SendRequest& request) const noexcept;
    bool start_copied(SendRequest& request);
    void end(FetchedMessage& fetched, int error, int device_error);
    void on_cts(Peer& peer, const Message& message);
    void on_fin(Peer& peer, const FinBody& fin);
    void on_written(SendRequest& request, int error, int device_error);

    CoreServices& core_;
    RequestPool& requests_;
    RendezvousUser& user_;
    StripeReader* stripes_ = nullptr;
    MessageCopier* copier_ = nullptr;
    SlotPool<FetchedMessage> fetched_;
    std::deque<FetchedMessage*> reading_;  // from other processes
};

}  // namespace heddle::protocol
