// SPDX-License-Identifier: BSD-2-Clause
// How much eager payload may lie at a receiver that has not taken it, and how much may be under way
// to it. Each peer may be sent FI_HEDDLE_UNEXPECTED_SIZE bytes; it gives credit for what it has
// taken. And it may be sent messages of the weight kWindow that it has not read from its receive
// buffers: a sender that is faster would fill all of them, and wait for RNR timers then.
// Messages of up to kFreeBytes are not counted. Threads: the endpoint's.
#pragma once

#include <cstddef>
#include <vector>

#include "protocol/core/core_services.h"

namespace heddle::protocol {

class FlowControl {
public:
    explicit FlowControl(CoreServices& core) noexcept  // kept
        : core_(core),
          eager_bytes_(core.options.eager_bytes),
          most_bytes_(core.options.most_copied()),
          most_unacked_(core.options.unexpected_bytes) {}
    FlowControl(const FlowControl&) = delete;
    FlowControl& operator=(const FlowControl&) = delete;

    // A message of that size may be sent eagerly, at once.
    bool may_send(const Peer& peer, std::size_t bytes) const noexcept {
        return bytes <= kFreeBytes ||
               (bytes <= eager_bytes_ && unacked(peer) + bytes <= most_unacked_);
    }
    // The same in fragments.
    bool may_send_fragments(const Peer& peer, std::size_t bytes) const noexcept {
        return bytes > eager_bytes_ && bytes <= most_bytes_ &&
               unacked(peer) + bytes <= most_unacked_;
    }
    // The same where there is no other way for it: up to half of what makes the peer give up.
    bool may_send_unregistered(const Peer& peer, std::size_t bytes) const noexcept {
        return unacked(peer) + bytes <= core_.options.unexpected_limit / 2;
    }
    // Such a message was sent, or will be, in fragments.
    void count_sent(const Peer& peer, std::size_t bytes) {
        if (bytes > kFreeBytes) of(peer).unacked += bytes;
    }
    // A SEND with such a payload may be posted now; else when the peer has told of others.
    // has_window(): the same of a fragment.
    bool has_window_for(Peer& peer, std::size_t bytes) {
        return bytes <= kFreeBytes || has_window(peer);
    }
    bool has_window(Peer& peer) {
        OfPeer& its = of(peer);
        if (its.under_way < kWindow) [[likely]]
            return true;
        wait_for(peer, its);
        return false;
    }
    // The same as may_send() and has_window(), but also false if one of them would have to do more
    // than look.
    bool is_open_for(const Peer& peer, std::size_t bytes) const noexcept {
        if (bytes <= kFreeBytes) return true;
        if (peer.number >= by_peer_.size() || bytes > eager_bytes_) return false;
        const OfPeer& its = by_peer_[peer.number];
        return its.unacked + bytes <= most_unacked_ && its.under_way < kWindow;
    }
    // It was posted.
    void count_posted(const Peer& peer, std::size_t bytes) {
        if (bytes > kFreeBytes) count_fragment_posted(peer, bytes);
    }
    void count_fragment_posted(const Peer& peer, std::size_t bytes) {
        of(peer).under_way += weight_of(bytes);
    }
    // One of that peer has come.
    void count_arrived(Peer& peer, std::size_t bytes) {
        if (bytes > kFreeBytes) [[unlikely]]
            count_fragment_arrived(peer, bytes);
    }
    void count_fragment_arrived(Peer& peer, std::size_t bytes);
    // Eager payload of that peer has left our memory: it may send as much again.
    void count_taken(Peer& peer, std::size_t bytes) {
        if (bytes > kFreeBytes) give_credit(peer, bytes);
    }
    void on_message(const Peer& peer, const CreditBody& credit);
    void on_peer_failed(const Peer& peer);

private:
    struct OfPeer {
        std::size_t unacked = 0;      // payload that it has not taken yet, as far as it has said
        std::size_t credit_due = 0;   // payload that was taken here, of which it has not been told
        std::uint32_t under_way = 0;  // weight of what it has not told of
        std::uint32_t arrived_due = 0;  // weight of what has come, of which it was not told
        OutstandingReply reply;         // while the window is full
    };
    std::size_t unacked(const Peer& peer) const noexcept {
        return peer.number < by_peer_.size() ? by_peer_[peer.number].unacked : 0;
    }
    OfPeer& of(const Peer& peer) {
        if (peer.number >= by_peer_.size()) [[unlikely]]
            make_room(peer);
        return by_peer_[peer.number];
    }
    void make_room(const Peer& peer);
    void give_credit(Peer& peer, std::size_t bytes);
    void tell(Peer& peer, OfPeer& its);
    static void wait_for(Peer& peer, OfPeer& its);

    CoreServices& core_;
    const std::size_t eager_bytes_, most_bytes_, most_unacked_;
    std::vector<OfPeer> by_peer_;  // by Peer::number; as many as were asked for
};

}  // namespace heddle::protocol
