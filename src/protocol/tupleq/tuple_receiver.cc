// SPDX-License-Identifier: BSD-2-Clause
// The receiver's side of tuple queues. A receive that only messages of the tuple can match is
// posted to its queue, and an RDMA write gives credit for it to the sender. One that could match
// others, too, a probe or a cancelled receive ends the queues of all tuples that it concerns: the
// sender stops, says so, and what is left comes back here, between the receives that were posted
// before and after it.
#include "protocol/tupleq/tuple_receiver.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "heddle/detail/assert.h"
#include "heddle/error.h"

namespace heddle::protocol {
namespace {

// A queue whose place another tuple wants has not been used for so many receives, times the number
// of queues there may be.
constexpr std::uint64_t kUnused = 4;

}  // namespace

TupleReceiver::TupleReceiver(CoreServices& core, Receives& receives, Delivery& delivery,
                             TupleServices& device, TupleCounts& counts)
    : core_(core), receives_(receives), delivery_(delivery), device_(device), counts_(counts) {
    device_.tell(*this);
}

TupleReceiver::~TupleReceiver() {
    tuples_.for_each_in_use([&](TupleIn& tuple) {
        if (tuple.queue == nullptr) return;
        tuple.queue.reset();
        for (auto* const receives : {&tuple.returned, &tuple.posted, &tuple.pending})
            for (TupleReceive* const its : *receives)
                its->local.release();
    });
}

// Queues are for messages that one receive after the other takes; why those of a tuple are not, or
// kNone.
TupleReason TupleReceiver::why_not(const Peer& peer, std::uint64_t tag, std::uint64_t mask) {
    const std::uint64_t known = empty() ? receives_.tagged.mask() : mask_;
    if (mask != known) return TupleReason::kMask;
    if (!TupleImmediate::possible(mask)) return TupleReason::kManyBits;
    if (core_.closing) return TupleReason::kClosing;
    if (by_key_.contains({peer.number, tag & ~mask})) return TupleReason::kOther;
    if (receives_.tagged.has_inexact(peer.number, tag, mask)) return TupleReason::kWildcard;
    if (core_.options.rendezvous == Rendezvous::kAuto &&
        receives_.tagged.find(peer.number, tag, mask) != nullptr)
        return TupleReason::kLate;
    if (by_key_.size() >= core_.options.tuples.queues) forget_who_left();
    return by_key_.size() < core_.options.tuples.queues ? TupleReason::kNone : TupleReason::kLimit;
}

// There is room the next time, if one has not been used for long.
void TupleReceiver::revoke_unused() {
    TupleIn* oldest = nullptr;
    for (const auto& [key, tuple] : by_key_)
        if (tuple->state == TupleIn::State::kOpen &&
            (oldest == nullptr || tuple->used_at < oldest->used_at))
            oldest = tuple;
    if (oldest != nullptr && clock_ - oldest->used_at > kUnused * core_.options.tuples.queues)
        revoke(*oldest, TupleReason::kLimit);
}

std::unique_ptr<TupleQueue> TupleReceiver::make_queue(TupleReason& declined) {
    try {
        std::unique_ptr<TupleQueue> queue = device_.make_queue();
        if (queue == nullptr) declined = TupleReason::kLimit;
        return queue;
    } catch (const VerbsError&) {
        declined = TupleReason::kDevice;
        return nullptr;
    }
}

// Queues that were offered to a peer that has gone meanwhile. (A queue in use is noticed otherwise:
// its revocation has no reply.)
void TupleReceiver::forget_who_left() {
    tuples_.for_each_in_use([&](TupleIn& tuple) {
        if (tuple.state != TupleIn::State::kOffered ||
            !device_.targets.has_left(tuple.peer->name, core_.name))
            return;
        take_back(tuple);
        erase(tuple);
    });
}

void TupleReceiver::got_open(Peer& peer, std::uint64_t tag, const TupleOpenBody& open) {
    if (peer.failed != 0) return;  // nobody would hear the answer
    TupleAnswerBody answer;
    answer.tuple = open.sender;
    TupleReason declined = why_not(peer, tag, open.mask);
    std::unique_ptr<TupleQueue> queue;
    if (declined == TupleReason::kNone) queue = make_queue(declined);
    if (declined == TupleReason::kLimit) revoke_unused();
    answer.mask = empty() ? receives_.tagged.mask() : mask_;
    if (declined != TupleReason::kNone) {
        answer.declined = static_cast<std::uint32_t>(declined);
        return core_.control(peer, Kind::kTupleAnswer, answer);
    }
    HEDDLE_ASSERT(queue != nullptr && (empty() || mask_ == open.mask),
                  "all tuples here are told apart by the same bits");
    mask_ = open.mask;
    TupleIn& tuple = tuples_.take();
    tuple.state = TupleIn::State::kOffered;
    tuple.peer = &peer;
    tuple.tag = tag & ~mask_;
    tuple.sender = open.sender;
    tuple.credits = open.credits;
    tuple.credits_key = open.credits_key;
    tuple.has_data = open.flags & TupleOpenBody::kHasData;
    tuple.data = open.data;
    tuple.queue = std::move(queue);
    tuple.used_at = ++clock_;
    by_key_[{peer.number, tuple.tag}] = &tuple;
    ++counts_.queues;
    counts_.queues_peak = std::max<std::uint64_t>(counts_.queues_peak, by_key_.size());
    answer.receiver = SlotPool<TupleIn>::id(tuple);
    answer.srqn = tuple.queue->number();
    core_.control(peer, Kind::kTupleAnswer, answer);
}

// Whatever of the tuple came before has its receives, or waits for some, before those of the queue.
void TupleReceiver::got_begin(Peer& peer, const TupleBeginBody& begin) {
    TupleIn* const tuple = tuples_.find(begin.tuple);
    if (tuple == nullptr || tuple->peer != &peer || tuple->state != TupleIn::State::kOffered)
        return core_.protocol_error(peer);
    tuple->state = TupleIn::State::kOpen;
    if (receives_.tagged.has_inexact(peer.number, tuple->tag, mask_)) {
        park_queued(*tuple);
        return revoke(*tuple, TupleReason::kWildcard);
    }
    while (tuples_.find(begin.tuple) != nullptr && tuple->state == TupleIn::State::kOpen) {
        PostedReceive* const posted = receives_.tagged.take_exact(peer.number, tuple->tag, mask_);
        if (posted == nullptr) break;
        post(*tuple, static_cast<Receive&>(*posted));
    }
}

void TupleReceiver::revoke(TupleIn& tuple, TupleReason reason) {
    if (tuple.state != TupleIn::State::kOpen) return;
    tuple.state = TupleIn::State::kRevoked;
    tuple.reply = OutstandingReply(*tuple.peer);
    core_.control(*tuple.peer, Kind::kTupleRevoke,
                  TupleRevokeBody{tuple.sender, static_cast<std::uint32_t>(reason), 0});
}

// The receive is the youngest of its tuple.
void TupleReceiver::post(TupleIn& tuple, Receive& r) {
    TupleReceive& its = posts_.take();
    its.receive = &r;
    its.tuple = &tuple;
    if (!tuple.pending.empty() || tuple.posted.size() >= kTupleDepth) {
        tuple.pending.push_back(&its);
        return;
    }
    if (to_device(tuple, its)) return write_credits(tuple);
    tuple.pending.push_back(&its);
    revoke(tuple, TupleReason::kReceive);
}

// The receive is none of a tuple's any more.
Receive& TupleReceiver::let_go(TupleReceive& its) noexcept {
    Receive& receive = *its.receive;
    its.local.release();
    posts_.give_back(its);
    return receive;
}

bool TupleReceiver::to_device(TupleIn& tuple, TupleReceive& its) {
    const Receive& r = *its.receive;
    HEDDLE_ASSERT(tuple.posted.size() < kTupleDepth, "credit has so many places");
    if (r.iov_count > 1) return false;
    const std::size_t room = std::min(r.bytes, device_.limits.max_message);
    if (room != 0 && !core_.use_memory(its.local, r.iov.data(), r.iov_count, nullptr, room,
                                       IBV_ACCESS_LOCAL_WRITE))
        return false;
    if (!tuple.queue->post(r.iov[0].iov_base, static_cast<std::uint32_t>(room),
                           room != 0 ? its.local.local_keys[0] : 0,
                           SlotPool<TupleReceive>::id(its))) {
        its.local.release();
        return false;
    }
    tuple.posted.push_back(&its);
    ++tuple.posts;
    ++counts_.posted;
    return true;
}

// Behind the posts, so that a sender with credit finds a receive.
void TupleReceiver::write_credits(TupleIn& tuple) {
    Peer& peer = *tuple.peer;
    HEDDLE_ASSERT(tuple.posts - tuple.credited <= tuple.posted.size(),
                  "credit is due for receives at the device");
    while (tuple.credited != tuple.posts) {
        const std::size_t at = tuple.posted.size() - (tuple.posts - tuple.credited);
        const TupleCredit credit{
            tuple.credited + 1, static_cast<std::uint32_t>(std::min(
                                    tuple.posted[at]->receive->bytes, device_.limits.max_message))};
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(&credit), sizeof credit, 0};
        post::WorkRequest work;
        work.opcode = post::Opcode::kWrite;
        work.flags = post::kInline;
        work.sges = {&sge, 1};
        work.remote_address = tuple.credits + tuple.credited % kTupleDepth * sizeof(TupleCredit);
        work.remote_key = tuple.credits_key;
        work.remote_srq = peer.name.srqn;
        WrContext sent{.what = WrContext::kOwn};
        if (!CoreServices::can_send(peer) || core_.post(peer, work, sent) != post::Posted::kOk)
            return list(tuple);
        ++tuple.credited;
    }
}

