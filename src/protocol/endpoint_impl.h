// SPDX-License-Identifier: BSD-2-Clause
// The state of an RdmEndpoint and how its parts work together: send.cc (messages out), receive.cc
// (messages in, matching), rings.cc (eager messages that peers write), rendezvous.cc, rma.cc,
// atomic.cc, control.cc (small messages of the protocol's own, what waits for room),
// rdm_endpoint.cc (life, progress), liveness.cc (which peers are still there).
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "heddle/detail/assert.h"
#include "protocol/common/slot_pool.h"
#include "protocol/rdm_endpoint.h"
#include "protocol/reuse/reuse.h"
#include "protocol/ring/eager_ring.h"
#include "protocol/tag/matcher.h"
#include "protocol/transport/bulk.h"
#include "protocol/transport/process.h"
#include "protocol/tupleq/tuple.h"
#include "protocol/tupleq/tuple_device.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

struct Peer;
struct Receive;
struct TupleIn;
struct TupleOut;
struct Tuples;

// What could not be posted yet, in the order it was asked for: there is no connection, or no room.
class Waiting {
public:
    virtual ~Waiting() = default;
    // False: still no room. After true it may be gone.
    virtual bool go() = 0;
    virtual void fail(int error) = 0;  // after that it may be gone
    // Will it count among the peer's numbered messages?
    virtual bool is_numbered() const noexcept { return false; }
};

// Another endpoint, as this one knows it.
struct Peer {
    Name name;
    std::uint32_t number = 0;
    std::uint64_t address = AddressVector::kNone;  // the lowest in the address vector
    Connection* connection = nullptr;              // once something was sent to it
    Connection* open = nullptr;                    // the same, while it is ready and nothing waits
    Connection* small = nullptr;                   // the same, while send_small() may use it
    std::list<Waiting*> waiting;  // empty, mostly, and then takes no memory of its own
    std::uint64_t to_number = 0;  // of those that wait, so many will be numbered
    // How its next message begins, were it an eager one without a tag. Nothing begins so, at first.
    std::uint64_t expected = ~std::uint64_t{0};
    std::uint16_t expected_sequence() const noexcept {
        return static_cast<std::uint16_t>(expected / kSequenceOfStart);
    }
    void count_received() noexcept { expected += kSequenceOfStart; }
    // How many numbered messages of it have been dealt with; asked for more often than these are
    // 65536 more.
    std::uint64_t number_received() noexcept {
        received += static_cast<std::uint16_t>(expected_sequence() - received_at);
        received_at = expected_sequence();
        return received;
    }
    std::uint64_t received = 0;
    std::uint16_t received_at = 0;
    // Of the header of the next message to it, were it an eager one without a tag: what messages
    // of all kinds share.
    std::uint64_t next_start = 0;
    std::uint64_t srq = 0;  // name.srqn, as an entry has it
    std::uint16_t send_sequence() const noexcept {
        return static_cast<std::uint16_t>(next_start / kSequenceOfStart);
    }
    void count_sent() noexcept { next_start += kSequenceOfStart; }
    void count_numbered() noexcept {
        count_sent();
        ++sent;
    }
    std::uint64_t sent = 0;       // numbered messages, but small ones while there are no tuples
    std::uint32_t to_tuples = 0;  // messages that were to go by their queues
    std::size_t ahead = 0;        // eager payload that it has not taken away yet
    std::size_t taken = 0;        // of its eager payload, not yet told
    std::size_t kept = 0;         // memory of its messages that have no receive
    std::uint32_t answers = 0;    // that wait for a message of its, or for credit
    bool has_left = false;        // so it seemed at the last tick
    int failed = 0;               // errno: nothing can be sent any more
    std::uint16_t sequence_looked_at = 0;       // expected_sequence(), up to a second ago
    std::uint16_t sequence_at_keepalive = 0;    // the same, when its turn of keep_alive() was
    std::unique_ptr<SendRing> send_ring;        // while it offers one
    std::unique_ptr<ReceiveRing> receive_ring;  // while it has one here
    // Bits of tags that its receives ignore, by which its tuples are told apart; as it said last.
    std::uint64_t tuple_mask = 0, new_tuple_mask = 0;
    std::uint32_t tuples = 0;  // with a queue there, or asked for
};

// An eager message, as send.cc takes it apart.
struct Outgoing {
    Header header;
    const iovec* iov;
    std::size_t count, bytes;
    std::uint64_t data;
    bool has_data;
};

