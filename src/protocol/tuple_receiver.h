// SPDX-License-Identifier: BSD-2-Clause
// Receives in tuple queues: which tuples have one, what is posted there, and how it comes back to
// its place among the other receives when the queue ends.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "protocol/endpoint_body.h"
#include "protocol/tuple.h"
#include "protocol/tuple_device.h"

namespace heddle::protocol {

struct TupleIn {
    enum class State : std::uint8_t {
        kOffered,  // its messages still come as before
        kOpen,
        kRevoked,  // the sender has been told, and will answer that nothing is under way
        kDrained,  // it has; completions may have yet to come
    };
    std::uint32_t index = 0, generation = 0;
    bool in_use = false;
    TupleIn* next_free = nullptr;

    State state = State::kOpen;
    Peer* peer = nullptr;
    std::uint64_t tag = 0;     // without ignored bits
    std::uint64_t sender = 0;  // its number there
    std::uint64_t credits = 0;
    std::uint32_t credits_key = 0;
    bool has_data = false;
    std::uint64_t data = 0;
    std::unique_ptr<TupleQueue> queue;
    std::deque<Receive*> returned, posted, pending;  // in order: failed; at the device; beyond it
    std::uint32_t posts = 0, credited = 0, received = 0;  // free-running
    std::uint32_t delivered = 0;                          // at least, says the sender
    std::uint64_t used_at = 0;
    bool listed = false;  // among those that have something to be done
};

class TupleReceiver final : public TupleReceives {
public:
    TupleReceiver(RdmEndpoint::Body& body, TupleDevice& device);
    ~TupleReceiver() override;
    TupleReceiver(const TupleReceiver&) = delete;
    TupleReceiver& operator=(const TupleReceiver&) = delete;

    bool empty() const noexcept { return by_key_.empty(); }
    // A receive that is about to be posted: true, it was, to a tuple's queue. One that could take
    // messages of several tuples ends their queues.
    bool take(Receive& receive);
    // Somebody asks for messages that may wait at a queue.
    void probed(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore);
    bool cancel(void* context);
    void received(std::uint64_t receive, const ibv_wc& wc) override;

    void got_open(Peer& peer, std::uint64_t tag, const TupleOpenBody& open);
    void got_begin(Peer& peer, const TupleBeginBody& begin);
    void got_drained(Peer& peer, const TupleDrainedBody& drained);
    void fail(Peer& peer);

    void progress();  // of what could not be done at once
    // The endpoint is about to be closed. True: nobody sends to a queue here any more.
    bool close_all();

private:
    TupleReason why_not(const Peer& peer, std::uint64_t tag, std::uint64_t mask);
    void revoke_matching(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore);
    void revoke(TupleIn& tuple, TupleReason reason);
    void post(TupleIn& tuple, Receive& receive);
    bool to_device(TupleIn& tuple, Receive& receive);
    void write_credits(TupleIn& tuple);
    void look_if_complete(TupleIn& tuple);
    void end(TupleIn& tuple);
    void cancelled(Receive& receive);
    void list(TupleIn& tuple);

    RdmEndpoint::Body& body_;
    TupleDevice& device_;
    std::uint64_t mask_ = 0;  // of all there are
    Numbered<TupleIn> tuples_;
    std::unordered_map<TupleKey, TupleIn*, TupleKeyHash> by_key_;
    std::vector<TupleIn*> listed_;
    std::uint64_t clock_ = 0;
};

}  // namespace heddle::protocol
