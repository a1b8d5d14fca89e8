// SPDX-License-Identifier: BSD-2-Clause
// What all parts of an endpoint stand on: its peers and the connections to them, operations that
// wait for room, control messages, and the reports to the application. It knows none of these
// parts. What of it needs no device is in core_services.h.
//
// Threads: the endpoint's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "protocol/core/core_services.h"
#include "protocol/core/peer.h"
#include "protocol/core/pending_op.h"
#include "protocol/transport/channel.h"
#include "protocol/transport/domain.h"
#include "protocol/transport/process.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

class Core : public ChannelUser, public CoreServices {
public:
    // Throws VerbsError.
    Core(std::shared_ptr<Domain> domain, const AddressVector& addresses, const Bindings& bindings);

    const std::shared_ptr<Domain> domain;
    const std::shared_ptr<Process> process;
    const std::shared_ptr<Channel> channel;
    Connector& connector;
    bool may_send_small = true;  // Peer::small may be set

    // Connections. connect() asks for one, unless there is one or the peer has failed.
    void connect(Peer& peer);
    void look_if_open(Peer& peer) const noexcept final {
        const bool open = peer.connection != nullptr && peer.connection->ready() &&
                          peer.waiting.empty() && peer.failed == 0;
        peer.open = open ? peer.connection : nullptr;
        const bool small = open && peer.open->direct() && may_send_small && peer.other_ways == 0;
        peer.small = small ? peer.open : nullptr;
        peer.shm_small = open && may_send_small ? peer.shm : nullptr;
    }
    void wait(Peer& peer, PendingPtr op) final;

    void control_message(Peer& peer, std::vector<std::byte>&& bytes) final;
    void control_message_first(Peer& peer, std::vector<std::byte>&& bytes) final;
    void wake(Peer& peer) final;
    bool send_control(Peer& peer, std::span<const std::byte> bytes) final;
    post::Posted post(Peer& peer, post::WorkRequest& work, WrContext& sent) noexcept final {
        sent.user = this;
        return channel->post(*peer.connection, work, sent);
    }

    bool use_memory(LocalBuffers& buffers, const iovec* iov, std::size_t count,
                    void* const* descriptors, std::size_t bytes, int access) noexcept final;
    void begin_bulk(Bulk& bulk, Peer& peer, post::Opcode opcode, const Bulk::Range& range,
                    Bulk::Done done, void* argument) noexcept final;

    void refuse(Peer& peer, int error) override;
    void complain_of(const Peer& peer, const std::string& text) const override;
    // All that waits for the peer ends with that errno.
    void fail_peer(Peer& peer, int error);

protected:
    ~Core() override = default;
    // Parts of the endpoint end what they have with that peer. Its pending operations have failed.
    virtual void on_peer_failed(Peer& peer, int error) = 0;
    // There is a connection to the peer, which is ready.
    virtual void on_connected(Peer& peer) = 0;
    // Posts what waits for that peer, in order, as long as there is room.
    void flush(Peer& peer);
    // The same for all peers for which something waits, here or at another user of the channel.
    void flush_blocked() {
        if (channel->users().is_anybody_waiting()) [[unlikely]]
            channel->users().flush();
    }
    // Something waits for room in shared memory, which comes without an event.
    bool waits_for_shm() const noexcept;

private:
    void wait_at(Peer& peer, PendingList::const_iterator before, PendingPtr op);
    static void shut(Peer& peer) noexcept {
        peer.open = peer.small = nullptr;
        peer.shm_small = nullptr;
    }
    static bool must_go_by_device(const Peer& peer, std::span<const std::byte> bytes) noexcept;
    bool send_by_shm(Peer& peer, std::span<const std::byte> bytes);
    bool send_by_device(Peer& peer, std::span<const std::byte> bytes);
    bool send_by_work_request(Peer& peer, std::span<const std::byte> bytes, bool is_inline);
    bool send_wake(Peer& peer);
    void flush_waiting() final;

    std::vector<Peer*> blocked_;    // with something waiting
    std::vector<Peer*> wakes_due_;  // for which there was no room
};

}  // namespace heddle::protocol
