// SPDX-License-Identifier: BSD-2-Clause
// Messages from their fragments: see fragments.h.
#include "protocol/tag/fragments.h"

#include <utility>

#include "common/copy.h"
#include "heddle/detail/assert.h"
#include "protocol/common/iov.h"

namespace heddle::protocol {

void Fragments::on_message(Peer& peer, const Message& message) {
    const FragmentBody& fragment = message.fragment;
    const auto found = partial_.find(&peer);
    Partial* partial = found != partial_.end() ? &found->second : nullptr;
    const std::size_t come = partial != nullptr ? partial->come : 0;
    if (fragment.offset != come || (partial != nullptr && fragment.bytes != partial->bytes))
        return core_.protocol_error(peer);
    if (partial == nullptr) partial = begin(peer, message);
    if (partial == nullptr) return;
    add(*partial, message);
    if (partial->come < partial->bytes) return;
    peer.incoming.count_received();
    Partial whole = std::move(*partial);
    partial_.erase(&peer);
    end(peer, whole);
}

// nullptr: so much may not be kept, and the peer has failed for it.
Fragments::Partial* Fragments::begin(Peer& peer, const Message& message) {
    const std::size_t bytes = message.fragment.bytes;
    const bool is_tagged = message.header.flags & Header::kTagged;
    PostedReceive* const posted =
        receives_.matcher(is_tagged).arrive(peer.number, message.header.tag);
    if (posted == nullptr && !unexpected_.may_keep(peer, sizeof(Unexpected) + bytes))
        return nullptr;
    Partial& partial = partial_[&peer];
    if (posted != nullptr)
        partial.receive = &receives_.part_of(static_cast<Receive&>(*posted), bytes);
    else
        partial.kept.reset(new std::byte[bytes]);
    partial.is_tagged = is_tagged;
    partial.info = {message.header.tag, message.data, message.has_data};
    partial.bytes = bytes;
    partial.rest = OutstandingReply(peer);
    return &partial;
}

void Fragments::add(Partial& partial, const Message& message) {
    const std::size_t offset = partial.come;
    HEDDLE_ASSERT(message.payload.size() <= partial.bytes - offset, "parse() has looked");
    if (partial.receive != nullptr)
        partial.taken += scatter(partial.receive->buffers(), offset, message.payload);
    else
        common::copy_payload(partial.kept.get() + offset, message.payload.data(),
                             message.payload.size());
    partial.come += message.payload.size();
}

void Fragments::end(Peer& peer, Partial& partial) {
    if (partial.receive != nullptr)
        return delivery_.end_copied(*partial.receive, peer, partial.info, partial.bytes,
                                    partial.taken);
    delivery_.on_eager(peer, partial.is_tagged, partial.info, std::move(partial.kept),
                       partial.bytes);
}

void Fragments::on_peer_failed(Peer& peer, int error) {
    const auto found = partial_.find(&peer);
    if (found == partial_.end()) return;
    const Partial partial = std::move(found->second);
    partial_.erase(found);
    if (partial.receive == nullptr) return;
    Receive& receive = *partial.receive;
    receives_.finish(receive, peer, partial.info,
                     {receive.first_buffer(), partial.bytes, 0, error, 0});
}

}  // namespace heddle::protocol
