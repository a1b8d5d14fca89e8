// SPDX-License-Identifier: BSD-2-Clause
// Is a peer still there? An operation that waits for a peer's message, and not for its device, has
// nothing under way that would fail when the peer dies. So the endpoint probes such peers with an
// empty RDMA write, which does nothing and fails after the retries if nobody answers: once a second
// a peer that owes an answer, and once in FI_HEDDLE_KEEPALIVE seconds every other one that has been
// silent since (UCX's UCX_KEEPALIVE_INTERVAL is the same idea). A peer that lives but cannot use
// its connection any more says so by the connector's BYE.
#include "protocol/core/liveness.h"

#include <algorithm>
#include <utility>

#include "heddle/detail/assert.h"
#include "protocol/shm/shm_ring.h"

namespace heddle::protocol {
namespace {

// Nothing fails either if a message stays in shared memory for ever.
bool owes(const Peer& peer) noexcept {
    return peer.outstanding_replies != 0 || (peer.shm != nullptr && peer.shm->has_untaken());
}

}  // namespace

bool Liveness::is_time() noexcept {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_look_ < kProbeEvery) return false;
    passed_ = now - std::exchange(last_look_, now);
    return true;
}

void Liveness::look(const std::function<void(std::vector<bool>&)>& find_receives) {
    for (std::size_t i = 0; i < core_.peers.size(); ++i) {
        Peer& peer = *core_.peers[i];
        // The rest of a message may be owed by a peer that was never sent anything.
        if (owes(peer)) core_.connect(peer);
        if (owes(peer) || peer.has_left) look_after(peer);
    }
    if (core_.options.timeouts.keepalive_s != 0) keep_alive(find_receives);
}

bool Liveness::is_reply_owed() const noexcept {
    return std::any_of(core_.peers.begin(), core_.peers.end(),
                       [](const auto& peer) { return owes(*peer); });
}

// Fails the peer if it has left. Otherwise probes it, unless a WR is under way to it that ends
// with a completion.
void Liveness::look_after(Peer& peer) {
    // What waits for the peer may wait for it to say something: nothing need be under way.
    if (peer.failed != 0 || peer.connection == nullptr || !peer.connection->ready()) return;
    if (peer.connection->peer_has_left() || core_.connector.has_left(peer.name, core_.name)) {
        // What had come before has been read by the next time.
        if (std::exchange(peer.has_left, true)) core_.fail_peer(peer, ECONNRESET);
        return;
    }
    peer.has_left = false;
    if (!peer.connection->silent()) return;
    post::WorkRequest work;
    work.opcode = post::Opcode::kWrite;
    work.remote_srq = peer.name.srqn;
    WrContext sent;
    sent.user = &core_;
    sent.what = WrContext::kRma;  // signaled, without a report
    core_.channel->post(*peer.connection, work, sent);
}

// The share of all peers that is due: each has its turn once in the interval, so that many peers
// are not probed at once. A peer that a receive names is connected to for that, if it never was.
void Liveness::keep_alive(const std::function<void(std::vector<bool>&)>& find_receives) {
    const std::chrono::duration<double> interval =
        std::chrono::seconds(core_.options.timeouts.keepalive_s);
    due_ += static_cast<double>(core_.peers.size()) * (passed_ / interval);
    auto due = static_cast<std::size_t>(std::min(due_, static_cast<double>(core_.peers.size())));
    if (due == 0) return;
    due_ = 0;
    HEDDLE_ASSERT(due <= core_.peers.size(), "a peer has one turn in an interval");
    std::vector<bool> has_receive(core_.peers.size());
    find_receives(has_receive);
    HEDDLE_ASSERT(has_receive.size() == core_.peers.size(), "receives name peers that are known");
    for (; due != 0; --due) {
        if (++next_ >= core_.peers.size()) next_ = 0;
        Peer& peer = *core_.peers[next_];
        const std::uint16_t heard = peer.incoming.expected_sequence();
        const bool was_silent = std::exchange(peer.sequence_at_keepalive, heard) == heard;
        if (peer.failed != 0 || peer.outstanding_replies != 0 || !was_silent) continue;
        if (has_receive[next_]) core_.connect(peer);
        look_after(peer);
    }
}

}  // namespace heddle::protocol
