// SPDX-License-Identifier: BSD-2-Clause
// Receives in tuple queues: which tuples have one, what is posted there, and how it comes back to
// its place among the other receives when the queue ends.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "protocol/common/slot_pool.h"
#include "protocol/core/core_services.h"
#include "protocol/tag/delivery.h"
#include "protocol/tag/receiver.h"
#include "protocol/tag/receives.h"
#include "protocol/transport/bulk.h"
#include "protocol/tupleq/tuple.h"
#include "protocol/tupleq/tuple_services.h"

namespace heddle::protocol {

struct TupleIn;

// A receive in a tuple's queue, or on its way there or back.
struct TupleReceive : PoolSlot<TupleReceive> {
    Receive* receive = nullptr;
    TupleIn* tuple = nullptr;
    LocalBuffers local;      // while it is at the device
    bool cancelled = false;  // it ends when the queue has let it go
};

struct TupleIn : PoolSlot<TupleIn> {
    enum class State : std::uint8_t {
        kOffered,  // its messages still come as before
        kOpen,
        kRevoked,  // the sender has been told, and will answer that nothing is under way
        kDrained,  // it has; completions may have yet to come
        kEnding,   // its queue is gone; what it had not taken comes otherwise
    };
    State state = State::kOpen;
    Peer* peer = nullptr;
    std::uint64_t tag = 0;     // without ignored bits
    std::uint64_t sender = 0;  // its number there
    std::uint64_t credits = 0;
    std::uint32_t credits_key = 0;
    bool has_data = false;
    std::uint64_t data = 0;
    std::unique_ptr<TupleQueue> queue;
    std::deque<TupleReceive*> returned, posted, pending;  // in order: failed; at the device; beyond
    std::uint32_t posts = 0, credited = 0, received = 0;  // free-running
    std::uint32_t delivered = 0;                          // at least, says the sender
    std::uint64_t used_at = 0;
    // The target QP that its sender's last message came by, and Connector::removals() then.
    std::uint32_t from_qpn = 0;
    std::uint64_t from_removals = 0;
    // Its sender's QP whose last messages were flushed, if they were; TUPLE_DRAINED names it.
    std::uint32_t flushed_qpn = 0;
    bool listed = false;     // among those that have something to be done
    OutstandingReply reply;  // kRevoked, kEnding
};

class TupleReceiver final : public TupleReceives, public ReceiveInterceptor {
public:
    // All are kept.
    TupleReceiver(CoreServices& core, Receives& receives, Delivery& delivery, TupleServices& device,
                  TupleCounts& counts);
    ~TupleReceiver() override;
    TupleReceiver(const TupleReceiver&) = delete;
    TupleReceiver& operator=(const TupleReceiver&) = delete;

    bool empty() const noexcept { return by_key_.empty(); }
    std::size_t count() const noexcept { return by_key_.size(); }
    // A receive that could take messages of several tuples ends their queues; so does a probe.
    bool take(Receive& receive) override;
    bool hides(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore) override;
    void forget(Receive& receive) override;
    bool cancel(void* context) override;
    void received(std::uint64_t receive, const ibv_wc& wc) override;

    void got_open(Peer& peer, std::uint64_t tag, const TupleOpenBody& open);
    void got_begin(Peer& peer, const TupleBeginBody& begin);
    void got_end(Peer& peer, const TupleBeginBody& ended);
    void got_drained(Peer& peer, const TupleDrainedBody& drained);
    void fail(Peer& peer);

    void progress();  // of what could not be done at once
    // The endpoint is about to be closed. True: nobody sends to a queue here any more.
    bool close_all();

private:
    TupleReason why_not(const Peer& peer, std::uint64_t tag, std::uint64_t mask);
    void forget_who_left();
    std::unique_ptr<TupleQueue> make_queue(TupleReason& declined);
    void revoke_unused();
    // True: there are some.
    bool revoke_matching(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore);
    bool could_take(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore,
                    const TupleIn& tuple) const noexcept;
    bool is_exact(const Receive& receive) const noexcept;
    bool is_from_sender(TupleIn& tuple, std::uint32_t qpn) const;
    void park(Receive& receive);
    void park_queued(const TupleIn& tuple);
    void unpark();
    void erase(TupleIn& tuple);
    void take_back(TupleIn& tuple);
    void revoke(TupleIn& tuple, TupleReason reason);
    void post(TupleIn& tuple, Receive& receive);
    bool to_device(TupleIn& tuple, TupleReceive& its);
    Receive& let_go(TupleReceive& its) noexcept;
    void write_credits(TupleIn& tuple);
    void look_if_complete(TupleIn& tuple);
    void list(TupleIn& tuple);

    CoreServices& core_;
    Receives& receives_;
    Delivery& delivery_;
    TupleServices& device_;
    TupleCounts& counts_;
    SlotPool<TupleReceive> posts_;
    std::uint64_t mask_ = 0;  // of all there are
    SlotPool<TupleIn> tuples_;
    std::unordered_map<TupleKey, TupleIn*, TupleKeyHash> by_key_;
    std::vector<TupleIn*> listed_;
    std::deque<Receive*> parked_;  // in order of posting
    bool unparking_ = false;
    std::uint64_t clock_ = 0;
};

}  // namespace heddle::protocol
