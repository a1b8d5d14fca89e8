// SPDX-License-Identifier: BSD-2-Clause
// Looking for messages that no receive has taken (FI_PEEK), taking one for a receive that comes
// later (FI_CLAIM), and throwing one away (FI_DISCARD): fi_tagged(3).
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "protocol/tag/receiver.h"

namespace heddle::protocol {

Receiver::~Receiver() {
    for (const auto& [context, message] : claimed_)
        delete message;
}

// What is known of a message that waits: of one that was peeked at, or discarded.
void Receiver::report(const Unexpected& message, void* context) {
    if (core_.bindings.receive == nullptr) return;
    CompletionEntry& entry = core_.bindings.receive->push();
    entry.context = context;
    entry.flags = FI_RECV | FI_TAGGED | (message.info.has_data ? FI_REMOTE_CQ_DATA : 0);
    entry.bytes = message.bytes();
    entry.data = message.info.data;
    entry.tag = message.info.tag;
    entry.source = core_.peers.address_of(*message.peer);
}

// The second call for a message that was claimed by the first.
void Receiver::claim(const ReceiveArguments& a, Unexpected& message) {
    if (!(a.flags & FI_DISCARD)) return delivery_.deliver(receives_.take(a), message);
    if (a.flags & FI_COMPLETION) report(message, a.context);
    delivery_.discard(message);
}

ssize_t Receiver::peek(const ReceiveArguments& a) {
    if (!(a.flags & FI_PEEK)) {
        const auto found = claimed_.find(a.context);
        if (found == claimed_.end()) return -FI_EINVAL;
        Unexpected& message = *found->second;
        claimed_.erase(found);
        claim(a, message);
        return 0;
    }
    std::uint32_t from = kAnySource;
    if (a.from != FI_ADDR_UNSPEC) {
        const Peer* const peer = core_.peers.at(a.from);
        if (peer == nullptr) return -FI_EINVAL;
        from = peer->number;
    }
    // What the interceptor holds is older, or its place is not known.
    Unexpected* message = nullptr;
    if (interceptor_ == nullptr || !interceptor_->hides(from, a.tag, a.ignore))
        message = static_cast<Unexpected*>(receives_.tagged.find(from, a.tag, a.ignore));
    if (message == nullptr) {
        // A miss is an error in the queue, not one that is returned (Open MPI takes that as fatal).
        CompletionEntry miss;
        miss.context = a.context;
        miss.flags = FI_RECV | FI_TAGGED;
        miss.tag = a.tag;
        miss.error = FI_ENOMSG;
        if (core_.bindings.receive != nullptr) core_.bindings.receive->push() = miss;
        return 0;
    }
    report(*message, a.context);
    if (!(a.flags & (FI_CLAIM | FI_DISCARD))) return 0;
    receives_.tagged.take(*message);
    if (a.flags & FI_DISCARD)
        delivery_.discard(*message);
    else
        claimed_[a.context] = message;
    return 0;
}

}  // namespace heddle::protocol
