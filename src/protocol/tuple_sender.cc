// SPDX-License-Identifier: BSD-2-Clause
// The sender's side of tuple queues. A message with credit - its receive is posted, and its size
// known - goes on the connection of all messages, which so never blocks. One without goes on a
// queue that may, which is its tuple's until that has drained; where there is none, it waits here
// for credit. Messages of a tuple stay on the queue that holds the oldest of them under way, as two
// queues have no order between them.
//
// Leaving a queue: nothing more is sent to it; what found no receive is flushed; the receiver is
// told, counts what had come all the same, and the rest is sent again, in order, by the way of all
// other messages.
#include "protocol/tuples.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "heddle/error.h"

namespace heddle::protocol {
namespace {

constexpr std::size_t kCreditBlocks = 256;  // tuples of an endpoint, at least
constexpr std::uint32_t kLateLook = 32;     // messages
// So many of those, and their tuple is better off without a queue: a message that blocks waits for
// the sender's device to try again, where a rendezvous is moved by who posts the receive.
constexpr std::uint32_t kMostLate = 4, kMostSmall = kLateLook / 2;
// Messages after which opening a queue and leaving it was worth it: that costs as much as some
// hundred.
constexpr std::uint32_t kPaidBack = 4096;
// A queue is asked for at so many messages, but by auto: there at tuple_after, when not having had
// one may have cost as much as opening one does, so that at most twice of that is lost whatever the
// program does next.
constexpr std::uint32_t kRepeats = 2;
constexpr std::size_t kMostPieces = 3;  // as the queues have

}  // namespace

TupleSender::TupleSender(RdmEndpoint::Body& body, TupleDevice& device)
    : body_(body), device_(device) {}

TupleSender::~TupleSender() = default;

TupleOut* TupleSender::find(const Peer& peer, std::uint64_t tag) noexcept {
    if (peer.tuples == 0) return nullptr;
    const auto found = by_key_.find({peer.number, tag & ~peer.tuple_mask});
    return found != by_key_.end() && found->second->state != TupleOut::State::kAsked ? found->second
                                                                                     : nullptr;
}

std::size_t TupleSender::held() const noexcept {
    std::size_t messages = 0;
    for (const auto& [key, tuple] : by_key_)
        messages += tuple->waits.size();
    return messages;
}

void TupleSender::note(Peer& peer, const SendArguments& a) {
    if (body_.closing || peer.failed != 0) return;
    const TupleKey key{peer.number, a.tag & ~peer.tuple_mask};
    const bool always = body_.options.rendezvous == Rendezvous::kTuple;
    if (filter_.use(key, always ? kRepeats : body_.options.tuple_after)) open(peer, a, key);
}

void TupleSender::open(Peer& peer, const SendArguments& a, const TupleKey& key) {
    if (by_key_.contains(key)) return;  // the mask has changed meanwhile
    try {
        if (!credits_)
            credits_.emplace(body_.domain->body().context->pd.get(),
                             kTupleDepth * sizeof(TupleCredit),
                             static_cast<std::uint32_t>(
                                 std::max<std::size_t>(kCreditBlocks, body_.options.tuples)),
                             IBV_ACCESS_REMOTE_WRITE);
    } catch (const VerbsError&) {  // no memory that could be registered
        filter_.restart(key, true);
        return;
    }
    std::byte* const credits = credits_->take();
    if (credits == nullptr) {
        filter_.restart(key, true);
        return;
    }
    std::memset(credits, 0, kTupleDepth * sizeof(TupleCredit));
    TupleOut& tuple = tuples_.take();
    tuple.state = TupleOut::State::kAsked;
    tuple.peer = &peer;
    tuple.tag = key.tag;
    tuple.mask = peer.tuple_mask;
    tuple.has_data = a.flags & FI_REMOTE_CQ_DATA;
    tuple.data = tuple.has_data ? a.data : 0;
    tuple.credits = credits;
    by_key_[key] = &tuple;
    ++peer.tuples;
    ++peer.answers;
    ++body_.tuple_counts.asked;

    TupleOpenBody open;
    open.sender = Numbered<TupleOut>::id(tuple);
    open.mask = tuple.mask;
    open.credits = reinterpret_cast<std::uintptr_t>(credits);
    open.credits_key = credits_->remote_key();
    open.data = tuple.data;
    open.flags = tuple.has_data ? TupleOpenBody::kHasData : 0;
    body_.control(peer, Kind::kTupleOpen, open, {}, a.tag);
    body_.look_if_open(peer);
}

void TupleSender::got_answer(Peer& peer, const TupleAnswerBody& answer) {
    TupleOut* const tuple = tuples_.find(answer.tuple);
    if (tuple == nullptr || tuple->peer != &peer || tuple->state != TupleOut::State::kAsked)
        return body_.damaged(peer);
    --peer.answers;
    TupleReason declined = reason_of(answer.declined);
    if (declined == TupleReason::kMask && !TupleImmediate::possible(answer.mask))
        declined = TupleReason::kManyBits;
    if (declined != TupleReason::kNone) {
        ++body_.tuple_counts.declined[static_cast<std::size_t>(declined)];
        filter_.restart({peer.number, tuple->tag}, declined != TupleReason::kMask);
        if (declined == TupleReason::kMask) peer.new_tuple_mask = answer.mask;
        return end(*tuple);
    }
    tuple->state = TupleOut::State::kBeginning;
    tuple->receiver = answer.receiver;
    tuple->srqn = answer.srqn;
    ++body_.tuple_counts.opened;
    const std::uint64_t id = Numbered<TupleOut>::id(*tuple);
    if (RdmEndpoint::Body::can_send(peer) && begin(id)) return;
    auto* const beginning = new TupleBeginning;
    beginning->body = &body_;
    beginning->peer = &peer;
    beginning->tuple = id;
    body_.wait(peer, *beginning);
}

// Numbered when it goes: behind all that was sent before it.
bool TupleSender::begin(std::uint64_t id) {
    TupleOut* const tuple = tuples_.find(id);
    if (tuple == nullptr || tuple->state != TupleOut::State::kBeginning) return true;
    Peer& peer = *tuple->peer;
    const Header header{Kind::kTupleBegin,    0, body_.name.endpoint, peer.name.endpoint,
                        peer.send_sequence(), 0};
    const TupleBeginBody begin{tuple->receiver};
    std::byte message[sizeof header + sizeof begin];
    std::memcpy(message, &header, sizeof header);
    std::memcpy(message + sizeof header, &begin, sizeof begin);
    if (!body_.send_control(peer, message)) return false;
    peer.count_numbered();
    tuple->state = TupleOut::State::kOpen;
    advance(*tuple);
    return true;
}

bool TupleBeginning::go() {
    if (!body->tuples->sender.begin(tuple)) return false;
    delete this;
    return true;
}

void TupleBeginning::fail(int) { delete this; }

void TupleSender::send(TupleOut& tuple, Transfer& t) {
    t.step = Transfer::Step::kTuple;
    t.tuple = &tuple;
    t.delivered = t.flushed = false;
    t.buffer = nullptr;
    t.place = t.peer->sent + t.peer->to_number;
    t.order = ++t.peer->to_tuples;
    tuple.waits.push_back(&t);
    if (tuple.state == TupleOut::State::kOpen) advance(tuple);
    // Who sends a small message may go on; how much may so lie here is bounded.
    if (!tuple.waits.empty() && tuple.waits.back() == &t) {
        ++body_.tuple_counts.held;
        copy(t);
    }
}

// What is small is copied, and its end told: nobody has to wait until there is a receive for it.
void TupleSender::copy(Transfer& t) noexcept {
    if (t.reported || t.bytes >= body_.options.tuple_copy || t.flags & FI_INJECT ||
        t.flags & FI_MATCH_COMPLETE)
        return;
    memory::Pool& buffers = body_.channel->send_buffers();
    if (t.bytes > buffers.bytes() || copies_ >= buffers.count() / 2) return;
    t.buffer = buffers.take();
    if (t.buffer == nullptr) return;
    ++copies_;
    ++body_.tuple_counts.copied;
    std::byte* to = t.buffer;
    for (std::size_t i = 0; i < t.iov_count; ++i) {
        if (t.iov[i].iov_len != 0) std::memcpy(to, t.iov[i].iov_base, t.iov[i].iov_len);
        to += t.iov[i].iov_len;
    }
    t.iov[0] = {t.buffer, t.bytes};
    t.iov_count = 1;
    body_.entry(t.what, false, t.context, 0, 0, 0, t.counter);
    t.what = 0;
    t.reported = true;
}

std::optional<TupleCredit> TupleSender::credit(const TupleOut& tuple,
                                               std::uint32_t number) const noexcept {
    const std::byte* const at = tuple.credits + number % kTupleDepth * sizeof(TupleCredit);
    const auto word = __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), __ATOMIC_ACQUIRE);
    const auto credit = std::bit_cast<TupleCredit>(word);
    if (credit.number != number + 1) return {};
    return credit;
}

