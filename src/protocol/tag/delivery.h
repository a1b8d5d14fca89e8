// SPDX-License-Identifier: BSD-2-Clause
// Messages and receives that have found each other, and messages that have found none yet.
// Threads: the endpoint's.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "protocol/core/core_services.h"
#include "protocol/eager/flow_control.h"
#include "protocol/rndv/rendezvous.h"
#include "protocol/tag/receives.h"
#include "protocol/tag/unexpected.h"

namespace heddle::protocol {

class Delivery final : public RendezvousUser {
public:
    // Keeps references to all arguments.
    Delivery(CoreServices& core, Receives& receives, UnexpectedMessages& unexpected,
             FlowControl& flow, MessageFetcher& fetcher) noexcept
        : core_(core),
          receives_(receives),
          unexpected_(unexpected),
          flow_(flow),
          fetcher_(fetcher) {}

    // The peer's next message has come: an eager one, or an RTS.
    void on_eager(Peer& peer, bool is_tagged, const MessageInfo& info,
                  std::span<const std::byte> payload);
    void on_eager(Peer& peer, bool is_tagged, const MessageInfo& info,
                  std::unique_ptr<std::byte[]> payload, std::size_t bytes);
    void on_rts(Peer& peer, const Message& message);
    // So much of an eager message of that size has been copied into its receive, which ends.
    void end_copied(Receive& receive, Peer& peer, const MessageInfo& info, std::size_t bytes,
                    std::size_t taken);
    // The receive takes it. Neither is queued.
    void deliver(Receive& receive, Peer& peer, const MessageInfo& info,
                 std::span<const std::byte> payload);
    void deliver(Receive& receive, Unexpected& message);
    // The application does not want one that is not queued any more.
    void discard(Unexpected& message);
    // There will be no receive for what is queued: the senders need not wait.
    void refuse_all();

private:
    void on_fetched(Receive& receive, Peer& peer, const AnnouncedMessage& message,
                    std::size_t taken, int error, int device_error) override;
    void fetch(Receive& receive, Peer& peer, const AnnouncedMessage& message,
               std::span<const Segment> segments);

    CoreServices& core_;
    Receives& receives_;
    UnexpectedMessages& unexpected_;
    FlowControl& flow_;
    MessageFetcher& fetcher_;
};

}  // namespace heddle::protocol
