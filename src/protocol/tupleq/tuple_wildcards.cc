// SPDX-License-Identifier: BSD-2-Clause
// Receives and probes that messages of several tuples could match. They end the queues of those
// tuples, and they wait ("parked") until what the queues hold has come.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <vector>

#include "heddle/detail/assert.h"
#include "protocol/tupleq/tuple_receiver.h"

namespace heddle::protocol {

bool TupleReceiver::take(Receive& r) {
    if (empty() && parked_.empty()) return false;
    ++clock_;
    if (is_exact(r)) {
        const auto found = by_key_.find({r.source, r.tag & ~mask_});
        if (found != by_key_.end()) {
            TupleIn& tuple = *found->second;
            tuple.used_at = clock_;
            if (tuple.state == TupleIn::State::kOpen) {
                // What came before the queue was opened is older than what comes by it.
                if (receives_.tagged.find(r.source, r.tag, r.ignore) != nullptr) return false;
                receives_.tagged.number(r);
                post(tuple, r);
                return true;
            }
        }
    } else if (revoke_matching(r.source, r.tag, r.ignore)) {
        park(r);
        return true;
    }
    if (parked_.empty()) return false;
    park(r);
    return true;
}

bool TupleReceiver::is_exact(const Receive& r) const noexcept {
    return r.source != kAnySource && r.ignore == mask_ && !r.stays;
}

bool TupleReceiver::could_take(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore,
                               const TupleIn& tuple) const noexcept {
    return (source == kAnySource || source == tuple.peer->number) &&
           ((tuple.tag ^ tag) & ~ignore & ~mask_) == 0;
}

bool TupleReceiver::hides(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore) {
    if (empty() && parked_.empty()) return false;
    return revoke_matching(source, tag, ignore) || !parked_.empty();
}

bool TupleReceiver::revoke_matching(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore) {
    if (core_.options.tuples.no_wildcards) return false;
    bool any = false;
    tuples_.for_each_in_use([&](TupleIn& tuple) {
        if (tuple.state == TupleIn::State::kOffered || !could_take(source, tag, ignore, tuple))
            return;
        any = true;
        revoke(tuple, TupleReason::kWildcard);
    });
    return any;
}

// It waits until what the queues hold that it could take has come, and everybody who is posted
// later waits with it. Messages meanwhile are kept, where it would have been the first to take
// them.
void TupleReceiver::park(Receive& r) {
    r.waits = true;
    r.plain_room = -1;
    receives_.tagged.number(r);
    receives_.tagged.put_back(r);
    parked_.push_back(&r);
}

// The same for receives that were there when the queue was about to begin.
void TupleReceiver::park_queued(const TupleIn& tuple) {
    std::vector<Receive*> queued;
    receives_.tagged.find_receive([&](PostedReceive& posted) {
        queued.push_back(static_cast<Receive*>(&posted));
        return false;
    });
    std::sort(queued.begin(), queued.end(),
              [](const Receive* a, const Receive* b) { return a->order < b->order; });
    bool later = false;
    parked_.clear();
    for (Receive* const r : queued) {
        later =
            later || r->waits || (could_take(r->source, r->tag, r->ignore, tuple) && !is_exact(*r));
        if (!later) continue;
        r->waits = true;
        r->plain_room = -1;
        parked_.push_back(r);
    }
}

void TupleReceiver::unpark() {
    if (unparking_) return;
    unparking_ = true;
    while (!parked_.empty()) {
        Receive& r = *parked_.front();
        bool blocked = false;
        if (!is_exact(r))
            tuples_.for_each_in_use([&](const TupleIn& tuple) {
                blocked = blocked || (tuple.state != TupleIn::State::kOffered &&
                                      could_take(r.source, r.tag, r.ignore, tuple));
            });
        if (blocked) break;
        parked_.pop_front();
        HEDDLE_ASSERT(r.waits && r.queued, "a receive that waits is in the matcher");
        receives_.tagged.take(r);
        r.waits = false;
        bool done = false;
        while (!done) {
            UnexpectedMessage* const message = receives_.tagged.find(r.source, r.tag, r.ignore);
            if (message == nullptr) break;
            receives_.tagged.take(*message);
            done = !r.stays;
            delivery_.deliver(r, static_cast<Unexpected&>(*message));
            done = done || r.exhausted;
        }
        if (done) continue;
        if (r.source != kAnySource && core_.peers[r.source]->failed != 0)
            receives_.end_unmatched(r, FI_ECONNRESET);
        else
            receives_.tagged.put_back(r);
    }
    unparking_ = false;
}

void TupleReceiver::forget(Receive& r) {
    std::erase(parked_, &r);
    r.waits = false;
    unpark();
}

}  // namespace heddle::protocol
