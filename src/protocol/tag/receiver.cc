// SPDX-License-Identifier: BSD-2-Clause
// Receives that are posted, cancelled, or end with their peer or with the device: see receiver.h.
#include "protocol/tag/receiver.h"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <vector>

#include "heddle/detail/assert.h"

namespace heddle::protocol {

ssize_t Receiver::post(const ReceiveArguments& a) {
    if (a.iov_count > kMaxSegments) return -FI_EINVAL;
    if (a.flags & (FI_PEEK | FI_CLAIM | FI_DISCARD) && a.flags & FI_TAGGED) return peek(a);
    Receive& r = receives_.take(a);
    constexpr std::uint64_t kPlain = FI_TAGGED | FI_COMPLETION;
    const bool plain = a.iov_count == 1 && (a.flags & (kPlain | FI_MULTI_RECV)) == kPlain &&
                       core_.bindings.receive != nullptr &&
                       core_.bindings.receive_counter == nullptr;
    r.plain_room = plain ? static_cast<std::int64_t>(r.bytes) : -1;
    const Peer* failed = nullptr;
    if (a.from != FI_ADDR_UNSPEC) {
        const Peer* const peer = core_.peers.at(a.from);
        if (peer == nullptr) {
            receives_.give_back(r);
            return -FI_EINVAL;
        }
        r.source = peer->number;
        if (peer->failed != 0) [[unlikely]]
            failed = peer;
    }
    r.tag = a.tag;
    r.ignore = a.ignore;
    Matcher& matcher = receives_.matcher(a.flags & FI_TAGGED);
    r.stays = a.flags & FI_MULTI_RECV;
    if (interceptor_ != nullptr && a.flags & FI_TAGGED && interceptor_->take(r)) return 0;
    if (!r.stays) [[likely]] {
        if (UnexpectedMessage* const message = matcher.post(r)) {
            delivery_.deliver(r, static_cast<Unexpected&>(*message));
        } else if (failed != nullptr) [[unlikely]] {
            matcher.take(r);
            receives_.end_unmatched(r, FI_ECONNRESET);
        }
        return 0;
    }
    // Takes all messages that are there, as long as it has room.
    while (!r.exhausted) {
        UnexpectedMessage* const message = matcher.post(r);
        if (message == nullptr) break;
        delivery_.deliver(r, static_cast<Unexpected&>(*message));
    }
    return 0;
}

ssize_t Receiver::cancel(void* context) {
    for (Matcher* const matcher : {&receives_.tagged, &receives_.untagged}) {
        PostedReceive* const found = matcher->find_receive([&](const PostedReceive& posted) {
            return static_cast<const Receive&>(posted).context == context;
        });
        if (found == nullptr) continue;
        auto& receive = static_cast<Receive&>(*found);
        matcher->take(receive);
        if (receive.waits) interceptor_->forget(receive);
        receives_.end_unmatched(receive, FI_ECANCELED);
        return 0;
    }
    return interceptor_ != nullptr && interceptor_->cancel(context) ? 0 : -FI_ENOENT;
}

void Receiver::on_peer_failed(const Peer& peer) {
    fail(FI_ECONNRESET, [&](const PostedReceive& posted) { return posted.source == peer.number; });
}

void Receiver::on_device_failed(int error) {
    fail(error, [](const PostedReceive&) { return true; });
}

template <class Wanted>
void Receiver::fail(int error, const Wanted& wanted) {
    for (Matcher* const matcher : {&receives_.tagged, &receives_.untagged}) {
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
            if (receive->waits) interceptor_->forget(*receive);
            receives_.end_unmatched(*receive, error);
        }
    }
}

void Receiver::mark_sources(std::vector<bool>& has_receive) {
    for (Matcher* const matcher : {&receives_.tagged, &receives_.untagged})
        matcher->find_receive([&](const PostedReceive& posted) {
            if (posted.source != kAnySource) has_receive[posted.source] = true;
            return false;
        });
}

}  // namespace heddle::protocol
