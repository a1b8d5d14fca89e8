// SPDX-License-Identifier: BSD-2-Clause
// What most messages that come are - eager ones, into a receive of one piece that is there and long
// enough - on the shortest way from the completion queue to the application's. Inlined where the
// channel finds them; everything else goes by RdmEndpoint::Body::received().
#pragma once

#include <rdma/fi_endpoint.h>

#include <cstring>

#include "protocol/channel_poll.h"
#include "protocol/endpoint_body.h"
#include "protocol/matcher_tables.h"

namespace heddle::protocol {

[[gnu::always_inline]] inline void RdmEndpoint::Body::take_message(std::span<const std::byte> bytes,
                                                                   bool has_immediate,
                                                                   std::uint32_t immediate,
                                                                   std::uint32_t qpn) {
    const std::uint64_t start = word_at(bytes.data());
    // Kind, flags, both endpoints and the sequence at once.
    Peer* peer = last_source;
    if ((start & ~kTaggedStart) != peer->expected || qpn != last_source_qpn ||
        connector.removals() != source_removals) [[unlikely]] {
        const std::uint16_t to = destination_of(bytes.data());
        if (to != name.endpoint)
            return channel->hand_over(to, bytes, has_immediate, immediate, qpn);
        peer = source(qpn, static_cast<std::uint16_t>(start >> 16));
        if (peer == nullptr || (start & ~kTaggedStart) != peer->expected)
            return received(bytes, has_immediate, immediate, qpn);
    }
    peer->count_received();
    ++counts.received;
    const bool is_tagged = (start & kTaggedStart) != 0;
    const std::uint64_t tag = word_at(bytes.data() + sizeof start);
    const std::span<const std::byte> payload = bytes.subspan(sizeof(Header));
    PostedReceive* const posted =
        is_tagged ? tagged.arrive_quickly(peer->number, tag) : untagged.arrive(peer->number, tag);
    if (posted == nullptr)
        return keep_eager(*peer, is_tagged, tag, payload, immediate, has_immediate);
    auto& r = static_cast<Receive&>(*posted);
    if (!deliver_whole(r, *peer, tag, payload, immediate, has_immediate)) [[unlikely]]
        deliver(r, *peer, tag, payload, immediate, has_immediate);
}

// False: by deliver(), please.
[[gnu::always_inline]] inline bool RdmEndpoint::Body::deliver_whole(
    Receive& r, Peer& peer, std::uint64_t tag, std::span<const std::byte> payload,
    std::uint64_t data, bool has_data) {
    const std::size_t bytes = payload.size();
    if (static_cast<std::int64_t>(bytes) > r.plain_room) [[unlikely]]
        return false;
    void* const buffer = r.iov[0].iov_base;
    if (bytes == sizeof(std::uint64_t)) [[likely]] {  // a number is what most messages are
        std::memcpy(buffer, payload.data(), sizeof(std::uint64_t));
    } else {
        if (bytes != 0) std::memcpy(buffer, payload.data(), bytes);
        took(peer, bytes);
    }
    PlainEntry* const entry = plain_entry(peer);
    entry->context = r.context;
    entry->bytes = bytes;
    entry->buffer = buffer;
    entry->tag = tag;
    if (has_data) {
        entry->flags = FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA;
        entry->data = data;
    } else {
        entry->flags = FI_RECV | FI_TAGGED;
        entry->data = 0;
    }
    receives.give_back(r);
    return true;
}

}  // namespace heddle::protocol
