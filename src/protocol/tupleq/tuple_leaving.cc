// SPDX-License-Identifier: BSD-2-Clause
// Leaving a queue: nothing more is sent to it, and what found no receive is flushed. The sender
// says so to the receiver, which counts what had come all the same. The rest is sent again, in
// order, by the way of all other messages.
#include <deque>

#include "heddle/detail/assert.h"
#include "protocol/tupleq/tuple_sender.h"

namespace heddle::protocol {
namespace {

// Messages after which opening a queue and leaving it was worth it: that costs as much as some
// hundred.
constexpr std::uint32_t kPaidBack = 4096;

}  // namespace

void TupleSender::close(TupleOut& tuple, TupleReason reason) {
    tuple.state = TupleOut::State::kClosing;
    ++counts_.ended[static_cast<std::size_t>(reason)];
    filter_.restart({tuple.peer->number, tuple.tag}, tuple.sent < kPaidBack);
    // What has a receive comes to an end by itself.
    if (tuple.blocking != nullptr && tuple.outstanding != 0 &&
        (tuple.under_way.back()->flushed || !credit(tuple, tuple.sent - 1))) {
        tuple.broken = tuple.blocking->qpn();
        tuple.blocking->flush();
    }
    look_if_drained(tuple);
}

void TupleSender::look_if_drained(TupleOut& tuple) {
    if (tuple.outstanding != 0) return;
    if (tuple.failed != 0) return end(tuple);
    if (tuple.state != TupleOut::State::kClosing) return;
    // One on which something failed is broken, whoever noticed first.
    if (tuple.blocking != nullptr && !tuple.under_way.empty()) {
        tuple.broken = tuple.blocking->qpn();
        tuple.blocking->flush();
    }
    // A broken one stays this tuple's until the receiver, which finds it by its number, has let go
    // of it.
    if (tuple.broken == 0) leave_blocking(tuple);
    tuple.state = TupleOut::State::kDrained;
    tuple.reply = OutstandingReply(*tuple.peer);
    core_.control(*tuple.peer, Kind::kTupleDrained,
                  TupleDrainedBody{tuple.receiver, tuple.delivered, tuple.broken});
}

void TupleSender::got_revoke(Peer& peer, const TupleRevokeBody& revoke) {
    TupleOut* const tuple = tuples_.find(revoke.tuple);
    // It may have been closed from here meanwhile.
    if (tuple == nullptr || tuple->peer != &peer || tuple->state != TupleOut::State::kOpen) return;
    close(*tuple, reason_of(revoke.reason));
}

void TupleSender::got_closed(Peer& peer, const TupleClosedBody& closed) {
    TupleOut* const tuple = tuples_.find(closed.tuple);
    if (tuple == nullptr || tuple->peer != &peer || tuple->state != TupleOut::State::kDrained ||
        closed.delivered - tuple->delivered > tuple->under_way.size())
        return core_.protocol_error(peer);
    tuple->reply.reset();
    for (; tuple->delivered != closed.delivered; ++tuple->delivered) {
        TupleMessage& first = *tuple->under_way.front();
        tuple->under_way.pop_front();
        finish(first, 0);
    }
    end(*tuple);
}

// Nothing of it is at the device. What there is left goes the way of all others, or has failed.
void TupleSender::end(TupleOut& tuple) {
    Peer& peer = *tuple.peer;
    HEDDLE_ASSERT(tuple.outstanding == 0, "the device would tell of a message that is gone");
    leave_blocking(tuple);
    by_key_.erase({peer.number, tuple.tag});
    credits_->give_back(tuple.credits);
    std::deque<TupleMessage*> left;
    left.swap(tuple.under_way);
    counts_.again += left.size();
    left.insert(left.end(), tuple.waits.begin(), tuple.waits.end());
    tuple.waits.clear();
    std::erase(waiting_, &tuple);
    unlist(tuple);
    const int failed = tuple.failed;
    const bool was_there = tuple.state == TupleOut::State::kDrained;
    const TupleBeginBody ended{tuple.receiver};
    tuples_.give_back(tuple);
    // All tuples of a peer are hashed alike, so none may be there when that changes.
    HEDDLE_ASSERT(peer.other_ways != 0 && of(peer).tuples != 0, "a tuple has ended twice");
    --peer.other_ways;
    OfPeer& its = of(peer);
    if (--its.tuples == 0) its.mask = its.new_mask;
    if (failed != 0) {
        for (TupleMessage* const message : left)
            finish(*message, failed);
    } else {
        for (TupleMessage* const message : left)
            send_otherwise(*message);
        if (was_there) core_.control(peer, Kind::kTupleEnd, ended);
        core_.look_if_open(peer);
    }
}

void TupleSender::send_otherwise(TupleMessage& message) {
    SendRequest& t = *message.request;
    t.bulk.local.release();
    if (message.buffer != nullptr) {
        t.copy.assign(message.buffer, message.buffer + t.bytes);
        t.iov[0].iov_base = t.copy.data();
        t.descriptors = {};
        device_.send_buffers.give_back(message.buffer);
        --copies_;
    }
    messages_.give_back(message);
    t.step = SendRequest::Step::kMessage;
    t.late.is_late = true;
    requests_.start(t);
}

void TupleSender::fail(Peer& peer, int error) {
    tuples_.for_each_in_use([&](TupleOut& tuple) {
        if (tuple.peer != &peer || tuple.failed != 0) return;
        tuple.reply.reset();
        tuple.failed = error;
        tuple.state = TupleOut::State::kClosing;
        if (tuple.blocking != nullptr) tuple.blocking->flush();
        look_if_drained(tuple);
    });
}

bool TupleSender::close_all() {
    bool all = true;
    tuples_.for_each_in_use([&](TupleOut& tuple) {
        if (tuple.under_way.empty() && tuple.waits.empty()) return;
        all = false;
        if (tuple.state == TupleOut::State::kOpen) close(tuple, TupleReason::kClosing);
    });
    return all;
}

}  // namespace heddle::protocol