// Its messages have no header: whoever is connected to this process and knows, or guesses, the
// number of its queue can send to it.
bool TupleReceiver::is_from_sender(TupleIn& tuple, std::uint32_t qpn) const {
    const std::uint64_t removals = device_.targets.removals();
    if (tuple.from_qpn == qpn && tuple.from_removals == removals) return true;
    const std::optional<EndpointAddress> asker = device_.targets.asker(qpn);
    const EndpointAddress& sender = tuple.peer->name;
    if (!asker || asker->process != sender.process || asker->context != sender.context ||
        asker->channel != sender.channel)
        return false;
    tuple.from_qpn = qpn;
    tuple.from_removals = removals;
    return true;
}

void TupleReceiver::received(std::uint64_t id, const ibv_wc& wc) {
    TupleReceive* const its = posts_.find(id);
    if (its == nullptr) return;  // of a queue that was given up
    TupleIn& tuple = *its->tuple;
    Peer& peer = *tuple.peer;
    const auto at = std::find(tuple.posted.begin(), tuple.posted.end(), its);
    if (at == tuple.posted.end()) return;
    const auto left = static_cast<std::uint32_t>(tuple.posted.end() - at);
    tuple.posted.erase(at);
    its->local.release();
    // Its credit need not be written any more: the message came without.
    if (tuple.posts - tuple.credited >= left) ++tuple.credited;
    if (wc.status != IBV_WC_SUCCESS) {
        // A message that was too long for it, mostly: it comes again by the other way.
        tuple.returned.push_back(its);
        return;
    }
    Receive& r = let_go(*its);
    if (!is_from_sender(tuple, wc.qp_num)) {
        // The receive is spent on it, so that the sender has credit for more than there are.
        if (const std::optional<EndpointAddress> stranger = device_.targets.asker(wc.qp_num))
            device_.targets.refuse(*stranger, core_.name);
        receives_.finish(r, peer, {tuple.tag, 0, false}, {nullptr, 0, 0, EPROTO, 0});
        return core_.protocol_error(peer);
    }
    const auto immediate = wc.wc_flags & IBV_WC_WITH_IMM ? be32toh(wc.imm_data) : 0;
    const bool good =
        wc.wc_flags & IBV_WC_WITH_IMM && TupleImmediate::is_number(immediate, tuple.received);
    ++tuple.received;
    ++counts_.received;
    ++core_.counts.received;
    const std::uint64_t tag = TupleImmediate::tag_of(immediate, tuple.tag, mask_);
    receives_.finish(r, peer, {tag, tuple.data, tuple.has_data},
                     {r.first_buffer(), wc.byte_len, wc.byte_len, 0, 0});
    if (!good) return core_.protocol_error(peer);
    if (tuple.state == TupleIn::State::kDrained) return list(tuple);
    while (tuple.state == TupleIn::State::kOpen && !tuple.pending.empty() &&
           tuple.posted.size() < kTupleDepth) {
        TupleReceive& next = *tuple.pending.front();
        if (!to_device(tuple, next)) return revoke(tuple, TupleReason::kReceive);
        tuple.pending.pop_front();
        write_credits(tuple);
    }
}