// Whatever can go, goes.
void TupleSender::advance(TupleOut& tuple) {
    while (tuple.state == TupleOut::State::kOpen && !tuple.waits.empty()) {
        Transfer& t = *tuple.waits.front();
        const bool has_data = t.flags & FI_REMOTE_CQ_DATA;
        if (t.bytes > body_.channel->max_message() || t.iov_count > kMostPieces ||
            has_data != tuple.has_data || (has_data && t.data != tuple.data))
            return close(tuple, TupleReason::kOtherMessage);
        const std::optional<TupleCredit> has = credit(tuple, tuple.sent);
        if (has && t.bytes > has->bytes) return close(tuple, TupleReason::kTruncation);
        switch (post(tuple, t, has.has_value())) {
            case Way::kWait:
                return list(tuple);
            case Way::kClose:
                return close(tuple, TupleReason::kOtherMessage);
            case Way::kPosted:
                break;
        }
        tuple.waits.pop_front();
        tuple.under_way.push_back(&t);
        ++tuple.sent;
        ++tuple.outstanding;
        ++body_.tuple_counts.sent;
        if (!has) ++tuple.late;
        if (t.bytes <= body_.options.eager_bytes) ++tuple.small;
        const bool late = tuple.late > kMostLate, small = tuple.small > kMostSmall;
        if (++tuple.looked_at < kLateLook && !late) continue;
        tuple.looked_at = tuple.late = tuple.small = 0;
        if ((late || small) && body_.options.rendezvous == Rendezvous::kAuto)
            return close(tuple, late ? TupleReason::kLate : TupleReason::kSmall);
    }
}

