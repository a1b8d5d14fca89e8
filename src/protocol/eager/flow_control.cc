// SPDX-License-Identifier: BSD-2-Clause
// Credit for eager payload: see flow_control.h.
#include "protocol/eager/flow_control.h"

#include <algorithm>
#include <utility>

#include "heddle/detail/assert.h"

namespace heddle::protocol {

void FlowControl::on_message(const Peer& peer, const CreditBody& credit) {
    OfPeer& its = of(peer);
    its.unacked -= std::min<std::size_t>(its.unacked, credit.bytes);
    its.under_way -=
        static_cast<std::uint32_t>(std::min<std::uint64_t>(its.under_way, credit.weight));
    if (its.under_way < kWindow) its.reply.reset();
}

void FlowControl::give_credit(Peer& peer, std::size_t bytes) {
    OfPeer& its = of(peer);
    its.credit_due += bytes;
    if (its.credit_due >= most_unacked_ / 4) tell(peer, its);
}

void FlowControl::count_fragment_arrived(Peer& peer, std::size_t bytes) {
    OfPeer& its = of(peer);
    its.arrived_due += weight_of(bytes);
    if (its.arrived_due >= kArrivedAtOnce) tell(peer, its);
}

void FlowControl::tell(Peer& peer, OfPeer& its) {
    const CreditBody credit{std::exchange(its.credit_due, 0), std::exchange(its.arrived_due, 0)};
    core_.control_credit(peer, credit);
}

// While the window is full, nothing that is under way need end with an error if the peer dies.
[[gnu::cold]] void FlowControl::wait_for(Peer& peer, OfPeer& its) {
    if (!its.reply.is_open() && peer.failed == 0) its.reply = OutstandingReply(peer);
}

void FlowControl::on_peer_failed(const Peer& peer) {
    if (peer.number < by_peer_.size()) by_peer_[peer.number].reply.reset();
}

[[gnu::cold]] void FlowControl::make_room(const Peer& peer) {
    HEDDLE_ASSERT(peer.number < core_.peers.size(), "a peer of another endpoint");
    by_peer_.resize(core_.peers.size());
}

}  // namespace heddle::protocol
