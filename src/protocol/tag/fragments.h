// SPDX-License-Identifier: BSD-2-Clause
// Messages in that come in fragments (eager/fragment_sender.h). The first fragment looks for a
// receive: there is one, and all are copied into it; or they are put together in memory of ours,
// and the last one looks again. What is not whole is no message yet: no receive that is posted
// meanwhile, and no probe, finds it. That keeps MPI's order, since no other message of the sender
// comes between its fragments. Threads: the endpoint's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "protocol/core/core_services.h"
#include "protocol/core/peer.h"
#include "protocol/tag/delivery.h"
#include "protocol/tag/receives.h"
#include "protocol/tag/unexpected.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

class Fragments {
public:
    // Keeps references to all arguments.
    Fragments(CoreServices& core, Receives& receives, UnexpectedMessages& unexpected,
              Delivery& delivery) noexcept
        : core_(core), receives_(receives), unexpected_(unexpected), delivery_(delivery) {}
    Fragments(const Fragments&) = delete;
    Fragments& operator=(const Fragments&) = delete;

    // The next fragment of that peer, with the expected sequence number, which the last one counts.
    void on_message(Peer& peer, const Message& message);
    // The rest of its message will not come.
    void on_peer_failed(Peer& peer, int error);

private:
    struct Partial {
        Receive* receive = nullptr;         // taken; nullptr: the bytes are kept
        std::unique_ptr<std::byte[]> kept;  // `bytes` of them
        bool is_tagged = false;
        MessageInfo info;
        std::size_t bytes = 0, come = 0, taken = 0;
        OutstandingReply rest;  // a peer that dies is found out
    };
    Partial* begin(Peer& peer, const Message& message);
    void add(Partial& partial, const Message& message);
    void end(Peer& peer, Partial& partial);

    CoreServices& core_;
    Receives& receives_;
    UnexpectedMessages& unexpected_;
    Delivery& delivery_;
    std::unordered_map<const Peer*, Partial> partial_;
};

}  // namespace heddle::protocol
