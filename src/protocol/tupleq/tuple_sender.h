// SPDX-License-Identifier: BSD-2-Clause
// Messages to tuple queues: which tuples have one, what is under way there, what waits for credit,
// and how a queue is left without a message lost, doubled or out of order.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "memory/pool.h"
#include "protocol/common/slot_pool.h"
#include "protocol/core/core_services.h"
#include "protocol/core/request_pool.h"
#include "protocol/tupleq/tuple.h"
#include "protocol/tupleq/tuple_services.h"

namespace heddle::protocol {

class TupleSender;
struct TupleOut;

// A message that goes by the queue of its tuple.
struct TupleMessage final : CompletionHandler, TupleWork, PoolSlot<TupleMessage> {
    TupleSender* sender = nullptr;
    TupleOut* tuple = nullptr;
    SendRequest* request = nullptr;
    std::byte* buffer = nullptr;  // of the channel's pool, with a copy
    bool delivered = false, flushed = false;

    // On the queue of all messages; on one that may block.
    void done(int error, int device_error) override;
    void completed(const ibv_wc& wc) override;
};

// A tuple with a queue at the receiver, asked for or open.
struct TupleOut : PoolSlot<TupleOut> {
    enum class State : std::uint8_t {
        kAsked,      // its messages go on as before
        kBeginning,  // they wait until the receiver has been told; that waits for room
        kOpen,       // they go to the queue
        kClosing,    // what is under way comes to an end
        kDrained,    // the receiver is to tell how much has come
    };
    State state = State::kAsked;
    Peer* peer = nullptr;
    std::uint64_t tag = 0, mask = 0;  // tag: without ignored bits
    bool has_data = false;
    std::uint64_t data = 0;
    std::uint64_t receiver = 0;  // its number there
    std::uint32_t srqn = 0;
    const std::byte* credits = nullptr;          // written by the receiver
    std::uint32_t sent = 0, delivered = 0;       // messages, free-running
    std::uint32_t outstanding = 0;               // of those, at the device
    std::deque<TupleMessage*> under_way, waits;  // in order
    BlockingQueue* blocking = nullptr;  // that has those under way; nullptr: the common one
    std::uint32_t broken = 0;           // number of the one that had
    OutstandingReply reply;             // kAsked, kDrained
    OutstandingReply credit_to_come;    // while it is among those that wait for something
    // Among the last messages: how many found no credit, and how many could have been eager.
    std::uint32_t looked_at = 0, late = 0, small = 0;
    int failed = 0;
};

class TupleSender {
public:
    // All are kept.
    TupleSender(CoreServices& core, RequestPool& requests, TupleServices& device,
                TupleCounts& counts);
    ~TupleSender();
    TupleSender(const TupleSender&) = delete;
    TupleSender& operator=(const TupleSender&) = delete;

    // The tuple that a message belongs to, if it has a queue, which it then has to take.
    TupleOut* find(const Peer& peer, std::uint64_t tag) noexcept;
    // It is sent by the queue, or waits; takes the request.
    void send(TupleOut& tuple, SendRequest& request);
    static bool is_full(const TupleOut& tuple) noexcept { return tuple.waits.size() >= kMostWait; }
    // A message went otherwise: it may be time for a queue.
    void note(Peer& peer, const SendArguments& arguments);

    bool begin(std::uint64_t tuple);  // false: no room
    void got_answer(Peer& peer, const TupleAnswerBody& answer);
    void got_revoke(Peer& peer, const TupleRevokeBody& revoke);
    void got_closed(Peer& peer, const TupleClosedBody& closed);
    void done(TupleMessage& message, bool delivered);
    void fail(Peer& peer, int error);
    // The bits of tags by which the peer's tuples are told apart.
    std::uint64_t mask_of(const Peer& peer) const noexcept;

    // Those that wait: for credit, for room, for a queue that may block.
    void progress();
    bool waits() const noexcept { return !waiting_.empty(); }
    std::size_t count() const noexcept { return by_key_.size(); }
    std::size_t held() const noexcept;  // messages that wait for credit, or a queue
    // The endpoint is about to be closed: all goes by the other way. True: it has.
    bool close_all();

private:
    static constexpr std::size_t kMostWait = 65536;
    struct OfPeer {
        std::uint32_t messages = 0;  // that were to go by queues
        std::uint32_t tuples = 0;    // with a queue there, or asked for
        // Bits of tags that its receives ignore, by which its tuples are told apart; and as it said
        // last.
        std::uint64_t mask = 0, new_mask = 0;
    };
    OfPeer& of(const Peer& peer);

    void open(Peer& peer, const SendArguments& arguments, const TupleKey& key);
    void advance(TupleOut& tuple);
    enum class Way : std::uint8_t { kPosted, kWait, kClose };
    Way post(TupleOut& tuple, TupleMessage& message, bool has_credit);
    void copy(TupleMessage& message) noexcept;
    void close(TupleOut& tuple, TupleReason reason);
    void look_if_drained(TupleOut& tuple);
    void end(TupleOut& tuple);
    void send_otherwise(TupleMessage& message);
    void finish(TupleMessage& message, int error);
    void list(TupleOut& tuple);
    static void unlist(TupleOut& tuple) noexcept;
    void leave_blocking(TupleOut& tuple) noexcept;
    std::optional<TupleCredit> credit(const TupleOut& tuple, std::uint32_t number) const noexcept;

    CoreServices& core_;
    RequestPool& requests_;
    TupleServices& device_;
    TupleCounts& counts_;
    std::optional<memory::Pool> credits_;
    SlotPool<TupleOut> tuples_;
    SlotPool<TupleMessage> messages_;
    std::vector<OfPeer> by_peer_;  // by Peer::number; as many as were asked for
    std::unordered_map<TupleKey, TupleOut*, TupleKeyHash> by_key_;
    std::vector<TupleOut*> waiting_;
    TupleFilter filter_;
    std::uint32_t copies_ = 0;  // buffers of the channel's that messages here have
};

}  // namespace heddle::protocol
