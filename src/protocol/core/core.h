// SPDX-License-Identifier: BSD-2-Clause
// What all parts of an endpoint stand on: its peers and the connections to them, operations that
// wait for room, control messages, and the reports to the application. It knows none of these
// parts.
//
// Threads: the endpoint's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "protocol/core/endpoint_types.h"
#include "protocol/core/peer.h"
#include "protocol/core/peer_table.h"
#include "protocol/core/pending_op.h"
#include "protocol/transport/channel.h"
#include "protocol/transport/domain.h"
#include "protocol/transport/process.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

class Core : public ChannelUser {
public:
    // Throws VerbsError.
    Core(std::shared_ptr<Domain> domain, const AddressVector& addresses, const Bindings& bindings);
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;

    const std::shared_ptr<Domain> domain;
    const std::shared_ptr<Process> process;
    const Options& options;
    const Bindings bindings;
    const std::shared_ptr<Channel> channel;
    Connector& connector;
    EndpointAddress name;
    EndpointCounts counts;
    PeerTable peers;
    bool closing = false;        // nothing is reported any more
    bool may_send_small = true;  // Peer::small may be set

    // Connections. connect() asks for one, unless there is one or the peer has failed.
    void connect(Peer& peer);
    static bool can_send(const Peer& peer) noexcept { return peer.open != nullptr; }
    // After whatever can_send() depends on has changed.
    void look_if_open(Peer& peer) const noexcept {
        const bool open = peer.connection != nullptr && peer.connection->ready() &&
                          peer.waiting.empty() && peer.failed == 0;
        peer.open = open ? peer.connection : nullptr;
        const bool small = open && peer.open->direct() && may_send_small && peer.other_ways == 0;
        peer.small = small ? peer.open : nullptr;
    }
    // The operation is tried again when the peer's connection has changed, or has room. It fails at
    // once if the peer has failed.
    void wait(Peer& peer, PendingPtr op);

    // Control messages: a header, `contents`, and `more`. They wait for room by themselves, and are
    // dropped if the peer has failed.
    template <class Contents>
    void control(Peer& peer, Kind kind, const Contents& contents,
                 std::span<const std::byte> more = {}, std::uint64_t tag = 0) {
        control(peer, kind, {reinterpret_cast<const std::byte*>(&contents), sizeof contents}, more,
                tag);
    }
    void control(Peer& peer, Kind kind, std::span<const std::byte> contents,
                 std::span<const std::byte> more, std::uint64_t tag = 0);
    void control_message(Peer& peer, std::vector<std::byte>&& bytes);
    // Posts it. False: there is no room. The peer's connection must be ready.
    bool send_control(Peer& peer, std::span<const std::byte> bytes);

    // The end of an operation. what: WrContext::What. extra: FI_ATOMIC, or other flags of the
    // operation. Counted by `counter`, unless that is nullptr.
    void entry(std::uint8_t what, bool read, void* context, std::uint64_t extra, int error,
               int device_error, Counter* counter);
    // One line for the program's user, that no return value can carry.
    void complain_of(const Peer& peer, const std::string& text) const;

    // Bytes that this protocol never sends: nothing else that comes from there can be believed.
    void protocol_error(Peer& peer);
    // Nothing more is taken from the peer. It may wait for replies: its next WR fails.
    void refuse(Peer& peer, int error);
    // All that waits for the peer ends with that errno.
    void fail_peer(Peer& peer, int error);

protected:
    ~Core() override = default;
    // Parts of the endpoint end what they have with that peer. Its pending operations have failed.
    virtual void on_peer_failed(Peer& peer, int error) = 0;
    // Posts what waits for that peer, in order, as long as there is room.
    void flush(Peer& peer);
    // The same for all peers for which something waits.
    void flush_blocked() {
        if (!blocked_.empty()) [[unlikely]]
            flush_all_blocked();
    }

private:
    void shut(Peer& peer) noexcept { peer.open = peer.small = nullptr; }
    void flush_all_blocked();

    std::vector<Peer*> blocked_;  // with something waiting
};

}  // namespace heddle::protocol