void TupleReceiver::got_drained(Peer& peer, const TupleDrainedBody& drained) {
    TupleIn* const tuple = tuples_.find(drained.tuple);
    if (tuple == nullptr || tuple->peer != &peer || tuple->state == TupleIn::State::kOffered ||
        tuple->state >= TupleIn::State::kDrained ||
        static_cast<std::int32_t>(tuple->posts - drained.delivered) < 0)
        return core_.protocol_error(peer);
    tuple->reply.reset();
    // From a queue that has failed there may still be messages under way: not any more.
    if (drained.qpn != 0) device_.targets.drop(peer.name, drained.qpn);
    tuple->flushed_qpn = drained.qpn;
    tuple->state = TupleIn::State::kDrained;
    tuple->delivered = drained.delivered;
    list(*tuple);
}

// All completions that there can be have been polled, once those are that the sender knows of.
void TupleReceiver::look_if_complete(TupleIn& tuple) {
    if (tuple.flushed_qpn != 0 && !device_.targets.is_quiet(tuple.peer->name, tuple.flushed_qpn))
        return list(tuple);
    const std::uint64_t id = SlotPool<TupleIn>::id(tuple);
    while (device_.poll() != 0) {
    }
    if (tuples_.find(id) == nullptr) return;
    if (static_cast<std::int32_t>(tuple.received - tuple.delivered) < 0) return list(tuple);
    tuple.state = TupleIn::State::kEnding;
    take_back(tuple);
    tuple.reply = OutstandingReply(*tuple.peer);
    core_.control(*tuple.peer, Kind::kTupleClosed,
                  TupleClosedBody{tuple.sender, tuple.received, 0});
}