// An operation of the application that is more than one work, or waits.
struct Transfer final : Waiting, Part, TupleWork, NumberedSlot<Transfer> {
    enum class Step : std::uint8_t {
        kMessage,  // not yet sent: its form is chosen when it goes
        kRts,      // RTS is to be sent
        kAnswer,   // a CTS, FIN or atomic reply is to come
        kBulk,     // bytes are moving
        kFin,      // its end is being told
        kTuple,    // it waits for its tuple's queue, or has been posted to it
    };
    class RdmEndpoint::Body* body = nullptr;
    Peer* peer = nullptr;
    Step step = Step::kMessage;
    std::uint64_t flags = 0;  // of the operation
    void* context = nullptr;
    std::uint64_t tag = 0, data = 0;
    std::size_t bytes = 0;
    std::uint8_t what = 0;  // Sent::What: what its end means to the application
    bool read = false;      // an RMA read
    bool reported = false;  // its end, to the application, before it was sent
    std::array<iovec, kMaxSegments> iov{};
    std::array<void*, kMaxSegments> descriptors{};
    std::size_t iov_count = 0;
    std::vector<std::byte> copy;  // what was injected; operands of an atomic
    Bulk bulk;
    std::array<iovec, kMaxSegments> results{};  // of an atomic
    std::size_t result_count = 0;
    std::uint64_t receive = 0;  // RPUT: the receiver's number
    Counter* counter = nullptr;
    TupleOut* tuple = nullptr;  // kTuple
    bool later = false;         // it was to go by its tuple's queue, when so much had been sent:
    std::uint64_t place = 0;
    std::uint32_t order = 0;
    std::byte* buffer = nullptr;  // kTuple: of the channel's pool, with a copy
    bool delivered = false, flushed = false;

    bool go() override;
    void fail(int error) override;
    bool is_numbered() const noexcept override;
    void done(int error, int device_error) override;
    void completed(const ibv_wc& wc) override;
};

// An operation of one work that moves small data from, or to, where the application has it; or that
// reads into a buffer of ours, to be copied.
struct Direct final : Part, NumberedSlot<Direct> {
    class RdmEndpoint::Body* body = nullptr;
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
    class RdmEndpoint::Body* body = nullptr;
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
struct Receive final : PostedReceive, ReceiveFields, Waiting, NumberedSlot<Receive> {
    std::array<iovec, kMaxSegments> iov{};  // as many as iov_count says
    Bulk bulk;                              // between begin_rendezvous() and its end

    // Called by Numbered. The other fields have no meaning before these say so, and resetting them
    // would cost each message.
    void renew() noexcept {
        HEDDLE_ASSERT(!queued && bulk.local.count == 0);
        static_cast<PostedReceive&>(*this) = {};
        static_cast<ReceiveFields&>(*this) = {};
    }
    bool go() override;
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

// A message of the protocol's own that waits.
struct Control final : Waiting {
    class RdmEndpoint::Body* body = nullptr;
    Peer* peer = nullptr;
    std::vector<std::byte> bytes;
    bool go() override;
    void fail(int error) override;
};

// The beginning of a tuple's messages in its queue, that waits.
struct TupleBeginning final : Waiting {
    class RdmEndpoint::Body* body = nullptr;
    std::uint64_t tuple = 0;
    Peer* peer = nullptr;
    bool go() override;
    void fail(int error) override;
    bool is_numbered() const noexcept override { return true; }
};

class RdmEndpoint::Body final : public ChannelUser {
public:
    Body(std::shared_ptr<Domain> domain, const AddressVector& addresses, const Bindings& bindings);
    ~Body() override;

