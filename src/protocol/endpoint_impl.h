// SPDX-License-Identifier: BSD-2-Clause
// What stands behind an RdmEndpoint: the parts of an endpoint, and which of them gets what.
// Messages out choose their way here (send.cc), messages in are given to the part of their kind
// (dispatch.cc), and the endpoint lives and makes progress (rdm_endpoint.cc). Most messages and
// receives take fast paths (send_fast_path.h, receive_fast_path.h, post_fast_path.h). Threads: the
// endpoint's.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>

#include "protocol/core/core.h"
#include "protocol/core/liveness.h"
#include "protocol/core/request_pool.h"
#include "protocol/core/reuse_policy.h"
#include "protocol/eager/eager_sender.h"
#include "protocol/eager/flow_control.h"
#include "protocol/eager/fragment_sender.h"
#include "protocol/local/local_peers.h"
#include "protocol/rails.h"
#include "protocol/rdm_endpoint.h"
#include "protocol/ring/rings.h"
#include "protocol/rma/atomics.h"
#include "protocol/rma/rma.h"
#include "protocol/rndv/rendezvous.h"
#include "protocol/tag/delivery.h"
#include "protocol/tag/fragments.h"
#include "protocol/tag/receiver.h"
#include "protocol/tag/receives.h"
#include "protocol/tag/unexpected.h"
#include "protocol/tupleq/tuples.h"

namespace heddle::protocol {

// What has become of the next message in the completion queue. kNothing: it is still there. kKept:
// it has no receive yet, and there is no entry.
enum class ReadNext : std::uint8_t { kNothing, kEntry, kKept };

class EndpointImpl final : public Core, private RequestOwner, private RingReader {
public:
    EndpointImpl(std::shared_ptr<Domain> domain, const AddressVector& addresses,
                 const Bindings& bindings);
    ~EndpointImpl() override;

    // As those of RdmEndpoint.
    ssize_t send(const SendArguments& arguments);
    ssize_t receive(const ReceiveArguments& arguments) { return receiver_.post(arguments); }
    ssize_t rma(const RmaArguments& arguments) { return rma_.post(arguments); }
    ssize_t atomic(const AtomicArguments& arguments) { return atomics_.post(arguments); }
    ssize_t cancel(void* context) { return receiver_.cancel(context); }
    void set_min_multi_receive(std::size_t bytes) noexcept {
        receives_.set_min_multi_receive(bytes);
    }
    void progress(unsigned most);
    bool arm();
    // Gives rings to the peers that talk most. long_since: a second has passed since it last was
    // true. progress() calls it in time.
    void look_who_talks(bool long_since);
    EndpointState state() const noexcept;
    ReuseCounts reuse_counts() const noexcept { return reuse_.counts(); }
    TupleCounts tuple_counts() const noexcept {
        return tuples != nullptr ? tuples->counts() : TupleCounts{};
    }

    // The fast paths. False: nothing was done, the caller has to send(), or progress().
    bool send_small(const void* buffer, std::size_t bytes, std::uint64_t to, std::uint64_t tag,
                    std::uint64_t data, std::uint64_t kind, EntryOfSend wanted,
                    void* context) noexcept;
    bool receive_plain(void* buffer, std::size_t bytes, std::uint64_t from, std::uint64_t tag,
                       std::uint64_t ignore, void* context);
    // may_keep: a message without a receive is kept; else it is left where it is, for a program
    // that has entries to read and may post that receive next.
    ReadNext read_next(PlainEntry& entry, bool may_keep);
    ReadNext read_next_inlined(PlainEntry& entry, bool may_keep);
    // is_quiet: progress() would find nothing, but what lies in some of many peers' rings.
    ReadNext read_next_by_shm(PlainEntry& entry, bool may_keep, bool& is_quiet);
    // progress() would find nothing, and it is not time to look after peers. On the direct path.
    bool is_quiet() noexcept;

