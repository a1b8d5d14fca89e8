// SPDX-License-Identifier: BSD-2-Clause
// Peers on the same host: their messages lie in shared memory (shm/shm_ring.h), one ring for each
// pair of endpoints and direction, in memory of the sender.
//
// When an endpoint is connected to a peer whose connector has the same host number, it makes a ring
// and says where. The peer maps it and answers in that memory. Then the sender says that it begins.
// The receiver looks there only when it has read that: so whatever was sent before has been dealt
// with. If anything on this way fails, messages go on by SEND. The receiver sends nothing, since an
// endpoint that is gone must not be sent to: that would break the connection of its neighbours.
//
// From then on all messages go by the ring, with few exceptions (Core::send_control,
// EagerSender::post), which go by SEND: those that follow RDMA writes, and those that are too long.
// Both carry sequence numbers, by which the receiver deals with them. Threads: the endpoint's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/core/core_services.h"
#include "protocol/shm/process_memory.h"
#include "protocol/shm/segment.h"
#include "protocol/shm/shm_ring.h"

namespace heddle::protocol {

class LocalPeers {
public:
    // core: kept. Without `is_wanted` no ring is made, and none is accepted.
    LocalPeers(CoreServices& core, bool is_wanted) noexcept : core_(core), is_wanted_(is_wanted) {}
    ~LocalPeers();
    LocalPeers(const LocalPeers&) = delete;
    LocalPeers& operator=(const LocalPeers&) = delete;

    // There has been a peer on the same host.
    bool is_active() const noexcept { return is_active_; }
    // Peers have yet to answer.
    bool is_opening() const noexcept { return !opening_.empty(); }
    bool has_ring_here(const Peer& peer) const noexcept {
        if (!peer.writes_to_us) return false;
        const OfPeer* const its = of_known(peer);
        return its != nullptr && its->has_begun && its->reader != nullptr;
    }

    // There is a connection to the peer, whose host has that number.
    void on_connected(Peer& peer, std::uint64_t host);
    // kShmOpen. is_refused: messages of that peer come otherwise.
    void on_open(Peer& peer, const ShmOpenBody& open, bool is_refused);
    // kShmBegin.
    void on_begin(Peer& peer);
    // Looks if peers have answered, one after the other.
    void look_at_answers();
    // Nothing more is read from it, or written to it.
    void on_peer_failed(Peer& peer) noexcept;
    // From time to time: looks for peers that break the rules, frees what is not used any more.
    void look();

    // Takes up to `most` messages, in the order of each sender, and returns their number. The
    // user's take_next(peer, is_tagged, found) takes an eager message that is the peer's next;
    // take_other(peer, header, found) any other. No more while it has_enough().
    template <class User>
    unsigned take_from_all(unsigned most, User& user);
    // One message, without other progress. take(peer, bytes, found) takes a tagged eager message
    // that is its peer's next, or leaves it (false).
    enum class Next : std::uint8_t { kNothing, kTaken, kOther };
    template <class Take>
    Next take_next(const Take& take);
    // All that lies there.
    template <class User>
    unsigned take_from(const Peer& peer, User& user) {
        return take<false>(*of_known(peer)->reader, ~0u, user);
    }
    // Before the endpoint sleeps: senders wake it from then on. False: there is something to take.
    bool arm();

private:
    class Beginning;
    // A ring here. It stays while it is read, even if its peer fails meanwhile.
    struct Reader {
        Reader(Peer& its_peer, const ShmSegment& memory)
            : ring(memory.memory(), memory.shape()), peer(its_peer) {}
        ShmReceiver ring;
        Peer& peer;
        bool is_reading = false, is_closed = false;
    };
    struct OfPeer {
        bool has_opened = false;                   // once for good
        std::unique_ptr<ShmSegment> memory_there;  // for messages to the peer
        std::unique_ptr<ShmSender> sender;         // once it has accepted
        std::unique_ptr<ShmSegment> memory_here;   // for messages from the peer
        std::unique_ptr<Reader> reader;            // the same
        bool has_begun = false;                    // the reader's peer
        std::optional<ProcessMemory> process;
    };
    // So many rings are looked at in each poll, and of the others one, so that a poll that finds
    // nothing costs the same whatever the number of peers. A ring in which something was found
    // changes places with one of the first.
    static constexpr std::size_t kAlwaysPolled = 8;

    OfPeer* of_known(const Peer& peer) const noexcept {
        return peer.number < by_peer_.size() ? by_peer_[peer.number].get() : nullptr;
    }
    OfPeer& of(const Peer& peer);
    void begin(Peer& peer);
    void use(Peer& peer);
    void fail(Reader& reader);
    void inform(const Peer& peer, const std::string& text) const;
    void tell_that_there_is_none(const Peer& peer, const std::string& why) const;
    bool has_something_to_take(Reader& reader);
    // The header of an eager message whose turn it is; the distance of its number to that.
    int distance(const Peer& peer, const Header& header) const noexcept {
        return static_cast<std::int16_t>(header.sequence - peer.incoming.expected_sequence());
    }
    bool is_of_pair(const Peer& peer, const Header& header) const noexcept {
        return header.source == peer.name.endpoint && header.destination == core_.name.endpoint;
    }
    // kMayStop: no more while the user has enough.
    std::size_t next_cold_after(std::size_t at) const noexcept {
        return at + 1 >= readers_.size() || at < kAlwaysPolled ? kAlwaysPolled : at + 1;
    }
    template <bool kMayStop, class User>
    unsigned take(Reader& reader, unsigned most, User& user);
    template <class User>
    bool take_other(Reader& reader, const ShmReceiver::Found& found, User& user);
    template <class User>
    [[gnu::noinline]] unsigned take_from_next_cold(unsigned most, User& user);

