// SPDX-License-Identifier: BSD-2-Clause
// Messages that wait for a receive: see unexpected.h.
#include "protocol/tag/unexpected.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "heddle/detail/assert.h"

namespace heddle::protocol {

UnexpectedMessages::~UnexpectedMessages() {
    for (Matcher* const matcher : {&receives_.tagged, &receives_.untagged})
        while (UnexpectedMessage* const message = matcher->any_message())
            delete static_cast<Unexpected*>(message);
    while (free_ != nullptr)
        delete std::exchange(free_, free_->next_free);
}

[[gnu::cold]] void UnexpectedMessages::make_room() { kept_.resize(core_.peers.size()); }

[[gnu::cold]] void UnexpectedMessages::refuse(Peer& peer, std::size_t wanted) {
    if (peer.failed != 0) return;
    core_.complain_of(peer, "no more is taken from a peer that has sent " + std::to_string(wanted) +
                                " bytes of messages and remote completions for which there is no "
                                "receive (FI_HEDDLE_UNEXPECTED_LIMIT)");
    core_.refuse(peer, ENOBUFS);
}

inline Unexpected& UnexpectedMessages::make(Peer& peer, const MessageInfo& info) {
    Unexpected* message = free_;
    if (message != nullptr) [[likely]] {
        free_ = message->next_free;
        --free_count_;
    } else {
        message = new Unexpected;
    }
    HEDDLE_DEBUG_ASSERT(!message->queued && message->payload().empty(), "its last use has ended");
    message->order = 0;
    message->is_announced = false;
    message->source = peer.number;
    message->tag = info.tag;
    message->peer = &peer;
    message->info = info;
    if (!info.has_data) message->info.data = 0;
    message->place = peer.incoming.number_received();
    ++core_.counts.unexpected;
    return *message;
}

// An eager message, which is whole.
inline void UnexpectedMessages::keep(Unexpected& message, bool is_tagged) {
    kept_of(*message.peer) += message.memory();
    payload_bytes_ += message.payload().size();
    core_.counts.unexpected_bytes_peak =
        std::max<std::uint64_t>(core_.counts.unexpected_bytes_peak, payload_bytes_);
    receives_.matcher(is_tagged).keep(message);
}

// Flat: in a burst, most messages come this way.
[[gnu::flatten]] void UnexpectedMessages::keep_eager(Peer& peer, bool is_tagged,
                                                     const MessageInfo& info,
                                                     std::span<const std::byte> payload) {
    if (!may_keep(peer, sizeof(Unexpected) + payload.size())) return;
    Unexpected& message = make(peer, info);
    message.set_payload(payload);
    keep(message, is_tagged);
}

void UnexpectedMessages::keep_eager(Peer& peer, bool is_tagged, const MessageInfo& info,
                                    std::unique_ptr<std::byte[]> payload, std::size_t bytes) {
    if (!may_keep(peer, sizeof(Unexpected) + bytes)) return;
    Unexpected& message = make(peer, info);
    message.set_payload(std::move(payload), bytes);
    keep(message, is_tagged);
}

void UnexpectedMessages::keep_announced(Peer& peer, bool is_tagged,
                                        const AnnouncedMessage& announced,
                                        std::span<const Segment> segments, const PlaceBody* late) {
    if (!may_keep(peer, sizeof(Unexpected))) return;
    Unexpected& message = make(peer, announced.info);
    message.is_announced = true;
    message.announced = announced;
    message.segment_count = segments.size();
    HEDDLE_ASSERT(segments.size() <= message.segments.size(), "parse() has counted them");
    std::copy(segments.begin(), segments.end(), message.segments.begin());
    kept_of(peer) += message.memory();
    Matcher& matcher = receives_.matcher(is_tagged);
    if (late == nullptr) return matcher.keep(message);
    message.place -= 1 + std::min(late->behind, message.place - 1);
    message.order = late->order;
    matcher.keep_in_place(message);
}

void UnexpectedMessages::release(Unexpected& message) {
    std::size_t& kept = kept_of(*message.peer);
    HEDDLE_ASSERT(kept >= message.memory() && payload_bytes_ >= message.payload().size());
    kept -= message.memory();
    payload_bytes_ -= message.payload().size();
    message.drop_payload();
    if (free_count_ == kMostFree) {
        delete &message;
        return;
    }
    message.next_free = std::exchange(free_, &message);
    ++free_count_;
}

}  // namespace heddle::protocol
