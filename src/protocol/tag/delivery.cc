// SPDX-License-Identifier: BSD-2-Clause
// Messages into their receives: see delivery.h.
#include "protocol/tag/delivery.h"

#include <cerrno>
#include <utility>

#include "heddle/detail/assert.h"
#include "protocol/common/iov.h"

namespace heddle::protocol {

void Delivery::on_eager(Peer& peer, bool is_tagged, const MessageInfo& info,
                        std::span<const std::byte> payload) {
    PostedReceive* const posted = receives_.matcher(is_tagged).arrive(peer.number, info.tag);
    if (posted != nullptr) [[likely]]
        deliver(static_cast<Receive&>(*posted), peer, info, payload);
    else
        unexpected_.keep_eager(peer, is_tagged, info, payload);
}

void Delivery::on_eager(Peer& peer, bool is_tagged, const MessageInfo& info,
                        std::unique_ptr<std::byte[]> payload, std::size_t bytes) {
    PostedReceive* const posted = receives_.matcher(is_tagged).arrive(peer.number, info.tag);
    if (posted != nullptr)
        deliver(static_cast<Receive&>(*posted), peer, info, {payload.get(), bytes});
    else
        unexpected_.keep_eager(peer, is_tagged, info, std::move(payload), bytes);
}

void Delivery::on_rts(Peer& peer, const Message& message) {
    const bool is_tagged = message.header.flags & Header::kTagged;
    const AnnouncedMessage announced{{message.header.tag, message.data, message.has_data},
                                     message.rts.operation,
                                     (message.header.flags & Header::kPut) != 0,
                                     message.rts.bytes,
                                     message.rts.flags == RtsBody::kByProcess,
                                     message.rts.flags == RtsBody::kRailKeys};
    const std::span<const Segment> segments{message.segments, message.rts.segments};
    if (core_.closing) return fetcher_.refuse(peer, announced.operation, ECONNRESET);
    PostedReceive* const posted =
        receives_.matcher(is_tagged).arrive(peer.number, announced.info.tag);
    if (posted != nullptr) return fetch(static_cast<Receive&>(*posted), peer, announced, segments);
    const bool is_late = message.header.flags & Header::kLater;
    unexpected_.keep_announced(peer, is_tagged, announced, segments,
                               is_late ? &message.place : nullptr);
}

void Delivery::deliver(Receive& whole, Peer& peer, const MessageInfo& info,
                       std::span<const std::byte> payload) {
    Receive& receive = receives_.part_of(whole, payload.size());
    const std::size_t taken = scatter(receive.buffers(), 0, payload);
    end_copied(receive, peer, info, payload.size(), taken);
}

void Delivery::end_copied(Receive& receive, Peer& peer, const MessageInfo& info, std::size_t bytes,
                          std::size_t taken) {
    flow_.count_taken(peer, bytes);
    receives_.finish(receive, peer, info, {receive.first_buffer(), bytes, taken, 0, 0});
}

void Delivery::deliver(Receive& whole, Unexpected& message) {
    HEDDLE_ASSERT(!message.queued);
    Peer& peer = *message.peer;
    if (message.is_announced)
        fetch(whole, peer, message.announced, {message.segments.data(), message.segment_count});
    else
        deliver(whole, peer, message.info, message.payload());
    unexpected_.release(message);
}

void Delivery::fetch(Receive& whole, Peer& peer, const AnnouncedMessage& message,
                     std::span<const Segment> segments) {
    Receive& receive = receives_.part_of(whole, message.bytes);
    fetcher_.fetch(receive, receive.buffers(), receive.bytes, peer, message, segments);
}

void Delivery::on_fetched(Receive& receive, Peer& peer, const AnnouncedMessage& message,
                          std::size_t taken, int error, int device_error) {
    receives_.finish(receive, peer, message.info,
                     {receive.first_buffer(), message.bytes, taken, error, device_error});
}

void Delivery::discard(Unexpected& message) {
    HEDDLE_ASSERT(!message.queued);
    if (message.is_announced)
        fetcher_.refuse(*message.peer, message.announced.operation, 0);
    else
        flow_.count_taken(*message.peer, message.payload().size());
    unexpected_.release(message);
}

void Delivery::refuse_all() {
    for (Matcher* const matcher : {&receives_.tagged, &receives_.untagged})
        while (auto* const message = static_cast<Unexpected*>(matcher->any_message())) {
            if (message->is_announced && message->peer->failed == 0)
                fetcher_.refuse(*message->peer, message->announced.operation, ECONNRESET);
            unexpected_.release(*message);
        }
}

}  // namespace heddle::protocol
