// SPDX-License-Identifier: BSD-2-Clause
// Which peers have a ring: see rings.h.
#include "protocol/ring/rings.h"

#include <algorithm>

#include "heddle/detail/assert.h"
#include "heddle/error.h"

namespace heddle::protocol {
namespace {

constexpr std::uint16_t kTalks = 32;
constexpr std::uint32_t kSlots = 128;

}  // namespace

Rings::OfPeer& Rings::of(const Peer& peer) {
    if (peer.number >= by_peer_.size()) by_peer_.resize(core_.peers.size());
    HEDDLE_ASSERT(peer.number < by_peer_.size(), "a peer that the endpoint does not have");
    return by_peer_[peer.number];
}

// It has been read. What its writer may still write there is refused by the device.
void Rings::free_those_of_failed_peers() {
    std::erase_if(writers_, [this](const Peer* peer) {
        if (peer->failed != 0) of(*peer).in.reset();
        return peer->failed != 0;
    });
}

std::uint64_t Rings::look_who_talks(bool long_since) {
    free_those_of_failed_peers();
    if (core_.options.rings.peers == 0 || wants_none_ || core_.closing) return kNever;
    Peer* silent = nullptr;
    Peer* talker = nullptr;
    for (const auto& peer : core_.peers) {
        OfPeer& its = of(*peer);
        const auto sent =
            static_cast<std::uint16_t>(peer->incoming.expected_sequence() - its.sequence_looked_at);
        if (long_since) its.sequence_looked_at = peer->incoming.expected_sequence();
        if (peer->failed != 0 || peer->writes_to_us) continue;
        if (its.in != nullptr) {
            if (long_since && sent == 0 && !its.in->stopping) silent = peer.get();
        } else if (sent >= kTalks) {
            talker = peer.get();
        }
    }
    if (talker != nullptr) {
        if (writers_.size() < core_.options.rings.peers)
            offer(*talker);
        else if (silent != nullptr)
            stop(*silent);  // the next time there is room
    }
    return std::max<std::uint64_t>(std::uint64_t{2} * kTalks, core_.peers.size());
}

void Rings::offer(Peer& peer) {
    OfPeer& its = of(peer);
    HEDDLE_ASSERT(its.in == nullptr, "the peer has a ring here");
    try {
        its.in = std::make_unique<ReceiveRing>(
            pd_, kSlots,
            sizeof(Header) + sizeof(std::uint64_t) + core_.options.rings.message_bytes);
    } catch (const VerbsError&) {  // no memory that could be registered: by SEND, then
        wants_none_ = true;
        return;
    }
    ++core_.counts.rings;
    writers_.push_back(&peer);
    core_.control(peer, Kind::kRing, its.in->offer());
}

void Rings::stop(Peer& peer) {
    ring_here(peer)->stopping = true;
    core_.control(peer, Kind::kRingStop, std::span<const std::byte>{}, {});
}

bool Rings::stop_all() {
    wants_none_ = true;
    bool all = true;
    for (Peer* const peer : writers_) {
        if (peer->failed != 0) continue;
        all = false;
        if (!ring_here(*peer)->stopping) stop(*peer);
    }
    return all;
}

void Rings::on_message(Peer& peer, const Message& message) {
    switch (message.header.kind) {
        case Kind::kRing:
            return on_offer(peer, message.ring);
        case Kind::kRingTaken:
            return on_taken(peer, message.ring_taken);
        case Kind::kRingStop:
            return on_stop(peer);
        case Kind::kRingEnd:
            return on_end(peer);
        default:
            HEDDLE_ASSERT(false, "a message of another kind");
    }
}

void Rings::on_offer(Peer& peer, const RingBody& ring) {
    OfPeer& its = of(peer);
    if (its.out != nullptr) return core_.protocol_error(peer);
    its.out = std::make_unique<SendRing>(ring);
    ++peer.other_ways;
    core_.look_if_open(peer);
}

void Rings::on_taken(Peer& peer, const RingTakenBody& news) {
    // What was under way when the ring ended is of no use.
    SendRing* const ring = ring_at(peer);
    if (ring != nullptr && !ring->took(news.taken)) core_.protocol_error(peer);
}

void Rings::on_stop(Peer& peer) {
    if (ring_at(peer) == nullptr) return core_.protocol_error(peer);
    of(peer).out.reset();
    HEDDLE_ASSERT(peer.other_ways != 0);
    --peer.other_ways;
    core_.look_if_open(peer);
    core_.control(peer, Kind::kRingEnd, std::span<const std::byte>{}, {});
}

void Rings::on_end(Peer& peer) {
    const ReceiveRing* const ring = ring_here(peer);
    if (ring == nullptr || !ring->stopping) return core_.protocol_error(peer);
    reader_.read_ring(peer);
    std::erase(writers_, &peer);
    of(peer).in.reset();
}

}  // namespace heddle::protocol
