// SPDX-License-Identifier: BSD-2-Clause
// Looking for messages that no receive has taken (FI_PEEK, FI_CLAIM, FI_DISCARD), and cancelling
// receives.
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "protocol/tuples.h"

namespace heddle::protocol {
namespace {

// What is known of a message that waits: of one that was peeked at, or discarded.
CompletionEntry entry_of(const Unexpected& message, void* context, std::uint64_t source) noexcept {
    CompletionEntry entry;
    entry.context = context;
    entry.flags = FI_RECV | FI_TAGGED | (message.has_data ? FI_REMOTE_CQ_DATA : 0);
    entry.bytes = message.bytes;
    entry.data = message.data;
    entry.tag = message.tag;
    entry.source = source;
    return entry;
}

}  // namespace

ssize_t EndpointImpl::peek(const ReceiveArguments& a) {
    Unexpected* message = nullptr;
    const auto discard = [&] {
        if (message->rendezvous)
            refuse_rendezvous(*message->peer, message->operation, message->by_put, 0);
        else
            took(*message->peer, message->payload.size());
        this->discard(*message);
    };
    const auto claim = claimed.find(a.context);
    if (!(a.flags & FI_PEEK) && claim != claimed.end()) {
        message = claim->second;
        claimed.erase(claim);
        if (a.flags & FI_DISCARD) {
            if (a.flags & FI_COMPLETION && bindings.receive != nullptr)
                bindings.receive->push() =
                    entry_of(*message, a.context, peers.address_of(*message->peer));
            discard();
            return 0;
        }
        Receive& r = new_receive(a);
        deliver(r, *message);
        return 0;
    }
    if (!(a.flags & FI_PEEK)) return -FI_EINVAL;
    std::uint32_t from = kAnySource;
    if (a.from != FI_ADDR_UNSPEC) {
        const Peer* const peer = peers.at(a.from);
        if (peer == nullptr) return -FI_EINVAL;
        from = peer->number;
    }
    // What tuples' queues may hold is older, or its place is not known.
    if (!tuples || !tuples->receiver.hides(from, a.tag, a.ignore))
        message = static_cast<Unexpected*>(tagged.find(from, a.tag, a.ignore));
    if (message == nullptr) {
        // A miss is an error in the queue, not one that is returned (Open MPI takes that as fatal).
        CompletionEntry miss;
        miss.context = a.context;
        miss.flags = FI_RECV | FI_TAGGED;
        miss.tag = a.tag;
        miss.error = FI_ENOMSG;
        if (bindings.receive != nullptr) bindings.receive->push() = miss;
        return 0;
    }
    if (bindings.receive != nullptr)
        bindings.receive->push() = entry_of(*message, a.context, peers.address_of(*message->peer));
    if (a.flags & (FI_CLAIM | FI_DISCARD)) {
        tagged.take(*message);
        if (a.flags & FI_DISCARD)
            discard();
        else
            claimed[a.context] = message;
    }
    return 0;
}

ssize_t EndpointImpl::cancel(void* context) {
    for (Matcher* const matcher : {&tagged, &untagged}) {
        PostedReceive* const found = matcher->find_receive([&](const PostedReceive& posted) {
            return static_cast<const Receive&>(posted).context == context;
        });
        if (found == nullptr) continue;
        matcher->take(*found);
        if (found->waits) tuples->receiver.forget(static_cast<Receive&>(*found));
        cancelled(static_cast<Receive&>(*found));
        return 0;
    }
    return tuples && tuples->receiver.cancel(context) ? 0 : -FI_ENOENT;
}

}  // namespace heddle::protocol