    // send.cc
    ssize_t send(const SendArguments& arguments);
    bool send_small(const void* buffer, std::size_t bytes, std::uint64_t to, std::uint64_t tag,
                    std::uint64_t data, std::uint64_t kind, bool wants_entry,
                    void* context) noexcept;
    template <bool kIsTagged, bool kHasData>
    bool send_small_of_kind(const void* buffer, std::size_t bytes, std::uint64_t to,
                            std::uint64_t tag, std::uint64_t data, bool wants_entry,
                            void* context) noexcept;
    template <bool kIsTagged, bool kHasData>
    bool post_small(Peer& peer, std::uint64_t tag, std::uint64_t tail, std::uint32_t bytes,
                    std::uint64_t data, std::uint8_t what, void* context) noexcept;
    template <bool kIsTagged, bool kHasData>
    bool send_few(Peer& peer, const void* buffer, std::size_t bytes, std::uint64_t tag,
                  std::uint64_t data, std::uint8_t what, void* context) noexcept;
    ssize_t send_any(const SendArguments& arguments);
    ssize_t send_by_software(Peer& peer, const SendArguments& arguments, std::size_t bytes);
    ssize_t send_to_tuple(TupleOut& tuple, Peer& peer, const SendArguments& arguments,
                          std::size_t bytes);
    std::uint8_t told_of(const SendArguments& arguments) const noexcept;
    Transfer& transfer_of(Peer& peer, const SendArguments& arguments, std::size_t bytes);
    template <class What>
    Outgoing outgoing(const Peer& peer, const What& what, std::size_t bytes) const noexcept;
    // kOk: it is counted, too.
    // may_stay: nobody is told before the payload is not needed any more.
    post::Posted send_eager(Peer& peer, const Outgoing& out, const Sent& sent, bool may_stay);
    post::Posted send_inline(Peer& peer, const Outgoing& out, bool ring, const Sent& sent);
    post::Posted send_copied(Peer& peer, const Outgoing& out, bool ring, const Sent& sent);
    post::Posted send_gathered(Peer& peer, const Outgoing& out, bool ring, const Sent& sent,
                               Reuse::Buffer& reused);
    // It is used once more; nullptr: by a copy.
    [[gnu::always_inline]] Reuse::Buffer* frequent(std::optional<Reuse>& of, const iovec& buffer,
                                                   ReuseCosts::Way way) noexcept {
        if (buffer.iov_len < reuse_from[way]) return nullptr;
        return of->use(buffer.iov_base, buffer.iov_len,
                       [this, way](std::size_t bytes) { return uses_for(bytes, way); });
    }
    std::uint32_t uses_for(std::size_t bytes, ReuseCosts::Way way) noexcept;
    bool may_be_eager(const Peer& peer, std::size_t bytes) const noexcept {
        return bytes <= kFreeBytes ||
               (bytes <= options.eager_bytes && peer.ahead + bytes <= options.unexpected_bytes);
    }
    bool start(Transfer& transfer);  // kMessage: by the way that suits it. False: no room
    // control.cc
    Peer* peer_at(std::uint64_t address);
    Peer& peer_of(const Name& name);
    std::uint64_t address_of(Peer& peer) {  // as applications are told of it
        return peer.address != AddressVector::kNone ? peer.address : peer_of(peer.name).address;
    }
    Peer* source(std::uint32_t qpn, std::uint16_t endpoint);
    void connect(Peer& peer);
    static bool can_send(const Peer& peer) noexcept { return peer.open != nullptr; }
    // After whatever can_send() depends on has changed.
    void look_if_open(Peer& peer) const noexcept {
        const bool open = peer.connection != nullptr && peer.connection->ready() &&
                          peer.waiting.empty() && peer.failed == 0;
        peer.open = open ? peer.connection : nullptr;
        const bool small = open && peer.open->direct() && bindings.send_counter == nullptr &&
                           peer.send_ring == nullptr && peer.tuples == 0 && tuples_from != 0;
        peer.small = small ? peer.open : nullptr;
    }
    static void shut(Peer& peer) noexcept { peer.open = peer.small = nullptr; }
    void wait(Peer& peer, Waiting& waiting);
    void flush(Peer& peer);
    void fail_peer(Peer& peer, int error);
    template <class Contents>
    void control(Peer& peer, Kind kind, const Contents& contents,
                 std::span<const std::byte> more = {}, std::uint64_t tag = 0) {
        control(peer, kind, {reinterpret_cast<const std::byte*>(&contents), sizeof contents}, more,
                tag);
    }
    void control(Peer& peer, Kind kind, std::span<const std::byte> contents,
                 std::span<const std::byte> more, std::uint64_t tag = 0);
    void control_message(Peer& peer, std::vector<std::byte>&& bytes);
    bool send_control(Peer& peer, std::span<const std::byte> bytes);
    // receive.cc
    ssize_t receive(const ReceiveArguments& arguments);
    ssize_t peek(const ReceiveArguments& arguments);
    ssize_t cancel(void* context);
    void cancelled(Receive& receive);  // that is not queued any more
    // Ends a receive that is not queued any more and has taken no message.
    void end_unmatched(Receive& receive, int error);
    void received(std::span<const std::byte> bytes, bool has_immediate, std::uint32_t immediate,
                  std::uint32_t qpn) override;
    void take_message(std::span<const std::byte> bytes, bool has_immediate, std::uint32_t immediate,
                      std::uint32_t qpn);
    template <class EntryOf>
    PlainEntry& deliver_whole(Receive& receive, Peer& peer, std::uint64_t tag,
                              std::span<const std::byte> payload, const EntryOf& entry_of);
    bool read_next(PlainEntry& entry);
    bool read_next_inlined(PlainEntry& entry);
    template <class Message>
    bool take_next_message(const std::byte* at, const Message& message, PlainEntry& entry);
    // Does a message begin as the next of who sent last does? `start`: without kTaggedStart.
    bool is_of_last_source(std::uint64_t start, std::uint32_t qpn) const noexcept {
        return start == last_source->expected && qpn == last_source_qpn &&
               connector.removals() == source_removals;
    }
    void received_from(Peer& peer, const Header& header, std::span<const std::byte> bytes,
                       bool has_immediate, std::uint32_t immediate);
    void take_eager(Peer& peer, bool is_tagged, std::span<const std::byte> bytes,
                    bool has_immediate, std::uint32_t immediate);
    void arrived(Peer& peer, const Header& header, std::span<const std::byte> payload,
                 std::uint64_t data, bool has_data);
    void keep_eager(Peer& peer, bool is_tagged, std::uint64_t tag,
                    std::span<const std::byte> payload, std::uint64_t data, bool has_data);
    void arrived_rts(Peer& peer, const Message& message);
    void damaged(Peer& peer);
    void refuse(Peer& peer, int error);
    bool may_keep(Peer& peer, std::size_t bytes);
    void complain_of(const Peer& peer, const std::string& text) const;
    void discard(Unexpected& message);  // it is not kept any more
    void deliver(Receive& receive, Peer& peer, std::uint64_t tag,
                 std::span<const std::byte> payload, std::uint64_t data, bool has_data);
    void deliver(Receive& receive, Unexpected& message);
    void finish(Receive& receive, Peer& peer, std::uint64_t tag, std::uint64_t data, bool has_data,
                void* buffer, std::size_t bytes, std::size_t taken, int error, int device_error);
    Receive& part_of(Receive& receive, std::size_t bytes);
    void took(Peer& peer, std::size_t bytes);
    PlainEntry& plain_entry(Peer& peer) {
        if (PlainEntry* const entry = bindings.receive->plain()) [[likely]]
            return *entry;
        return push_plain(peer);
    }
    PlainEntry& push_plain(Peer& peer);
    CompletionEntry* receive_entry(const Receive& receive, std::uint64_t flags, int error);
    // rings.cc
    unsigned take_from_rings(unsigned most);
    unsigned take_from_ring(Peer& peer, unsigned most);
    void look_who_talks(bool long_since);
    void offer_ring(Peer& peer);
    void stop_ring(Peer& peer);
    bool stop_rings();
    void got_ring(Peer& peer, const RingBody& ring);
    void got_ring_taken(Peer& peer, const RingTakenBody& news);
    void got_ring_stop(Peer& peer);
    void got_ring_end(Peer& peer);
    // tuple_sender.cc, tuple_receiver.cc; here, so that all may call them
    void tuple_sent(Transfer& transfer, bool delivered);
    void got_tuple(Peer& peer, const Message& message);
    // rendezvous.cc
    bool send_rts(Transfer& transfer);
    void begin_rendezvous(Receive& receive, Peer& peer, std::uint64_t tag, std::uint64_t data,
                          bool has_data, std::uint64_t operation, std::size_t bytes,
                          std::span<const Segment> segments, bool by_put);
    void rendezvous_done(Receive& receive, int error, int device_error);
    void refuse_rendezvous(Peer& peer, std::uint64_t operation, bool by_put, int error);
    void got_cts(Peer& peer, const Message& message);
    void got_fin(Peer& peer, const FinBody& fin);
    // rma.cc
    ssize_t rma(const RmaArguments& arguments);
    bool start_rma(Transfer& transfer);
    post::Posted rma_at_once(Peer& peer, const RmaArguments& arguments, std::uint8_t what);
    void moved(Transfer& transfer, int error, int device_error);
    // atomic.cc
    ssize_t atomic(const AtomicArguments& arguments);
    bool start_atomic(Transfer& transfer);
    void got_atomic(Peer& peer, const Message& message);
    void got_atomic_reply(Peer& peer, const Message& message);
    // rdm_endpoint.cc
    void progress(unsigned most);
    void sent(const Sent& sent, int error, int device_error) override;
    bool lost(const Connection& connection, int error, int device_error) override;
    void changed(Connection& connection) override;
    void drain() override;
    void broken(int error) override;
    // The end of an operation that the application waits for.
    void entry(std::uint8_t what, bool read, void* context, std::uint64_t extra, int error,
               int device_error, Counter* counter);
    void finish(Transfer& transfer, int error, int device_error);
    // liveness.cc
    static constexpr std::uint32_t kTickEvery = 4096;  // calls of progress()
    void tick();
    void tick_while_asleep();
    void look_after(Peer& peer);
    void keep_alive(std::chrono::steady_clock::duration passed);
    void fail_receives(Peer& peer);
    template <class Wanted>
    void fail_receives(int error, const Wanted& wanted);
    // rdm_endpoint.cc
    void close();
    struct Unfetched {
        std::size_t messages = 0;
        const Peer* peer = nullptr;  // of one of them
    };
    Unfetched unfetched() const;
    void warn_of(const Unfetched& left) const;
    void refuse_unexpected();

