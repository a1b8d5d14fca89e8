// SPDX-License-Identifier: BSD-2-Clause
// Credit for eager payload: see flow_control.h.
#include "protocol/eager/flow_control.h"

#include <algorithm>

#include "heddle/detail/assert.h"

namespace heddle::protocol {

void FlowControl::on_message(const Peer& peer, const CreditBody& credit) {
    std::size_t& unacked = of(peer).unacked;
    unacked -= std::min<std::size_t>(unacked, credit.bytes);
}

void FlowControl::give_credit(Peer& peer, std::size_t bytes) {
    OfPeer& its = of(peer);
    its.credit_due += bytes;
    if (its.credit_due < most_unacked_ / 4) return;
    const CreditBody credit{its.credit_due};
    its.credit_due = 0;
    core_.control(peer, Kind::kCredit, credit);
}

[[gnu::cold]] void FlowControl::make_room(const Peer& peer) {
    HEDDLE_ASSERT(peer.number < core_.peers.size(), "a peer of another endpoint");
    by_peer_.resize(core_.peers.size());
}

}  // namespace heddle::protocol