// Nobody sends there any more. The receives take their places again.
void TupleReceiver::take_back(TupleIn& tuple) {
    if (tuple.queue == nullptr) return;
    tuple.queue.reset();
    for (auto* const all : {&tuple.returned, &tuple.posted, &tuple.pending}) {
        for (TupleReceive* const its : *all) {
            const bool cancelled = its->cancelled;
            Receive& receive = let_go(*its);
            if (cancelled)
                receives_.end_unmatched(receive, FI_ECANCELED);
            else
                receives_.tagged.put_back(receive);
        }
        all->clear();
    }
}

void TupleReceiver::got_end(Peer& peer, const TupleBeginBody& ended) {
    TupleIn* const tuple = tuples_.find(ended.tuple);
    if (tuple == nullptr || tuple->peer != &peer || tuple->state != TupleIn::State::kEnding)
        return core_.protocol_error(peer);
    tuple->reply.reset();
    erase(*tuple);
    unpark();
}

void TupleReceiver::erase(TupleIn& tuple) {
    HEDDLE_ASSERT(tuple.queue == nullptr, "its receives have not been taken back");
    by_key_.erase({tuple.peer->number, tuple.tag});
    std::erase(listed_, &tuple);
    tuple.listed = false;
    tuples_.give_back(tuple);
}

bool TupleReceiver::cancel(void* context) {
    for (const auto& [key, tuple] : by_key_) {
        for (auto* const all : {&tuple->pending, &tuple->returned, &tuple->posted}) {
            const auto found = std::find_if(all->begin(), all->end(), [&](const TupleReceive* its) {
                return its->receive->context == context && !its->cancelled;
            });
            if (found == all->end()) continue;
            TupleReceive& its = **found;
            if (all == &tuple->posted) {
                its.cancelled = true;
                revoke(*tuple, TupleReason::kCancel);
            } else {
                all->erase(found);
                receives_.end_unmatched(let_go(its), FI_ECANCELED);
            }
            return true;
        }
    }
    return false;
}

void TupleReceiver::list(TupleIn& tuple) {
    if (tuple.listed) return;
    tuple.listed = true;
    listed_.push_back(&tuple);
}

void TupleReceiver::progress() {
    std::vector<TupleIn*> now;
    now.swap(listed_);
    for (TupleIn* const tuple : now)
        tuple->listed = false;
    for (TupleIn* const tuple : now) {
        if (!tuple->in_use) continue;
        if (tuple->state == TupleIn::State::kDrained)
            look_if_complete(*tuple);
        else if (tuple->state < TupleIn::State::kDrained)
            write_credits(*tuple);
    }
}

// The peer is gone, or nothing from it can be believed: it will not reply.
void TupleReceiver::fail(Peer& peer) {
    while (device_.poll() != 0) {
    }
    tuples_.for_each_in_use([&](TupleIn& tuple) {
        if (tuple.peer != &peer) return;
        tuple.reply.reset();
        take_back(tuple);
        erase(tuple);
    });
    unpark();
}

bool TupleReceiver::close_all() {
    bool all = true;
    tuples_.for_each_in_use([&](TupleIn& tuple) {
        const bool quiet =
            tuple.state <= TupleIn::State::kOpen || tuple.state == TupleIn::State::kEnding;
        if (tuple.posted.empty() && quiet) return;
        all = false;
        revoke(tuple, TupleReason::kClosing);
    });
    return all;
}

}  // namespace heddle::protocol