TupleSender::Way TupleSender::post(TupleOut& tuple, Transfer& t, bool has_credit) {
    Peer& peer = *tuple.peer;
    const bool on_common = tuple.blocking == nullptr;
    if (!has_credit && on_common) {
        if (tuple.outstanding != 0) return Way::kWait;  // the common one must not block
        BlockingQueue* const queue =
            device_.take(body_.connector, body_.name, peer.name, body_.options.tuple_queues);
        if (queue == nullptr || queue->state() != BlockingQueue::State::kReady) return Way::kWait;
        queue->owner = &tuple;
        tuple.blocking = queue;
    }
    // Others wait for a queue that this one does not need: it drains.
    if (!on_common && has_credit && waiting_.size() > tuple.listed && tuple.outstanding != 0 &&
        credit(tuple, tuple.sent - 1))
        return Way::kWait;
    if (tuple.blocking != nullptr ? !tuple.blocking->has_room()
                                  : !RdmEndpoint::Body::can_send(peer))
        return Way::kWait;

    // Without credit it may lie at the device for long: what is small, in a copy.
    if (!has_credit) copy(t);
    std::array<ibv_sge, kMostPieces> pieces{};
    std::size_t count = 0;
    const std::size_t most_inline =
        tuple.blocking != nullptr ? device_.max_inline : body_.channel->max_inline();
    const bool is_inline = t.bytes <= std::min(most_inline, body_.options.inject_bytes);
    if (!is_inline && t.buffer == nullptr && t.bulk.local.count == 0 &&
        !t.bulk.local.use(body_.domain->body(), t.iov.data(), t.iov_count, t.descriptors.data(),
                          t.bytes, 0))
        return Way::kClose;
    const auto add = [&](const iovec& piece, std::uint32_t key) {
        if (piece.iov_len != 0)
            pieces[count++] = {reinterpret_cast<std::uintptr_t>(piece.iov_base),
                               static_cast<std::uint32_t>(piece.iov_len), key};
    };
    if (is_inline || t.buffer != nullptr)
        for (std::size_t i = 0; i < t.iov_count; ++i)
            add(t.iov[i], is_inline ? 0 : body_.channel->send_buffers().key());
    else
        for (std::size_t i = 0; i < t.bulk.local.count; ++i)
            add(t.bulk.local.iov[i], t.bulk.local.local_keys[i]);
    const std::uint32_t immediate = TupleImmediate::put(t.tag, tuple.mask, tuple.sent);
    if (tuple.blocking != nullptr) {
        if (!tuple.blocking->post({pieces.data(), count}, is_inline, immediate, tuple.srqn, t))
            return Way::kWait;
        if (!has_credit) ++body_.tuple_counts.blocking;
        return Way::kPosted;
    }
    post::WorkRequest work;
    work.opcode = post::Opcode::kSendImm;
    work.immediate = immediate;
    work.remote_srq = tuple.srqn;
    work.sges = {pieces.data(), count};
    if (is_inline) work.flags = post::kInline;
    Sent sent;
    sent.user = &body_;
    sent.part = &t;
    switch (body_.channel->post(*peer.connection, work, sent)) {
        case post::Posted::kOk:
            return Way::kPosted;
        case post::Posted::kFull:
            return Way::kWait;
        case post::Posted::kInvalid:
            break;
    }
    return Way::kClose;
}