    const std::shared_ptr<Domain> domain;
    const std::shared_ptr<Process> process;
    const Options& options;
    const AddressVector& addresses;
    const Bindings bindings;
    std::shared_ptr<Channel> channel;
    Connector& connector;
    Name name;
    std::size_t min_multi_receive = 64;
    EndpointCounts counts;
    std::size_t unexpected_bytes = 0;

    std::vector<std::unique_ptr<Peer>> peers;
    std::unordered_map<Name, Peer*, NameHash> peer_by_name;
    std::unique_ptr<Peer*[]> peer_by_address;  // or `nobody`
    std::uint64_t addresses_known = 0;         // so many are in peer_by_address
    std::uint64_t removals_seen = 0;
    std::unordered_map<std::uint64_t, Peer*> sources;  // target QP << 16 | endpoint
    Peer nobody;                                       // never has a connection
    // Who sent last, and to which target QP.
    Peer* last_source = &nobody;
    std::uint32_t last_source_qpn = 0;
    std::uint64_t source_removals = 0;
    std::vector<Peer*> blocked;           // with something waiting
    std::vector<Peer*> ringed;            // with a receive_ring
    bool no_rings = false;                // who sleeps is not woken by them
    std::uint64_t look_who_talks_at = 0;  // when so many messages have come

