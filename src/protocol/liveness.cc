// SPDX-License-Identifier: BSD-2-Clause
// Is a peer still there? An operation that waits for a peer's message, and not for its device, has
// nothing under way that would fail when the peer dies. So the endpoint probes such peers with an
// empty RDMA write, which does nothing and fails after the retries if nobody answers: once a second
// a peer that owes an answer, and once in FI_HEDDLE_KEEPALIVE seconds every other one that has been
// silent since (UCX's UCX_KEEPALIVE_INTERVAL is the same idea). A peer that lives but cannot use
// its connection any more says so by the connector's BYE.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "protocol/tuples.h"

namespace heddle::protocol {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kProbeEvery = std::chrono::seconds(1);

}  // namespace

void EndpointImpl::tick() {
    ticks = 0;
    const auto now = Clock::now();
    if (now - last_probe < kProbeEvery) return;
    const auto passed = now - last_probe;
    last_probe = now;
    if (channel->error() != 0) return broken(channel->error());
    look_who_talks(true);
    for (const auto& peer : peers)
        if (peer->outstanding_replies != 0 || peer->has_left) look_after(*peer);
    if (options.keepalive_s != 0) keep_alive(passed);
}

// Fails the peer if it has left. Otherwise probes it, unless a work is under way to it that ends
// with a completion.
void EndpointImpl::look_after(Peer& peer) {
    if (!can_send(peer)) return;
    if (connector.has_left(peer.name, name)) {
        // What had come before has been read by the next time.
        if (std::exchange(peer.has_left, true)) fail_peer(peer, ECONNRESET);
        return;
    }
    peer.has_left = false;
    if (!peer.connection->silent()) return;
    post::WorkRequest work;
    work.opcode = post::Opcode::kWrite;
    work.remote_srq = peer.name.srqn;
    WrContext sent;
    sent.user = this;
    sent.what = WrContext::kRma;  // signaled, and nobody is told
    channel->post(*peer.connection, work, sent);
}

// The share of all peers that is due: each has its turn once in the interval, so that many peers
// are not probed at once. A peer that a receive names is connected to for that, if it never was.
void EndpointImpl::keep_alive(Clock::duration passed) {
    const std::chrono::duration<double> interval = std::chrono::seconds(options.keepalive_s);
    keepalive_due += static_cast<double>(peers.size()) * (passed / interval);
    auto due = static_cast<std::size_t>(std::min(keepalive_due, static_cast<double>(peers.size())));
    if (due == 0) return;
    keepalive_due = 0;
    std::vector<bool> has_receive(peers.size());
    for (Matcher* const matcher : {&tagged, &untagged})
        matcher->find_receive([&](const PostedReceive& posted) {
            if (posted.source != kAnySource) has_receive[posted.source] = true;
            return false;
        });
    for (; due != 0; --due) {
        if (++keepalive_next >= peers.size()) keepalive_next = 0;
        Peer& peer = *peers[keepalive_next];
        const std::uint16_t heard = peer.incoming.expected_sequence();
        const bool was_silent = std::exchange(peer.sequence_at_keepalive, heard) == heard;
        if (peer.failed != 0 || peer.outstanding_replies != 0 || !was_silent) continue;
        if (has_receive[keepalive_next]) connect(peer);
        look_after(peer);
    }
}

// Nobody makes progress meanwhile: an endpoint that waits for a peer looks again in time.
void EndpointImpl::tick_while_asleep() {
    const bool owes_reply = std::any_of(peers.begin(), peers.end(), [](const auto& peer) {
        return peer->outstanding_replies != 0;
    });
    const bool receives_wait = tagged.receives() + untagged.receives() != 0 && !peers.empty();
    if (!owes_reply && (!receives_wait || options.keepalive_s == 0)) return;
    ticks = kTickEvery;
    channel->wake_after(kProbeEvery);
}

// Ends the receives that only the peer could have satisfied.
void EndpointImpl::fail_receives(Peer& peer) {
    fail_receives(FI_ECONNRESET,
                  [&](const PostedReceive& posted) { return posted.source == peer.number; });
}

// The device has failed. Receives that are posted later, from any source, end in tick().
void EndpointImpl::broken(int error) {
    for (std::size_t i = 0; i < peers.size(); ++i)  // there may be more meanwhile
        if (peers[i]->failed == 0) fail_peer(*peers[i], error);
    fail_receives(error, [](const PostedReceive&) { return true; });
}

// In the order of posting.
template <class Wanted>
void EndpointImpl::fail_receives(int error, const Wanted& wanted) {
    for (Matcher* const matcher : {&tagged, &untagged}) {
        std::vector<Receive*> lost;
        matcher->find_receive([&](PostedReceive& posted) {
            if (wanted(posted)) lost.push_back(static_cast<Receive*>(&posted));
            return false;
        });
        std::sort(lost.begin(), lost.end(),
                  [](const Receive* a, const Receive* b) { return a->order < b->order; });
        for (Receive* const receive : lost) {
            if (!receive->queued) continue;  // forget() let it have a message that was kept
            matcher->take(*receive);
            if (receive->waits) tuples->receiver.forget(*receive);
            end_unmatched(*receive, error);
        }
    }
}

}  // namespace heddle::protocol
