// SPDX-License-Identifier: BSD-2-Clause
// Fast path of messages in. Most are eager, and find a receive of one buffer that is posted and
// long enough. They go the shortest way from the completion queue to the application's. The code is
// inlined where the channel finds them; everything else goes by EndpointImpl::received().
#pragma once

#include <rdma/fi_endpoint.h>

#include <cstring>

#include "common/copy.h"
#include "protocol/endpoint_impl.h"
#include "protocol/tag/matcher_tables.h"
#include "protocol/transport/channel_poll.h"

namespace heddle::protocol {

[[gnu::always_inline]] inline void EndpointImpl::take_message(std::span<const std::byte> bytes,
                                                              bool has_immediate,
                                                              std::uint32_t immediate,
                                                              std::uint32_t qpn) {
    const std::uint64_t start = word_at(bytes.data());
    // Kind, flags, both endpoints and the sequence at once.
    Peer* peer = &peers.last_source();
    if (!peers.is_next_of_last_source(start & ~kTaggedStart, qpn)) [[unlikely]] {
        const std::uint16_t to = destination_of(bytes.data());
        if (to != name.endpoint)
            return channel->users().hand_over(to, bytes, has_immediate, immediate, qpn);
        peer = peers.source(qpn, source_of(bytes.data()));
        if (peer == nullptr || (start & ~kTaggedStart) != peer->incoming.expected)
            return received_by(peer, bytes, has_immediate, immediate);
    }
    take_eager(*peer, (start & kTaggedStart) != 0, bytes, has_immediate, immediate);
}

// An eager message without wide data that is its peer's next.
[[gnu::always_inline]] inline void EndpointImpl::take_eager(Peer& peer, bool is_tagged,
                                                            std::span<const std::byte> bytes,
                                                            bool has_immediate,
                                                            std::uint32_t immediate) {
    peer.incoming.count_received();
    ++counts.received;
    const std::uint64_t tag = word_at(bytes.data() + offsetof(Header, tag));
    const std::span<const std::byte> payload = bytes.subspan(sizeof(Header));
    flow_.count_arrived(peer, payload.size());
    PostedReceive* const posted = is_tagged ? receives_.tagged.arrive_quickly(peer.number, tag)
                                            : receives_.untagged.arrive(peer.number, tag);
    if (posted == nullptr) {
        has_enough_ = bindings.receive != nullptr && bindings.receive->has_entry();
        return unexpected_.keep_eager(peer, is_tagged, {tag, immediate, has_immediate}, payload);
    }
    auto& r = static_cast<Receive&>(*posted);
    if (!r.has_plain_room(payload.size())) [[unlikely]]
        return delivery_.deliver(r, peer, {tag, immediate, has_immediate}, payload);
    PlainEntry& entry =
        deliver_whole(r, peer, tag, payload, [&]() -> PlainEntry& { return plain_entry(peer); });
    if (has_immediate) entry.add_data(immediate);
}

// A message that fits (Receive::has_plain_room) goes into the receive. Its report, except remote CQ
// data, goes to the entry that entry_of() gives.
template <class EntryOf>
[[gnu::always_inline]] inline PlainEntry& EndpointImpl::deliver_whole(
    Receive& r, Peer& peer, std::uint64_t tag, std::span<const std::byte> payload,
    const EntryOf& entry_of) {
    const std::size_t bytes = payload.size();
    void* const buffer = r.iov[0].iov_base;
    if (bytes == sizeof(std::uint64_t)) [[likely]] {  // a number is what most messages are
        std::memcpy(buffer, payload.data(), sizeof(std::uint64_t));
    } else {
        if (bytes != 0) common::copy_payload(buffer, payload.data(), bytes);
        flow_.count_taken(peer, bytes);
    }
    PlainEntry& entry = entry_of();
    entry.context = r.context;
    entry.flags = FI_RECV | FI_TAGGED;
    entry.bytes = bytes;
    entry.buffer = buffer;
    entry.data = 0;
    entry.tag = tag;
    receives_.give_back(r);
    return entry;
}

// What read_next() and read_next_inlined() do with the message at `at`.
template <class Message>
[[gnu::always_inline]] inline ReadNext EndpointImpl::take_next_message(const std::byte* at,
                                                                       const Message& message,
                                                                       PlainEntry& entry,
                                                                       bool may_keep) {
    Peer& peer = peers.last_source();
    if (!peers.is_next_of_last_source(word_at(at) ^ kTaggedStart, message.qpn())) [[unlikely]]
        return ReadNext::kNothing;
    return take_next_of(peer, at, message, entry, may_keep);
}

// A tagged one that is the peer's next.
template <class Message>
[[gnu::always_inline]] inline ReadNext EndpointImpl::take_next_of(Peer& peer, const std::byte* at,
                                                                  const Message& message,
                                                                  PlainEntry& entry,
                                                                  bool may_keep) {
    const std::uint64_t tag = word_at(at + sizeof tag);
    const std::size_t bytes = message.bytes() - sizeof(Header);
    PostedReceive* const posted =
        receives_.tagged.arrive_if(peer.number, tag, [&](const PostedReceive& receive) {
            return static_cast<const Receive&>(receive).has_plain_room(bytes);
        });
    if (posted == nullptr) [[unlikely]] {
        if (!may_keep) return ReadNext::kNothing;
        return keep_next(peer, {tag, message.immediate(), message.has_immediate()},
                         {at + sizeof(Header), bytes});
    }
    peer.incoming.count_received();
    ++counts.received;
    flow_.count_arrived(peer, bytes);
    deliver_whole(static_cast<Receive&>(*posted), peer, tag, {at + sizeof(Header), bytes},
                  [&]() -> PlainEntry& { return entry; });
    if (message.has_immediate()) entry.add_data(message.immediate());
    return ReadNext::kEntry;
}

// Gives the next message to the reader at once, if it comes from the last sender and is as most
// are: for the first receive of its bucket, or for none that is posted. On the direct path only.
[[gnu::always_inline]] inline ReadNext EndpointImpl::read_next(PlainEntry& entry, bool may_keep) {
    ReadNext read = ReadNext::kNothing;
    channel->take_next([&](const std::byte* at, const auto& message) {
        read = take_next_message(at, message, entry, may_keep);
        return read != ReadNext::kNothing;
    });
    return read;
}

// The same of a message whose bytes are in the completion queue entry. By itself, so that the other
// costs nothing more.
inline ReadNext EndpointImpl::read_next_inlined(PlainEntry& entry, bool may_keep) {
    ReadNext read = ReadNext::kNothing;
    channel->take_next_inlined([&](const std::byte* at, const auto& message) {
        read = take_next_message(at, message, entry, may_keep);
        return read != ReadNext::kNothing;
    });
    return read;
}

[[gnu::always_inline]] inline bool EndpointImpl::is_quiet() noexcept {
    return is_device_alone_ && !channel->has_completion() &&
           !channel->users().is_anybody_waiting() && ++ticks_ < kTickEvery;
}

// As read_next(), of what lies in shared memory.
inline ReadNext EndpointImpl::read_next_by_shm(PlainEntry& entry, bool may_keep, bool& is_quiet) {
    struct Found {
        const ShmReceiver::Found& found;
        std::size_t bytes() const noexcept { return found.bytes.size(); }
        bool has_immediate() const noexcept { return found.has_immediate; }
        std::uint32_t immediate() const noexcept { return found.immediate; }
    };
    ReadNext read = ReadNext::kNothing;
    const LocalPeers::Next next = local.take_next([&](Peer& peer, const ShmReceiver::Found& found) {
        read = take_next_of(peer, found.bytes.data(), Found{found}, entry, may_keep);
        return read != ReadNext::kNothing;
    });
    is_quiet = next == LocalPeers::Next::kNothing && !channel->has_completion() &&
               !channel->users().is_anybody_waiting() && !rendezvous_.is_reading() &&
               !local.is_opening() && !rails;
    return read;
}

}  // namespace heddle::protocol
