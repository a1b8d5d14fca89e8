// SPDX-License-Identifier: BSD-2-Clause
// Who may write its eager messages into a ring here, and what comes by them; and the other end, at
// who writes. The peers that talk most have one: who has sent kTalks messages within a second is
// offered a ring while there are some, or that of one who has sent nothing for a second.
//
// A ring goes in two steps: kRingStop to who writes, who answers by kRingEnd behind its last write.
#include <algorithm>

#include "heddle/error.h"
#include "protocol/receive_fast_path.h"

namespace heddle::protocol {
namespace {

constexpr std::uint16_t kTalks = 32;
constexpr std::uint32_t kSlots = 128;
// Of 16 bits of a sequence number, a part in which they cannot be mistaken.
constexpr std::uint64_t kCountAgain = 8192;

}  // namespace

// All that has come in order.
unsigned EndpointImpl::take_from_rings(unsigned most) {
    unsigned taken = 0;
    for (Peer* const peer : ringed)
        if (taken < most) taken += take_from_ring(*peer, most - taken);
    return taken;
}

[[gnu::flatten]] unsigned EndpointImpl::take_from_ring(Peer& peer, unsigned most) {
    ReceiveRing& ring = *peer.receive_ring;
    if (ring.broken) [[unlikely]]
        return 0;
    ReceiveRing::Found found;
    unsigned taken = 0;
    for (; taken < most; ++taken) {
        const ReceiveRing::Next next = ring.next(found);
        if (next == ReceiveRing::Next::kNothing) [[likely]]
            break;
        if (next == ReceiveRing::Next::kBroken) {
            ring.broken = true;
            protocol_error(peer);
            break;
        }
        const std::uint64_t start = word_at(found.bytes.data());
        if ((start & ~kTaggedStart) == peer.incoming.expected) [[likely]] {
            take_eager(peer, (start & kTaggedStart) != 0, found.bytes, found.has_immediate,
                       found.immediate);
        } else {
            Header header;
            std::memcpy(&header, found.bytes.data(), sizeof header);
            const auto distance =
                static_cast<std::int16_t>(header.sequence - peer.incoming.expected_sequence());
            const bool good = header.kind == Kind::kEager && header.source == peer.name.endpoint &&
                              header.destination == name.endpoint && distance >= 0;
            if (good && distance > 0) break;  // a SEND's turn
            if (!good) {
                ring.broken = true;
                protocol_error(peer);
                break;
            }
            received_from(peer, header, found.bytes, found.has_immediate, found.immediate);
        }
        ring.pop();
        if (ring.has_news()) control(peer, Kind::kRingTaken, ring.news());
    }
    counts.from_rings += taken;
    return taken;
}

// From time to time, as messages come; long_since: a second has passed since it last was true.
void EndpointImpl::look_who_talks(bool long_since) {
    for (const auto& peer : peers)
        peer->incoming.number_received();
    look_who_talks_at = tuples ? counts.received + kCountAgain : ~std::uint64_t{0};
    if (options.rings == 0 || no_rings || closing) return;
    look_who_talks_at = counts.received + std::max<std::uint64_t>(2 * kTalks, peers.size());
    Peer* silent = nullptr;
    Peer* talker = nullptr;
    for (const auto& peer : peers) {
        const auto sent = static_cast<std::uint16_t>(peer->incoming.expected_sequence() -
                                                     peer->sequence_looked_at);
        if (long_since) peer->sequence_looked_at = peer->incoming.expected_sequence();
        if (peer->failed != 0) continue;
        if (peer->receive_ring != nullptr) {
            if (long_since && sent == 0 && !peer->receive_ring->stopping) silent = peer.get();
        } else if (sent >= kTalks) {
            talker = peer.get();
        }
    }
    if (talker == nullptr) return;
    if (ringed.size() < options.rings)
        offer_ring(*talker);
    else if (silent != nullptr)
        stop_ring(*silent);  // the next time there is room
}

void EndpointImpl::offer_ring(Peer& peer) {
    try {
        peer.receive_ring = std::make_unique<ReceiveRing>(
            domain->body().context->pd.get(), kSlots,
            sizeof(Header) + sizeof(std::uint64_t) + options.ring_bytes);
    } catch (const VerbsError&) {  // no memory that could be registered: by SEND, then
        no_rings = true;
        return;
    }
    ++counts.rings;
    ringed.push_back(&peer);
    control(peer, Kind::kRing, peer.receive_ring->offer());
}

void EndpointImpl::stop_ring(Peer& peer) {
    peer.receive_ring->stopping = true;
    control(peer, Kind::kRingStop, std::span<const std::byte>{}, {});
}

// Whoever is going to sleep wants none. True: nothing comes by rings any more.
bool EndpointImpl::stop_rings() {
    no_rings = true;
    bool all = true;
    for (Peer* const peer : ringed) {
        if (peer->failed != 0) continue;
        all = false;
        if (!peer->receive_ring->stopping) stop_ring(*peer);
    }
    return all;
}

void EndpointImpl::got_ring(Peer& peer, const RingBody& ring) {
    if (peer.send_ring != nullptr) return protocol_error(peer);
    peer.send_ring = std::make_unique<SendRing>(ring);
    look_if_open(peer);
}

void EndpointImpl::got_ring_taken(Peer& peer, const RingTakenBody& news) {
    // What was under way when the ring ended is of no use.
    if (peer.send_ring != nullptr && !peer.send_ring->took(news.taken)) protocol_error(peer);
}

void EndpointImpl::got_ring_stop(Peer& peer) {
    if (peer.send_ring == nullptr) return protocol_error(peer);
    peer.send_ring.reset();
    look_if_open(peer);
    control(peer, Kind::kRingEnd, std::span<const std::byte>{}, {});
}

void EndpointImpl::got_ring_end(Peer& peer) {
    if (peer.receive_ring == nullptr || !peer.receive_ring->stopping) return protocol_error(peer);
    take_from_ring(peer, ~0u);
    std::erase(ringed, &peer);
    peer.receive_ring.reset();
}

}  // namespace heddle::protocol
