// SPDX-License-Identifier: BSD-2-Clause
// Messages in that do not take the fast path: to which part of the endpoint each kind goes.
#include <rdma/fi_endpoint.h>

#include <cstring>

#include "heddle/detail/assert.h"
#include "protocol/endpoint_impl.h"
#include "protocol/tag/matcher_tables.h"

namespace heddle::protocol {

// Whatever is not taken by take_message().
void EndpointImpl::received(std::span<const std::byte> bytes, bool has_immediate,
                            std::uint32_t immediate, std::uint32_t qpn) {
    received_by(peers.source(qpn, source_of(bytes.data())), bytes, has_immediate, immediate);
}

// By that peer; nullptr: nobody known.
void EndpointImpl::received_by(Peer* peer, std::span<const std::byte> bytes, bool has_immediate,
                               std::uint32_t immediate) {
    if (peer == nullptr) {
        ++counts.protocol_errors;
        return;
    }
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    received_from(*peer, header, bytes, has_immediate, immediate);
}

// `header` is a copy of where the bytes begin: the writer of a ring may change these meanwhile.
void EndpointImpl::received_from(Peer& peer, const Header& header, std::span<const std::byte> bytes,
                                 bool has_immediate, std::uint32_t immediate) {
    // What had been sent before it lies in the ring.
    if (is_sequenced(header.kind) && header.sequence != peer.incoming.expected_sequence()) {
        if (rings.has_ring_here(peer)) read_ring(peer);
        if (local.has_ring_here(peer)) read_shm(peer);
    }
    ++counts.received;
    if (header.kind == Kind::kEager)
        return received_eager(peer, header, bytes, has_immediate, immediate);
    Message message;
    if (!parse(bytes, has_immediate, immediate, message) || message.header.kind != header.kind)
        return protocol_error(peer);
    if (is_sequenced(header.kind)) {
        if (header.sequence != peer.incoming.expected_sequence()) return protocol_error(peer);
        if (header.kind != Kind::kFragment) peer.incoming.count_received();
    }
    switch (header.kind) {
        case Kind::kFragment:
            flow_.count_fragment_arrived(peer, message.payload.size());
            return fragments_.on_message(peer, message);
        case Kind::kRts:
            if (message.rts.flags == RtsBody::kByProcess && peer.memory == nullptr)
                return protocol_error(peer);
            return delivery_.on_rts(peer, message);
        case Kind::kCts:
        case Kind::kFin:
            return rendezvous_.on_message(peer, message);
        case Kind::kCredit:
            return flow_.on_message(peer, message.credit);
        case Kind::kData:
            return received_data(peer, message);
        case Kind::kAtomic:
            return atomics_.on_request(peer, message);
        case Kind::kAtomicReply:
            return atomics_.on_reply(peer, message);
        case Kind::kRing:
        case Kind::kRingTaken:
        case Kind::kRingStop:
        case Kind::kRingEnd:
            return rings.on_message(peer, message);
        case Kind::kShmOpen:
            return local.on_open(peer, message.shm_open, rings.has_ring_here(peer));
        case Kind::kShmBegin:
            return local.on_begin(peer);
        case Kind::kShmWake:
            return;  // the endpoint makes progress: that is all that was wanted
        case Kind::kRails:
            if (rails) rails->on_message(peer, message.rails);
            return;
        case Kind::kTupleBegin:
        case Kind::kTupleOpen:
        case Kind::kTupleAnswer:
        case Kind::kTupleRevoke:
        case Kind::kTupleDrained:
        case Kind::kTupleClosed:
        case Kind::kTupleEnd:
            if (!tuples) return Tuples::decline(*this, peer, message);
            return tuples->on_message(peer, message);
        case Kind::kEager:
            break;
    }
    HEDDLE_ASSERT(false, "parse() takes no other kinds");
}

// One that the fast path does not take: with wide data, or in a ring that it does not know.
void EndpointImpl::received_eager(Peer& peer, const Header& header,
                                  std::span<const std::byte> bytes, bool has_immediate,
                                  std::uint32_t immediate) {
    if (header.flags & ~(Header::kTagged | Header::kWideData)) return protocol_error(peer);
    std::size_t at = sizeof header;
    std::uint64_t data = immediate;
    if (header.flags & Header::kWideData) {
        if (has_immediate || bytes.size() < at + sizeof data) return protocol_error(peer);
        std::memcpy(&data, bytes.data() + at, sizeof data);
        at += sizeof data;
        has_immediate = true;
    }
    if (header.sequence != peer.incoming.expected_sequence()) return protocol_error(peer);
    peer.incoming.count_received();
    flow_.count_arrived(peer, bytes.size() - at);
    delivery_.on_eager(peer, header.flags & Header::kTagged, {header.tag, data, has_immediate},
                       bytes.subspan(at));
}

// A write of the peer to memory here, with remote CQ data. Nobody counts which of the entries that
// wait to be read are of this peer.
void EndpointImpl::received_data(Peer& peer, const Message& message) {
    const std::size_t waiting =
        bindings.receive != nullptr ? bindings.receive->size() * sizeof(CompletionEntry) : 0;
    if (waiting > options.unexpected_limit && !unexpected_.may_keep(peer, waiting)) return;
    CompletionEntry entry;
    entry.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
    entry.bytes = message.written.bytes;
    entry.data = message.data;
    entry.source = peers.address_of(peer);
    if (bindings.receive != nullptr) bindings.receive->push() = entry;
    if (bindings.remote_write_counter != nullptr) bindings.remote_write_counter->add(true);
}

// An eager message that is its peer's next is kept, unless there may be a receive for it.
[[gnu::noinline]] ReadNext EndpointImpl::keep_next(Peer& peer, const MessageInfo& info,
                                                   std::span<const std::byte> payload) {
    if (!receives_.tagged.has_nothing_for(peer.number, info.tag)) return ReadNext::kNothing;
    peer.incoming.count_received();
    ++counts.received;
    flow_.count_arrived(peer, payload.size());
    unexpected_.keep_eager(peer, true, info, payload);
    return ReadNext::kKept;
}

[[gnu::noinline]] PlainEntry& EndpointImpl::push_plain(Peer& peer) { return queue_entry(peer); }

}  // namespace heddle::protocol