    RequestPool requests{*this, channel->send_buffers()};
    Rings rings{*this, *this, domain->body().context->pd.get()};
    std::unique_ptr<Tuples> tuples;  // unless there shall be none
    LocalPeers local{*this, options.shm.on && !Tuples::are_possible(*this)};
    std::unique_ptr<Rails> rails;  // unless there is only the endpoint's port

private:
    friend class Channel;
    friend class Rings;
    friend class LocalPeers;
    // What Channel::poll_for() finds.
    void take_message(std::span<const std::byte> bytes, bool has_immediate, std::uint32_t immediate,
                      std::uint32_t qpn);
    bool has_enough() const noexcept { return has_enough_; }
    // What Rings::take_from() finds, and LocalPeers::take_from().
    void take_next(Peer& peer, const ReceiveRing::Found& found);
    void take_other(Peer& peer, const Header& header, const ReceiveRing::Found& found);
    void take_next(Peer& peer, bool is_tagged, const ShmReceiver::Found& found);
    void take_other(Peer& peer, const Header& header, const ShmReceiver::Found& found);
    // send_fast_path.h
    template <bool kIsTagged, bool kHasData>
    bool send_small_of_kind(const void* buffer, std::size_t bytes, std::uint64_t to,
                            std::uint64_t tag, std::uint64_t data, EntryOfSend wanted,
                            void* context) noexcept;
    template <bool kIsTagged, bool kHasData, bool kIsQuiet>
    bool post_small(Peer& peer, std::uint64_t tag, std::uint64_t tail, std::uint32_t bytes,
                    std::uint64_t data, bool is_reported) noexcept;
    template <bool kIsTagged>
    WrContext entry_when_done(void* context) noexcept;
    template <bool kIsTagged, bool kHasData, bool kIsQuiet>
    EagerSender::Result send_inline(Peer& peer, const void* buffer, std::size_t bytes,
                                    std::uint64_t tag, std::uint64_t data, EntryOfSend wanted,
                                    void* context) noexcept;
    template <bool kIsTagged, bool kHasData>
    EagerSender::Result send_eager(Peer& peer, const void* buffer, std::size_t bytes,
                                   std::uint64_t tag, std::uint64_t data, EntryOfSend wanted,
                                   void* context) noexcept;
    template <bool kIsTagged, bool kHasData>
    bool send_few(Peer& peer, const void* buffer, std::size_t bytes, std::uint64_t tag,
                  std::uint64_t data, bool is_reported) noexcept;
    template <bool kIsTagged, bool kHasData>
    bool send_small_by_shm(Peer& peer, const void* buffer, std::size_t bytes, std::uint64_t tag,
                           std::uint64_t data, bool wants_entry, void* context) noexcept;
    // send.cc
    ssize_t send_any(const SendArguments& arguments);
    ssize_t send_by_software(Peer& peer, const SendArguments& arguments, std::size_t bytes);
    ssize_t send_to_tuple(TupleOut& tuple, Peer& peer, const SendArguments& arguments,
                          std::size_t bytes);
    std::uint8_t told_of(const SendArguments& arguments) const noexcept;
    EagerReport report_of(std::uint64_t flags, std::uint8_t what, void* context) noexcept;
    SendRequest& request_of(Peer& peer, const SendArguments& arguments, std::size_t bytes);
    bool start(SendRequest& request) override;
    // receive_fast_path.h
    void take_eager(Peer& peer, bool is_tagged, std::span<const std::byte> bytes,
                    bool has_immediate, std::uint32_t immediate);
    template <class EntryOf>
    PlainEntry& deliver_whole(Receive& receive, Peer& peer, std::uint64_t tag,
                              std::span<const std::byte> payload, const EntryOf& entry_of);
    ReadNext keep_next(Peer& peer, const MessageInfo& info, std::span<const std::byte> payload);
    template <class Message>
    ReadNext take_next_message(const std::byte* at, const Message& message, PlainEntry& entry,
                               bool may_keep);
    template <class Message>
    ReadNext take_next_of(Peer& peer, const std::byte* at, const Message& message,
                          PlainEntry& entry, bool may_keep);
    // The entry of a message of that peer, to be read later. The caller fills in what every entry
    // has.
    PlainEntry& queue_entry(Peer& peer) {
        CompletionEntry& entry = bindings.receive->push_unset();
        entry.source = peers.address_of(peer);
        entry.error = entry.device_error = 0;
        entry.overlong = 0;
        return entry;
    }
    PlainEntry& plain_entry(Peer& peer) {
        if (PlainEntry* const entry = bindings.receive->plain()) [[likely]]
            return *entry;
        return push_plain(peer);
    }
    // dispatch.cc
    PlainEntry& push_plain(Peer& peer);  // queue_entry(), out of the fast path
    void received(std::span<const std::byte> bytes, bool has_immediate, std::uint32_t immediate,
                  std::uint32_t qpn) override;
    void received_by(Peer* peer, std::span<const std::byte> bytes, bool has_immediate,
                     std::uint32_t immediate);
    void received_from(Peer& peer, const Header& header, std::span<const std::byte> bytes,
                       bool has_immediate, std::uint32_t immediate);
    void received_eager(Peer& peer, const Header& header, std::span<const std::byte> bytes,
                        bool has_immediate, std::uint32_t immediate);
    void received_data(Peer& peer, const Message& message);
    void read_ring(Peer& peer) override;
    void read_shm(Peer& peer);
    void sent(const WrContext& sent, int error, int device_error) override;
    // rdm_endpoint.cc
    bool lost(const Connection& connection, int error, int device_error) override;
    void changed(Connection& connection) override;
    void drain() override;
    void broken(int error) override;
    void on_peer_failed(Peer& peer, int error) override;
    void on_connected(Peer& peer) override;
    unsigned take_by_shm(unsigned most);
    void tick();
    void tick_while_asleep();
    void close();
    std::unordered_map<const Connection*, bool> connections_of_peers() const;
    struct Unfetched {
        std::size_t messages = 0;
        const Peer* peer = nullptr;  // of one of them
    };
    Unfetched unfetched() const;
    void warn_of(const Unfetched& left) const;

    // Some messages go by tuples' queues, or one was asked for.
    bool uses_tuples() const noexcept { return tuples && !tuples->are_unused(); }

    static constexpr std::uint32_t kTickEvery = 4096;  // calls of progress()

    std::uint64_t look_who_talks_at_ = 0;  // when so many messages have come
    std::uint32_t ticks_ = 0;
    // As of the last progress(): only the device may have something.
    bool is_device_alone_ = false;
    // Until the next progress(): the application has an entry to read, and the last message has no
    // receive. It may post that next: what is read before has to be kept, and found again.
    bool has_enough_ = false;
    ReusePolicy reuse_;
    Rma rma_{*this, requests, channel->limits(), reuse_};
    Atomics atomics_{*this, requests, domain->body().regions};
    Liveness liveness_{*this};
    FlowControl flow_{*this};
    EagerSender eager_{*this, channel->limits(), rings, reuse_, requests, flow_};
    FragmentSender fragment_sender_{*this, requests, flow_};
    RendezvousProtocol rendezvous_{*this, requests, delivery_};
    Receives receives_{*this};
    UnexpectedMessages unexpected_{*this, receives_};
    Delivery delivery_{*this, receives_, unexpected_, flow_, rendezvous_};
    Fragments fragments_{*this, receives_, unexpected_, delivery_};
    Receiver receiver_{*this, receives_, delivery_};
};

}  // namespace heddle::protocol
