// SPDX-License-Identifier: BSD-2-Clause
// What a part of the endpoint asks of the core that can be had without a device: options, peers,
// messages of the protocol, transfers, and reports. Unit tests of parts stand on a fake one.
// Threads: the endpoint's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "protocol/common/options.h"
#include "protocol/core/endpoint_types.h"
#include "protocol/core/peer.h"
#include "protocol/core/peer_table.h"
#include "protocol/core/pending_op.h"
#include "protocol/transport/bulk.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

class CoreServices {
public:
    // Options and addresses are kept.
    CoreServices(const Options& its_options, const AddressVector& addresses,
                 const Bindings& its_bindings) noexcept
        : options(its_options), bindings(its_bindings), peers(addresses, name) {}
    CoreServices(const CoreServices&) = delete;
    CoreServices& operator=(const CoreServices&) = delete;

    const Options& options;
    const Bindings bindings;
    EndpointAddress name;
    EndpointCounts counts;
    PeerTable peers;
    bool closing = false;  // nothing is reported any more

    // Control messages: a header, `contents`, and `more`; or whole messages. They wait for room by
    // themselves, and are dropped if the peer has failed.
    template <class Contents>
    void control(Peer& peer, Kind kind, const Contents& contents,
                 std::span<const std::byte> more = {}, std::uint64_t tag = 0) {
        control(peer, kind, {reinterpret_cast<const std::byte*>(&contents), sizeof contents}, more,
                tag);
    }
    void control(Peer& peer, Kind kind, std::span<const std::byte> contents,
                 std::span<const std::byte> more, std::uint64_t tag = 0);
    virtual void control_message(Peer& peer, std::vector<std::byte>&& bytes) = 0;
    // Credit goes before all that waits for the peer: that may wait for credit from there, and the
    // peer for ours.
    void control_credit(Peer& peer, const CreditBody& credit);
    virtual void control_message_first(Peer& peer, std::vector<std::byte>&& bytes) = 0;

    // The peer sleeps, and something lies in its shared memory (ShmSender::publish()).
    virtual void wake(Peer& peer) = 0;

    static bool can_send(const Peer& peer) noexcept { return peer.open != nullptr; }
    // The operation is tried again when the peer's connection has changed, or has room. It fails at
    // once if the peer has failed.
    virtual void wait(Peer& peer, PendingPtr op) = 0;
    // Posts a message. False: there is no room. The peer's connection must be ready.
    virtual bool send_control(Peer& peer, std::span<const std::byte> bytes) = 0;
    // Channel::post() on the peer's connection, which must be ready. Sets sent.user.
    virtual post::Posted post(Peer& peer, post::WorkRequest& work, WrContext& sent) noexcept = 0;
    // LocalBuffers::use() with what the endpoint registers memory with.
    virtual bool use_memory(LocalBuffers& buffers, const iovec* iov, std::size_t count,
                            void* const* descriptors, std::size_t bytes, int access) noexcept = 0;
    // Memory of so many bytes cannot be registered, and is copied: counts it, and tells the user
    // once.
    void note_unregistered(std::size_t bytes);
    // Bulk::begin() with the peer's connection, which must be ready. The caller then calls post().
    virtual void begin_bulk(Bulk& bulk, Peer& peer, post::Opcode opcode, const Bulk::Range& range,
                            Bulk::Done done, void* argument) noexcept = 0;
    // After whatever can_send() depends on has changed.
    virtual void look_if_open(Peer& peer) const noexcept = 0;

    // Bytes that this protocol never sends: nothing else that comes from there can be believed.
    void protocol_error(Peer& peer);
    // Nothing more is taken from the peer. It may wait for replies: its next WR fails.
    virtual void refuse(Peer& peer, int error) = 0;

    // The end of an operation. what: WrContext::What. extra: FI_ATOMIC, or other flags of the
    // operation. Counted by `counter`, unless that is nullptr.
    void entry(std::uint8_t what, bool read, void* context, std::uint64_t extra, int error,
               int device_error, Counter* counter);
    // One line for the program's user, that no return value can carry.
    virtual void complain_of(const Peer& peer, const std::string& text) const = 0;

protected:
    ~CoreServices() = default;
};

// After CoreServices::use_memory() has failed: takes the buffers for what a Bulk copies, if the
// reason is the limit of locked memory (ENOMEM). False: errno is as it was.
bool copy_instead(CoreServices& core, LocalBuffers& buffers, const iovec* iov, std::size_t count,
                  std::size_t bytes);

}  // namespace heddle::protocol