    Matcher tagged, untagged;
    Numbered<Transfer> transfers;
    std::size_t open_transfers = 0;
    Transfer& new_transfer() {
        ++open_transfers;
        return transfers.take();
    }
    void end_transfer(Transfer& transfer) noexcept {
        --open_transfers;
        transfers.give_back(transfer);
    }
    Numbered<Receive> receives;
    Numbered<Direct> directs;
    Direct& new_direct(std::uint8_t what, void* context, Counter* counter) {
        Direct& direct = directs.take();
        direct.body = this;
        direct.what = what;
        direct.context = context;
        direct.counter = counter;
        return direct;
    }
    // Buffers that are sent from, or written to peers; and that are read into. Where they may be
    // kept.
    std::optional<Reuse> sent_from, read_into;
    // Less than that is copied without a look: where the costs are known, and there are no tables.
    std::array<std::size_t, ReuseCosts::kWays> reuse_from;
    // How many uses are enough, as far as it was asked; 0: it was not.
    std::array<std::array<std::uint32_t, ReuseCosts::kSizes>, ReuseCosts::kWays> enough_uses{};
    std::unique_ptr<Tuples> tuples;  // unless there shall be none
    // Messages from that size on are counted, and may come to have a queue of their tuple.
    std::size_t tuples_from = ~std::size_t{0};
    TupleCounts tuple_counts;
    std::unordered_map<void*, Unexpected*> claimed;
    std::uint32_t ticks = 0;
    std::chrono::steady_clock::time_point last_probe{};
    double keepalive_due = 0;        // so many peers are due for a turn of keep_alive()
    std::size_t keepalive_next = 0;  // the last that had one
    bool closing = false;
};

}  // namespace heddle::protocol