    CoreServices& core_;
    const bool is_wanted_;
    bool is_active_ = false;
    std::vector<std::unique_ptr<OfPeer>> by_peer_;  // by Peer::number; as many as were asked for
    std::vector<Reader*> readers_;                  // of peers that have begun
    std::vector<Peer*> opening_;                    // that have yet to answer
    std::size_t next_opening_ = 0;
    std::size_t first_ = 0, next_cold_ = kAlwaysPolled, next_victim_ = 0;  // of readers_
    std::vector<std::byte> copy_;  // of a message that is looked at more than once
};

template <class User>
unsigned LocalPeers::take_from_all(unsigned most, User& user) {
    const std::size_t hot = std::min(readers_.size(), kAlwaysPolled);
    unsigned taken = 0;
    for (std::size_t i = 0; i < hot; ++i) {
        std::size_t at = first_ + i;
        if (at >= hot) at -= hot;
        taken += take<true>(*readers_[at], most - taken, user);
        if (taken >= most || (taken != 0 && user.has_enough())) {
            first_ = at + 1 < hot ? at + 1 : 0;  // the others have their turn
            return taken;
        }
    }
    if (readers_.size() > kAlwaysPolled) taken += take_from_next_cold(most - taken, user);
    return taken;
}

template <class Take>
[[gnu::always_inline]] inline LocalPeers::Next LocalPeers::take_next(const Take& take) {
    const std::size_t hot = std::min(readers_.size(), kAlwaysPolled);
    for (std::size_t i = 0; i < hot; ++i) {
        std::size_t at = first_ + i;
        if (at >= hot) at -= hot;
        Reader& reader = *readers_[at];
        ShmReceiver::Found found;
        const ShmReceiver::Next next = reader.ring.next(found);
        if (next == ShmReceiver::Next::kNothing) [[likely]] {
            reader.ring.settle();
            continue;
        }
        const bool is_next =
            next == ShmReceiver::Next::kMessage && !reader.is_closed &&
            (word_at(found.bytes.data()) ^ kTaggedStart) == reader.peer.incoming.expected;
        if (!is_next || !take(reader.peer, found)) return Next::kOther;
        reader.ring.pop();
        ++core_.counts.shm.received;
        first_ = at + 1 < hot ? at + 1 : 0;
        return Next::kTaken;
    }
    if (readers_.size() > kAlwaysPolled) [[unlikely]] {
        next_cold_ = next_cold_after(next_cold_);
        if (!readers_[next_cold_]->ring.is_empty()) return Next::kOther;
    }
    return Next::kNothing;
}

template <class User>
unsigned LocalPeers::take_from_next_cold(unsigned most, User& user) {
    // take_next() may have found it, and left it.
    if (next_cold_ >= readers_.size() || readers_[next_cold_]->ring.is_empty()) {
        next_cold_ = next_cold_after(next_cold_);
        if (readers_[next_cold_]->ring.is_empty()) return 0;
    }
    Reader& found = *readers_[next_cold_];
    next_victim_ = (next_victim_ + 1) % kAlwaysPolled;
    std::swap(readers_[next_cold_], readers_[next_victim_]);
    return take<true>(found, most, user);
}

template <bool kMayStop, class User>
[[gnu::always_inline]] inline unsigned LocalPeers::take(Reader& reader, unsigned most, User& user) {
    if (reader.is_reading || reader.is_closed) [[unlikely]]
        return 0;
    ShmReceiver::Found found;
    unsigned taken = 0;
    for (; taken < most; ++taken) {
        const ShmReceiver::Next next = reader.ring.next(found);
        if (next != ShmReceiver::Next::kMessage) {
            reader.ring.settle();
            if (next == ShmReceiver::Next::kBroken) [[unlikely]]
                fail(reader);
            break;
        }
        const std::uint64_t start = word_at(found.bytes.data());
        if ((start & ~kTaggedStart) == reader.peer.incoming.expected) [[likely]] {
            reader.is_reading = true;
            user.take_next(reader.peer, (start & kTaggedStart) != 0, found);
            reader.is_reading = false;
        } else if (!take_other(reader, found, user)) {
            break;
        }
        reader.ring.pop();
        if ((kMayStop && user.has_enough()) || reader.is_closed) [[unlikely]] {
            ++taken;
            break;
        }
    }
    core_.counts.shm.received += taken;
    return taken;
}

// False: nothing was taken. The sender may change what lies there at any time, so its message is
// copied before it is looked at, except the payload of an eager one.
template <class User>
bool LocalPeers::take_other(Reader& reader, const ShmReceiver::Found& found, User& user) {
    Peer& peer = reader.peer;
    ShmReceiver::Found copied = found;
    Header header;
    std::memcpy(&header, found.bytes.data(), sizeof header);
    if (header.kind != Kind::kEager && header.kind != Kind::kFragment) {
        copy_.assign(found.bytes.begin(), found.bytes.end());
        copied.bytes = copy_;
        std::memcpy(&header, copy_.data(), sizeof header);
    }
    const bool is_ordered = is_sequenced(header.kind);
    if (!is_of_pair(peer, header) || (is_ordered && distance(peer, header) < 0)) {
        fail(reader);
        return false;
    }
    if (is_ordered && distance(peer, header) > 0) return false;  // a SEND's turn
    reader.is_reading = true;
    user.take_other(peer, header, copied);
    reader.is_reading = false;
    return true;
}

}  // namespace heddle::protocol