// On the common queue, or on one that may block.
void Transfer::done(int error, int) { body->tuple_sent(*this, error == 0); }
void Transfer::completed(const ibv_wc& wc) {
    tuple->blocking->count_done();
    body->tuple_sent(*this, wc.status == IBV_WC_SUCCESS);
}

void TupleSender::done(Transfer& t, bool delivered) {
    TupleOut& tuple = *t.tuple;
    --tuple.outstanding;
    (delivered ? t.delivered : t.flushed) = true;
    while (!tuple.under_way.empty() && tuple.under_way.front()->delivered) {
        Transfer& first = *tuple.under_way.front();
        tuple.under_way.pop_front();
        ++tuple.delivered;
        finish(first, 0);
    }
    // A message was longer than its receive, or the peer is gone: nothing more goes there.
    if (!delivered && tuple.state == TupleOut::State::kOpen && tuple.failed == 0)
        return close(tuple, TupleReason::kTruncation);
    if (tuple.state == TupleOut::State::kOpen) {
        if (tuple.outstanding == 0) leave_blocking(tuple);
        if (!tuple.waits.empty()) advance(tuple);
    } else {
        look_if_drained(tuple);
    }
}

void TupleSender::leave_blocking(TupleOut& tuple) noexcept {
    if (tuple.blocking == nullptr) return;
    tuple.blocking->owner = nullptr;
    tuple.blocking = nullptr;
}

