// SPDX-License-Identifier: BSD-2-Clause
// Messages in: receives that are posted, messages that arrive, and whichever of both waits for the
// other.
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "heddle/detail/assert.h"
#include "protocol/tuples.h"

namespace heddle::protocol {
namespace {

// Bytes that fit; the rest of the message is cut off.
std::size_t scatter(const iovec* iov, std::size_t count, std::span<const std::byte> from) noexcept {
    std::size_t done = 0;
    for (std::size_t i = 0; i < count && done < from.size(); ++i) {
        const std::size_t bytes = std::min(iov[i].iov_len, from.size() - done);
        if (bytes != 0) std::memcpy(iov[i].iov_base, from.data() + done, bytes);
        done += bytes;
    }
    return done;
}

}  // namespace

ssize_t EndpointImpl::receive(const ReceiveArguments& a) {
    if (a.iov_count > kMaxSegments) return -FI_EINVAL;
    if (a.flags & (FI_PEEK | FI_CLAIM | FI_DISCARD) && a.flags & FI_TAGGED) return peek(a);
    Receive& r = new_receive(a);
    constexpr std::uint64_t kPlain = FI_TAGGED | FI_COMPLETION;
    const bool plain = a.iov_count == 1 && (a.flags & (kPlain | FI_MULTI_RECV)) == kPlain &&
                       bindings.receive != nullptr && bindings.receive_counter == nullptr;
    r.plain_room = plain ? static_cast<std::int64_t>(r.bytes) : -1;
    const Peer* failed = nullptr;
    if (a.from != FI_ADDR_UNSPEC) {
        const Peer* const peer = peers.at(a.from);
        if (peer == nullptr) {
            receives.give_back(r);
            return -FI_EINVAL;
        }
        r.source = peer->number;
        if (peer->failed != 0) [[unlikely]]
            failed = peer;
    }
    r.tag = a.tag;
    r.ignore = a.ignore;
    Matcher& matcher = a.flags & FI_TAGGED ? tagged : untagged;
    r.stays = a.flags & FI_MULTI_RECV;
    if (tuples && a.flags & FI_TAGGED && tuples->receiver.take(r)) return 0;
    if (!r.stays) [[likely]] {
        if (UnexpectedMessage* const message = matcher.post(r)) {
            deliver(r, static_cast<Unexpected&>(*message));
        } else if (failed != nullptr) [[unlikely]] {
            matcher.take(r);
            end_unmatched(r, FI_ECONNRESET);
        }
        return 0;
    }
    // Takes all messages that are there, as long as it has room.
    while (!r.exhausted) {
        UnexpectedMessage* const message = matcher.post(r);
        if (message == nullptr) break;
        deliver(r, static_cast<Unexpected&>(*message));
    }
    return 0;
}

void EndpointImpl::cancelled(Receive& r) { end_unmatched(r, FI_ECANCELED); }

void EndpointImpl::end_unmatched(Receive& r, int error) {
    CompletionEntry entry;
    entry.context = r.context;
    entry.flags = FI_RECV | (r.flags & FI_TAGGED ? FI_TAGGED : FI_MSG);
    if (r.flags & FI_MULTI_RECV) entry.flags |= FI_MULTI_RECV;
    entry.tag = r.tag;
    entry.error = error;
    r.exhausted = true;
    if (CompletionEntry* const slot = receive_entry(r, entry.flags, entry.error)) *slot = entry;
    if (r.parts == 0) receives.give_back(r);
}

// Whatever is not taken by take_message().
void EndpointImpl::received(std::span<const std::byte> bytes, bool has_immediate,
                            std::uint32_t immediate, std::uint32_t qpn) {
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    Peer* const peer = peers.source(qpn, header.source);
    if (peer == nullptr) {
        ++counts.protocol_errors;
        return;
    }
    received_from(*peer, header, bytes, has_immediate, immediate);
}

// `header` is a copy of where the bytes begin: the writer of a ring may change these meanwhile.
void EndpointImpl::received_from(Peer& peer, const Header& header, std::span<const std::byte> bytes,
                                 bool has_immediate, std::uint32_t immediate) {
    // What had been sent before it lies in the ring.
    if (is_sequenced(header.kind) && header.sequence != peer.incoming.expected_sequence() &&
        rings.has_ring_here(peer))
        read_ring(peer);
    ++counts.received;
    if (header.kind == Kind::kEager) {
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
        arrived(peer, header, bytes.subspan(at), data, has_immediate);
        return;
    }
    Message message;
    if (!parse(bytes, has_immediate, immediate, message)) return protocol_error(peer);
    switch (header.kind) {
        case Kind::kRts:
        case Kind::kAtomic:
        case Kind::kTupleBegin:
            if (header.sequence != peer.incoming.expected_sequence()) return protocol_error(peer);
            peer.incoming.count_received();
            if (header.kind == Kind::kRts)
                arrived_rts(peer, message);
            else if (header.kind == Kind::kAtomic)
                atomics.on_request(peer, message);
            else
                got_tuple(peer, message);
            break;
        case Kind::kCts:
            got_cts(peer, message);
            break;
        case Kind::kFin:
            got_fin(peer, message.fin);
            break;
        case Kind::kCredit:
            peer.unacked_eager_bytes -=
                std::min<std::size_t>(peer.unacked_eager_bytes, message.credit.bytes);
            break;
        case Kind::kData: {
            // Nobody counts which of the entries that wait to be read are of this peer.
            const std::size_t waiting = bindings.receive != nullptr
                                            ? bindings.receive->size() * sizeof(CompletionEntry)
                                            : 0;
            if (waiting > options.unexpected_limit && !may_keep(peer, waiting)) break;
            CompletionEntry entry;
            entry.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
            entry.bytes = message.written.bytes;
            entry.data = message.data;
            entry.source = peers.address_of(peer);
            if (bindings.receive != nullptr) bindings.receive->push() = entry;
            if (bindings.remote_write_counter != nullptr) bindings.remote_write_counter->add(true);
            break;
        }
        case Kind::kAtomicReply:
            atomics.on_reply(peer, message);
            break;
        case Kind::kRing:
        case Kind::kRingTaken:
        case Kind::kRingStop:
        case Kind::kRingEnd:
            rings.on_message(peer, message);
            break;
        case Kind::kTupleOpen:
        case Kind::kTupleAnswer:
        case Kind::kTupleRevoke:
        case Kind::kTupleDrained:
        case Kind::kTupleClosed:
        case Kind::kTupleEnd:
            got_tuple(peer, message);
            break;
        case Kind::kEager:
            break;
    }
}

// The sender's own limits are not believed: a peer that makes this process keep more than the limit
// fails, and what comes of it after that is dropped.
bool EndpointImpl::may_keep(Peer& peer, std::size_t bytes) {
    if (peer.kept + bytes <= options.unexpected_limit) [[likely]]
        return true;
    if (peer.failed == 0) {
        complain_of(peer, "no more is taken from a peer that has sent " +
                              std::to_string(peer.kept + bytes) +
                              " bytes of messages and remote completions for which there is no "
                              "receive (FI_HEDDLE_UNEXPECTED_LIMIT)");
        refuse(peer, ENOBUFS);
    }
    return false;
}

void EndpointImpl::arrived(Peer& peer, const Header& header, std::span<const std::byte> payload,
                           std::uint64_t data, bool has_data) {
    Matcher& matcher = header.flags & Header::kTagged ? tagged : untagged;
    if (PostedReceive* const posted = matcher.arrive(peer.number, header.tag)) [[likely]] {
        deliver(static_cast<Receive&>(*posted), peer, header.tag, payload, data, has_data);
        return;
    }
    keep_eager(peer, header.flags & Header::kTagged, header.tag, payload, data, has_data);
}

// There is no receive for it yet.
void EndpointImpl::keep_eager(Peer& peer, bool is_tagged, std::uint64_t tag,
                              std::span<const std::byte> payload, std::uint64_t data,
                              bool has_data) {
    if (!may_keep(peer, sizeof(Unexpected) + payload.size())) return;
    auto* const message = new Unexpected;
    message->source = peer.number;
    message->tag = tag;
    message->peer = &peer;
    message->data = has_data ? data : 0;
    message->has_data = has_data;
    message->bytes = payload.size();
    message->place = peer.incoming.number_received();
    message->payload.assign(payload.begin(), payload.end());
    peer.kept += message->memory();
    ++counts.unexpected;
    unexpected_bytes += payload.size();
    counts.unexpected_bytes_peak = std::max(counts.unexpected_bytes_peak, unexpected_bytes);
    (is_tagged ? tagged : untagged).keep(*message);
}

void EndpointImpl::arrived_rts(Peer& peer, const Message& message) {
    const bool by_put = message.header.flags & Header::kPut;
    const std::span<const Segment> segments{message.segments, message.rts.segments};
    if (closing) return refuse_rendezvous(peer, message.rts.operation, by_put, ECONNRESET);
    Matcher& matcher = message.header.flags & Header::kTagged ? tagged : untagged;
    if (PostedReceive* const posted = matcher.arrive(peer.number, message.header.tag)) {
        begin_rendezvous(part_of(static_cast<Receive&>(*posted), message.rts.bytes), peer,
                         message.header.tag, message.data, message.has_data, message.rts.operation,
                         message.rts.bytes, segments, by_put);
        return;
    }
    if (!may_keep(peer, sizeof(Unexpected))) return;
    auto* const kept = new Unexpected;
    kept->source = peer.number;
    kept->tag = message.header.tag;
    kept->peer = &peer;
    kept->data = message.data;
    kept->has_data = message.has_data;
    kept->rendezvous = true;
    kept->by_put = by_put;
    kept->bytes = message.rts.bytes;
    kept->operation = message.rts.operation;
    kept->segment_count = segments.size();
    std::copy(segments.begin(), segments.end(), kept->segments.begin());
    peer.kept += kept->memory();
    ++counts.unexpected;
    kept->place = peer.incoming.number_received();
    if (!(message.header.flags & Header::kLater)) return matcher.keep(*kept);
    kept->place -= 1 + std::min(message.place.behind, kept->place - 1);
    kept->order = message.place.order;
    matcher.keep_in_place(*kept);
}

// What a message of that size goes into: the receive itself, or a part of one for many messages.
Receive& EndpointImpl::part_of(Receive& whole, std::size_t bytes) {
    if (!(whole.flags & FI_MULTI_RECV)) return whole;
    Receive& part = receives.take();
    part.endpoint = this;
    part.context = whole.context;
    part.flags = whole.flags;
    part.parent = &whole;
    part.iov_count = 1;
    part.bytes = whole.bytes - whole.used;
    part.iov[0] = {static_cast<std::byte*>(whole.iov[0].iov_base) + whole.used, part.bytes};
    whole.used += std::min(bytes, part.bytes);
    ++whole.parts;
    if (whole.bytes - whole.used < min_multi_receive || whole.used == whole.bytes) {
        whole.exhausted = true;
        if (whole.queued) (whole.flags & FI_TAGGED ? tagged : untagged).take(whole);
    }
    return part;
}

void EndpointImpl::deliver(Receive& whole, Peer& peer, std::uint64_t tag,
                           std::span<const std::byte> payload, std::uint64_t data, bool has_data) {
    Receive& r = part_of(whole, payload.size());
    const std::size_t taken = scatter(r.iov.data(), r.iov_count, payload);
    took(peer, payload.size());
    finish(r, peer, tag, data, has_data, r.iov_count != 0 ? r.iov[0].iov_base : nullptr,
           payload.size(), taken, 0, 0);
}

void EndpointImpl::deliver(Receive& whole, Unexpected& message) {
    Peer& peer = *message.peer;
    if (message.rendezvous) {
        begin_rendezvous(part_of(whole, message.bytes), peer, message.tag, message.data,
                         message.has_data, message.operation, message.bytes,
                         {message.segments.data(), message.segment_count}, message.by_put);
    } else {
        deliver(whole, peer, message.tag, message.payload, message.data, message.has_data);
    }
    discard(message);
}

void EndpointImpl::discard(Unexpected& message) {
    HEDDLE_ASSERT(message.peer->kept >= message.memory());
    message.peer->kept -= message.memory();
    unexpected_bytes -= message.payload.size();
    delete &message;
}

// A message is in its receive, as far as it fits.
void EndpointImpl::finish(Receive& r, Peer& peer, std::uint64_t tag, std::uint64_t data,
                          bool has_data, void* buffer, std::size_t bytes, std::size_t taken,
                          int error, int device_error) {
    std::uint64_t flags = FI_RECV | (r.flags & FI_TAGGED ? FI_TAGGED : FI_MSG);
    if (has_data) flags |= FI_REMOTE_CQ_DATA;
    std::size_t overlong = 0;
    if (error == 0 && taken < bytes) [[unlikely]] {
        error = FI_ETRUNC;
        overlong = bytes - taken;
    }
    if (r.parent != nullptr) {
        Receive& whole = *r.parent;
        if (--whole.parts == 0 && whole.exhausted) {
            flags |= FI_MULTI_RECV;
            receives.give_back(whole);
        }
    }
    if (CompletionEntry* const entry = receive_entry(r, flags, error)) {
        entry->context = r.context;
        entry->flags = flags;
        entry->bytes = taken;
        entry->buffer = buffer;
        entry->data = has_data ? data : 0;
        entry->tag = tag;
        entry->source = peers.address_of(peer);
        entry->error = error;
        entry->device_error = device_error;
        entry->overlong = overlong;
    }
    receives.give_back(r);
}

// The entry of a message of that peer. The caller fills in what every entry has.
[[gnu::noinline]] PlainEntry& EndpointImpl::push_plain(Peer& peer) {
    CompletionEntry& entry = bindings.receive->push_unset();
    entry.source = peers.address_of(peer);
    entry.error = entry.device_error = 0;
    entry.overlong = 0;
    return entry;
}

// Counts the end of a receive. Returns the entry that the caller fills in whole, or nullptr.
CompletionEntry* EndpointImpl::receive_entry(const Receive& r, std::uint64_t flags, int error) {
    if (bindings.receive_counter != nullptr) bindings.receive_counter->add(error == 0);
    if (bindings.receive == nullptr) return nullptr;
    if (r.flags & FI_COMPLETION || error != 0 || flags & FI_MULTI_RECV) [[likely]]
        return &bindings.receive->push_unset();
    return nullptr;
}

// Eager payload of a peer has left our memory: it may send as much again.
void EndpointImpl::took(Peer& peer, std::size_t bytes) {
    if (bytes <= kFreeBytes) return;
    peer.credit_due += bytes;
    if (peer.credit_due < options.unexpected_bytes / 4) return;
    const CreditBody credit{peer.credit_due};
    peer.credit_due = 0;
    control(peer, Kind::kCredit, credit);
}

}  // namespace heddle::protocol
