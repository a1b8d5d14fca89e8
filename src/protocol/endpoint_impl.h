// SPDX-License-Identifier: BSD-2-Clause
// What stands behind an RdmEndpoint. Core, Rma, Atomics, Rings and Liveness are parts with state of
// their own. The rest is still one object: send.cc (messages out), receive.cc (messages in,
// matching), probe.cc, rendezvous.cc, lost_receives.cc (receives that end with their peer), the
// tuple queues, and rdm_endpoint.cc (life, progress).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "heddle/detail/assert.h"
#include "protocol/core/core.h"
#include "protocol/core/liveness.h"
#include "protocol/core/request_pool.h"
#include "protocol/core/reuse_policy.h"
#include "protocol/rdm_endpoint.h"
#include "protocol/receive.h"
#include "protocol/ring/rings.h"
#include "protocol/rma/atomics.h"
#include "protocol/rma/rma.h"
#include "protocol/transport/process.h"
#include "protocol/tupleq/tuple.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

struct Tuples;

class EndpointImpl final : public Core, public RequestOwner, public RingReader {
public:
    EndpointImpl(std::shared_ptr<Domain> domain, const AddressVector& addresses,
                 const Bindings& bindings);
    ~EndpointImpl() override;
    void on_peer_failed(Peer& peer, int error) override;
    bool start(SendRequest& request) override;

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
    SendRequest& request_of(Peer& peer, const SendArguments& arguments, std::size_t bytes);
    template <class What>
    Outgoing outgoing(const Peer& peer, const What& what, std::size_t bytes) const noexcept;
    // kOk: it is counted, too.
    // may_stay: the end is not reported while the payload is still needed.
    post::Posted send_eager(Peer& peer, const Outgoing& out, const WrContext& sent, bool may_stay);
    post::Posted send_inline(Peer& peer, const Outgoing& out, SendRing* ring,
                             const WrContext& sent);
    post::Posted send_copied(Peer& peer, const Outgoing& out, SendRing* ring,
                             const WrContext& sent);
    post::Posted send_gathered(Peer& peer, const Outgoing& out, SendRing* ring,
                               const WrContext& sent, Reuse::Buffer& reused);
    bool may_be_eager(const Peer& peer, std::size_t bytes) const noexcept {
        return bytes <= kFreeBytes ||
               (bytes <= options.eager_bytes &&
                peer.unacked_eager_bytes + bytes <= options.unexpected_bytes);
    }
    // receive.cc, probe.cc
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
    void received_from(Peer& peer, const Header& header, std::span<const std::byte> bytes,
                       bool has_immediate, std::uint32_t immediate);
    void take_eager(Peer& peer, bool is_tagged, std::span<const std::byte> bytes,
                    bool has_immediate, std::uint32_t immediate);
    void arrived(Peer& peer, const Header& header, std::span<const std::byte> payload,
                 std::uint64_t data, bool has_data);
    void keep_eager(Peer& peer, bool is_tagged, std::uint64_t tag,
                    std::span<const std::byte> payload, std::uint64_t data, bool has_data);
    void arrived_rts(Peer& peer, const Message& message);
    bool may_keep(Peer& peer, std::size_t bytes);
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
    // What Rings finds.
    void read_ring(Peer& peer) override;
    void take_next(Peer& peer, const ReceiveRing::Found& found);
    void take_other(Peer& peer, const Header& header, const ReceiveRing::Found& found);
    void look_who_talks(bool long_since);
    // tuple_sender.cc, tuple_receiver.cc; here, so that all may call them
    void got_tuple(Peer& peer, const Message& message);
    // rendezvous.cc
    bool send_rts(SendRequest& transfer);
    void begin_rendezvous(Receive& receive, Peer& peer, std::uint64_t tag, std::uint64_t data,
                          bool has_data, std::uint64_t operation, std::size_t bytes,
                          std::span<const Segment> segments, bool by_put);
    void rendezvous_done(Receive& receive, int error, int device_error);
    void refuse_rendezvous(Peer& peer, std::uint64_t operation, bool by_put, int error);
    void got_cts(Peer& peer, const Message& message);
    void got_fin(Peer& peer, const FinBody& fin);
    // rdm_endpoint.cc
    void progress(unsigned most);
    void sent(const WrContext& sent, int error, int device_error) override;
    bool lost(const Connection& connection, int error, int device_error) override;
    void changed(Connection& connection) override;
    void drain() override;
    void broken(int error) override;
    static constexpr std::uint32_t kTickEvery = 4096;  // calls of progress()
    void tick();
    void tick_while_asleep();
    // lost_receives.cc
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

    std::size_t min_multi_receive = 64;
    std::size_t unexpected_bytes = 0;

    std::uint64_t look_who_talks_at = 0;  // when so many messages have come

    Matcher tagged, untagged;
    RequestPool requests{*this};
    ReusePolicy reuse;
    Rma rma{*this, requests, reuse};
    Atomics atomics{*this, requests};
    Rings rings{*this, *this};
    Liveness liveness{*this};
    SlotPool<Receive> receives;
    [[gnu::always_inline]] Receive& new_receive(const ReceiveArguments& a) {
        Receive& r = receives.take();
        r.endpoint = this;
        r.context = a.context;
        r.flags = a.flags;
        r.iov_count = a.iov_count;
        for (std::size_t i = 0; i < a.iov_count; ++i) {
            r.iov[i] = a.iov[i];
            r.bytes += a.iov[i].iov_len;
        }
        return r;
    }
    std::unique_ptr<Tuples> tuples;  // unless there shall be none
    // Messages from that size on are counted, and may come to have a queue of their tuple.
    std::size_t tuples_from = ~std::size_t{0};
    TupleCounts tuple_counts;
    std::unordered_map<void*, Unexpected*> claimed;
    std::uint32_t ticks = 0;
};

}  // namespace heddle::protocol