void TupleSender::close(TupleOut& tuple, TupleReason reason) {
    tuple.state = TupleOut::State::kClosing;
    ++body_.tuple_counts.ended[static_cast<std::size_t>(reason)];
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
    // A broken one stays this tuple's until the receiver, who finds it by its number, has let go of
    // it.
    if (tuple.broken == 0) leave_blocking(tuple);
    tuple.state = TupleOut::State::kDrained;
    ++tuple.peer->answers;
    body_.control(*tuple.peer, Kind::kTupleDrained,
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
        return body_.damaged(peer);
    --peer.answers;
    for (; tuple->delivered != closed.delivered; ++tuple->delivered) {
        Transfer& first = *tuple->under_way.front();
        tuple->under_way.pop_front();
        finish(first, 0);
    }
    end(*tuple);
}

// Nothing of it is at the device. What there is left goes the way of all others, or has failed.
void TupleSender::end(TupleOut& tuple) {
    Peer& peer = *tuple.peer;
    leave_blocking(tuple);
    by_key_.erase({peer.number, tuple.tag});
    credits_->give_back(tuple.credits);
    std::deque<Transfer*> left;
    left.swap(tuple.under_way);
    body_.tuple_counts.again += left.size();
    left.insert(left.end(), tuple.waits.begin(), tuple.waits.end());
    tuple.waits.clear();
    std::erase(waiting_, &tuple);
    unlist(tuple);
    const int failed = tuple.failed;
    const bool was_there = tuple.state == TupleOut::State::kDrained;
    const TupleBeginBody ended{tuple.receiver};
    tuples_.give_back(tuple);
    // All tuples of a peer are hashed alike, so none may be there when that changes.
    if (--peer.tuples == 0) peer.tuple_mask = peer.new_tuple_mask;
    if (failed != 0) {
        for (Transfer* const t : left)
            finish(*t, failed);
    } else {
        send_otherwise(left);
        if (was_there) body_.control(peer, Kind::kTupleEnd, ended);
        body_.look_if_open(peer);
    }
}

void TupleSender::send_otherwise(std::deque<Transfer*>& transfers) {
    for (Transfer* const t : transfers) {
        t->bulk.local.release();
        if (t->buffer != nullptr) {
            t->copy.assign(t->buffer, t->buffer + t->bytes);
            t->iov[0].iov_base = t->copy.data();
            t->descriptors = {};
            body_.channel->send_buffers().give_back(t->buffer);
            t->buffer = nullptr;
            --copies_;
        }
        t->step = Transfer::Step::kMessage;
        t->tuple = nullptr;
        t->later = true;
        if (!RdmEndpoint::Body::can_send(*t->peer) || !body_.start(*t)) body_.wait(*t->peer, *t);
    }
}

void TupleSender::finish(Transfer& t, int error) {
    if (t.buffer != nullptr) {
        body_.channel->send_buffers().give_back(t.buffer);
        t.buffer = nullptr;
        --copies_;
    }
    t.step = Transfer::Step::kFin;
    t.tuple = nullptr;
    body_.finish(t, error, 0);
}

// Its peer owes it credit meanwhile: that it has gone is noticed like that of one who owes an
// answer.
void TupleSender::list(TupleOut& tuple) {
    if (tuple.listed) return;
    tuple.listed = true;
    ++tuple.peer->answers;
    waiting_.push_back(&tuple);
}

void TupleSender::unlist(TupleOut& tuple) noexcept {
    if (std::exchange(tuple.listed, false)) --tuple.peer->answers;
}

void TupleSender::progress() {
    for (std::size_t i = 0; i < waiting_.size();) {
        TupleOut& tuple = *waiting_[i];
        waiting_[i] = waiting_.back();
        waiting_.pop_back();
        unlist(tuple);
        const std::size_t before = waiting_.size();
        advance(tuple);
        // It waits again, at the end of the list: not now.
        if (waiting_.size() > before) {
            std::swap(waiting_[i], waiting_.back());
            ++i;
        }
    }
}

void TupleSender::fail(Peer& peer, int error) {
    tuples_.for_each_in_use([&](TupleOut& tuple) {
        if (tuple.peer != &peer || tuple.failed != 0) return;
        if (tuple.state == TupleOut::State::kAsked || tuple.state == TupleOut::State::kDrained)
            --peer.answers;
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
