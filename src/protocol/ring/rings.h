// SPDX-License-Identifier: BSD-2-Clause
// Which peers may write their eager messages into a ring here, and which rings of peers this
// endpoint writes into. The peers that talk most have one: a peer that has sent kTalks messages
// within a second is offered a ring while there are some, or the ring of one that has sent nothing
// for a second.
//
// A ring goes in two steps: kRingStop to the writer, which answers by kRingEnd behind its last
// write. That of a peer that has failed goes at the next look. Threads: the endpoint's.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "protocol/core/core_services.h"
#include "protocol/ring/eager_ring.h"

namespace heddle::protocol {

// Reads all that has come by the ring of a peer: Rings::take_from() with the endpoint's reader.
class RingReader {
public:
    virtual void read_ring(Peer& peer) = 0;

protected:
    ~RingReader() = default;
};

class Rings {
public:
    // All are kept. Rings are registered in the protection domain. No peer is offered a ring where
    // writes are not seen in order, as the end of a message would say nothing of the rest.
    Rings(CoreServices& core, RingReader& reader, ibv_pd* pd,
          bool sees_writes_in_order = kSeesWritesInOrder) noexcept
        : core_(core), reader_(reader), pd_(pd), wants_none_(!sees_writes_in_order) {}
    Rings(const Rings&) = delete;
    Rings& operator=(const Rings&) = delete;

    // The ring at that peer, or nullptr.
    SendRing* ring_at(const Peer& peer) const noexcept {
        return peer.number < by_peer_.size() ? by_peer_[peer.number].out.get() : nullptr;
    }
    // That peer has a ring here.
    bool has_ring_here(const Peer& peer) const noexcept { return ring_here(peer) != nullptr; }
    bool empty() const noexcept { return writers_.empty(); }

    // Takes up to `most` messages of all rings, in the order of each, and returns their number. The
    // reader's take_next(peer, found) takes an eager message that is the peer's next;
    // take_other(peer, header, found) another one that may lie here.
    template <class Reader>
    unsigned take_from_all(unsigned most, Reader& reader);
    template <class Reader>
    unsigned take_from(Peer& peer, unsigned most, Reader& reader);

    // Looks for peers that shall have a ring, or not any more, as messages come. long_since: a
    // second has passed since it last was true. Returns after how many more messages it wants to
    // look again.
    std::uint64_t look_who_talks(bool long_since);
    // An endpoint that is going to sleep wants none, as a ring wakes nobody. True: nothing comes by
    // rings any more.
    bool stop_all();

    // kRing, kRingTaken, kRingStop, kRingEnd.
    void on_message(Peer& peer, const Message& message);

    static constexpr std::uint64_t kNever = ~std::uint64_t{0};

private:
    struct OfPeer {
        std::unique_ptr<SendRing> out;         // while it offers one
        std::unique_ptr<ReceiveRing> in;       // while it has one here
        std::uint16_t sequence_looked_at = 0;  // the peer's next, up to a second ago
    };
    ReceiveRing* ring_here(const Peer& peer) const noexcept {
        return peer.number < by_peer_.size() ? by_peer_[peer.number].in.get() : nullptr;
    }
    OfPeer& of(const Peer& peer);
    void free_those_of_failed_peers();
    void offer(Peer& peer);
    void stop(Peer& peer);
    void on_offer(Peer& peer, const RingBody& ring);
    void on_taken(Peer& peer, const RingTakenBody& news);
    void on_stop(Peer& peer);
    void on_end(Peer& peer);

    CoreServices& core_;
    RingReader& reader_;
    ibv_pd* const pd_;
    std::vector<OfPeer> by_peer_;  // by Peer::number; as many as were asked for
    std::vector<Peer*> writers_;   // those with a ring here
    bool wants_none_;  // they are not possible, the endpoint sleeps, or there is no memory for more
};

template <class Reader>
unsigned Rings::take_from_all(unsigned most, Reader& reader) {
    unsigned taken = 0;
    for (Peer* const peer : writers_)
        if (taken < most) taken += take_from(*peer, most - taken, reader);
    return taken;
}

template <class Reader>
unsigned Rings::take_from(Peer& peer, unsigned most, Reader& reader) {
    ReceiveRing& ring = *ring_here(peer);
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
            core_.protocol_error(peer);
            break;
        }
        const std::uint64_t start = word_at(found.bytes.data());
        if ((start & ~kTaggedStart) == peer.incoming.expected) [[likely]] {
            reader.take_next(peer, found);
        } else {
            Header header;
            std::memcpy(&header, found.bytes.data(), sizeof header);
            const auto distance =
                static_cast<std::int16_t>(header.sequence - peer.incoming.expected_sequence());
            const bool good = header.kind == Kind::kEager && header.source == peer.name.endpoint &&
                              header.destination == core_.name.endpoint && distance >= 0;
            if (good && distance > 0) break;  // a SEND's turn
            if (!good) {
                ring.broken = true;
                core_.protocol_error(peer);
                break;
            }
            reader.take_other(peer, header, found);
        }
        ring.pop();
        if (ring.has_news()) core_.control(peer, Kind::kRingTaken, ring.news());
    }
    core_.counts.from_rings += taken;
    return taken;
}

}  // namespace heddle::protocol
