// SPDX-License-Identifier: BSD-2-Clause
// The sender's side of tuple queues. A message with credit - its receive is posted, and its size
// known - goes on the connection of all messages, which so never blocks. One without goes on a
// queue that may, which is its tuple's until that has drained; where there is none, it waits here
// for credit. Messages of a tuple stay on the queue that holds the oldest of them under way, as two
// queues have no order between them.
// How a tuple leaves its queue: tuple_leaving.cc.
#include "protocol/tupleq/tuple_sender.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "protocol/common/iov.h"
#include "protocol/wire/message_writer.h"

namespace heddle::protocol {
namespace {

constexpr std::size_t kCreditBlocks = 256;  // tuples of an endpoint, at least
constexpr std::uint32_t kLateLook = 32;     // messages
// So many of those, and their tuple is better off without a queue. A message that blocks waits for
// the sender's device to try again; a rendezvous is moved by the thread that posts the receive.
constexpr std::uint32_t kMostLate = 4, kMostSmall = kLateLook / 2;
// A queue is asked for at so many messages, but by auto: there at tuple_after, when not having had
// one may have cost as much as opening one does, so that at most twice of that is lost whatever the
// program does next.
constexpr std::uint32_t kRepeats = 2;
constexpr std::size_t kMaxSges = 3;  // as the queues have

// The beginning of a tuple's messages in its queue, that waits for room. The tuple may be gone by
// then.
class TupleBeginning final : public PendingOp {
public:
    TupleBeginning(TupleSender& sender, std::uint64_t tuple) noexcept
        : sender_(sender), tuple_(tuple) {}
    bool try_post() override { return sender_.begin(tuple_); }
    void fail(int) override {}
    bool is_sequenced() const noexcept override { return true; }

private:
    TupleSender& sender_;
    const std::uint64_t tuple_;
};

}  // namespace

TupleSender::TupleSender(CoreServices& core, RequestPool& requests, TupleServices& device,
                         TupleCounts& counts)
    : core_(core), requests_(requests), device_(device), counts_(counts) {}

TupleSender::~TupleSender() = default;

TupleOut* TupleSender::find(const Peer& peer, std::uint64_t tag) noexcept {
    if (peer.number >= by_peer_.size()) return nullptr;
    const OfPeer& its = by_peer_[peer.number];
    if (its.tuples == 0) return nullptr;
    const auto found = by_key_.find({peer.number, tag & ~its.mask});
    return found != by_key_.end() && found->second->state != TupleOut::State::kAsked ? found->second
                                                                                     : nullptr;
}

TupleSender::OfPeer& TupleSender::of(const Peer& peer) {
    if (peer.number >= by_peer_.size()) [[unlikely]]
        by_peer_.resize(core_.peers.size());
    HEDDLE_ASSERT(peer.number < by_peer_.size(), "a peer of another endpoint");
    return by_peer_[peer.number];
}

std::uint64_t TupleSender::mask_of(const Peer& peer) const noexcept {
    return peer.number < by_peer_.size() ? by_peer_[peer.number].mask : 0;
}

std::size_t TupleSender::held() const noexcept {
    std::size_t messages = 0;
    for (const auto& [key, tuple] : by_key_)
        messages += tuple->waits.size();
    return messages;
}

void TupleSender::note(Peer& peer, const SendArguments& a) {
    if (core_.closing || peer.failed != 0) return;
    const TupleKey key{peer.number, a.tag & ~of(peer).mask};
    const bool always = core_.options.rendezvous == Rendezvous::kTuple;
    if (filter_.use(key, always ? kRepeats : core_.options.tuples.open_after)) open(peer, a, key);
}

void TupleSender::open(Peer& peer, const SendArguments& a, const TupleKey& key) {
    if (by_key_.contains(key)) return;  // the mask has changed meanwhile
    HEDDLE_ASSERT((key.tag & of(peer).mask) == 0, "tuples are found by tags without ignored bits");
    try {
        if (!credits_)
            credits_.emplace(device_.pd, kTupleDepth * sizeof(TupleCredit),
                             static_cast<std::uint32_t>(
                                 std::max<std::size_t>(kCreditBlocks, core_.options.tuples.queues)),
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
    tuple.mask = of(peer).mask;
    tuple.has_data = a.flags & FI_REMOTE_CQ_DATA;
    tuple.data = tuple.has_data ? a.data : 0;
    tuple.credits = credits;
    by_key_[key] = &tuple;
    ++of(peer).tuples;
    ++peer.other_ways;
    tuple.reply = OutstandingReply(peer);
    ++counts_.asked;

    TupleOpenBody open;
    open.sender = SlotPool<TupleOut>::id(tuple);
    open.mask = tuple.mask;
    open.credits = reinterpret_cast<std::uintptr_t>(credits);
    open.credits_key = credits_->remote_key();
    open.data = tuple.data;
    open.flags = tuple.has_data ? TupleOpenBody::kHasData : 0;
    core_.control(peer, Kind::kTupleOpen, open, {}, a.tag);
    core_.look_if_open(peer);
}

void TupleSender::got_answer(Peer& peer, const TupleAnswerBody& answer) {
    TupleOut* const tuple = tuples_.find(answer.tuple);
    if (tuple == nullptr || tuple->peer != &peer || tuple->state != TupleOut::State::kAsked)
        return core_.protocol_error(peer);
    tuple->reply.reset();
    TupleReason declined = reason_of(answer.declined);
    if (declined == TupleReason::kMask && !TupleImmediate::possible(answer.mask))
        declined = TupleReason::kManyBits;
    if (declined != TupleReason::kNone) {
        ++counts_.declined[static_cast<std::size_t>(declined)];
        filter_.restart({peer.number, tuple->tag}, declined != TupleReason::kMask);
        if (declined == TupleReason::kMask) of(peer).new_mask = answer.mask;
        return end(*tuple);
    }
    tuple->state = TupleOut::State::kBeginning;
    tuple->receiver = answer.receiver;
    tuple->srqn = answer.srqn;
    ++counts_.opened;
    const std::uint64_t id = SlotPool<TupleOut>::id(*tuple);
    if (CoreServices::can_send(peer) && begin(id)) return;
    core_.wait(peer, PendingPtr(new TupleBeginning(*this, id)));
}

// The beginning gets its sequence number when it goes, behind all that was sent before it.
bool TupleSender::begin(std::uint64_t id) {
    TupleOut* const tuple = tuples_.find(id);
    if (tuple == nullptr || tuple->state != TupleOut::State::kBeginning) return true;
    Peer& peer = *tuple->peer;
    const Header header{Kind::kTupleBegin,
                        0,
                        core_.name.endpoint,
                        peer.name.endpoint,
                        peer.outgoing.send_sequence(),
                        0};
    std::byte room[sizeof header + sizeof(TupleBeginBody)];
    MessageWriter message(room, header);
    message.add(TupleBeginBody{tuple->receiver});
    if (!core_.send_control(peer, message.written())) return false;
    peer.outgoing.count_sequenced();
    tuple->state = TupleOut::State::kOpen;
    advance(*tuple);
    return true;
}

void TupleSender::send(TupleOut& tuple, SendRequest& t) {
    HEDDLE_ASSERT(tuple.peer == t.peer && tuple.state != TupleOut::State::kAsked && !is_full(tuple),
                  "find() and is_full() come first");
    t.step = SendRequest::Step::kHeld;
    t.late.place = t.peer->outgoing.sent + t.peer->waiting_sequenced;
    t.late.order = ++of(*t.peer).messages;
    TupleMessage& message = messages_.take();
    message.sender = this;
    message.tuple = &tuple;
    message.request = &t;
    tuple.waits.push_back(&message);
    if (tuple.state == TupleOut::State::kOpen) advance(tuple);
    // The sender of a small message may go on; the memory for such copies is bounded.
    if (!tuple.waits.empty() && tuple.waits.back() == &message) {
        ++counts_.held;
        copy(message);
    }
}

// What is small is copied, and its end told: nobody has to wait until there is a receive for it.
void TupleSender::copy(TupleMessage& message) noexcept {
    SendRequest& t = *message.request;
    if (t.report.is_done || t.bytes >= core_.options.tuples.copy_below || t.flags & FI_INJECT ||
        t.flags & FI_MATCH_COMPLETE)
        return;
    memory::Pool& buffers = device_.send_buffers;
    if (t.bytes > buffers.bytes() || copies_ >= buffers.count() / 2) return;
    message.buffer = buffers.take();
    if (message.buffer == nullptr) return;
    ++copies_;
    ++counts_.copied;
    gather({t.iov.data(), t.iov_count}, 0, {message.buffer, t.bytes});
    t.iov[0] = {message.buffer, t.bytes};
    t.iov_count = 1;
    core_.entry(t.report.what, false, t.report.context, 0, 0, 0, t.report.counter);
    t.report.what = 0;
    t.report.is_done = true;
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
        TupleMessage& message = *tuple.waits.front();
        const SendRequest& t = *message.request;
        const bool has_data = t.flags & FI_REMOTE_CQ_DATA;
        if (t.bytes > device_.limits.max_message || t.iov_count > kMaxSges ||
            has_data != tuple.has_data || (has_data && t.data != tuple.data))
            return close(tuple, TupleReason::kOtherMessage);
        const std::optional<TupleCredit> has = credit(tuple, tuple.sent);
        if (has && t.bytes > has->bytes) return close(tuple, TupleReason::kTruncation);
        switch (post(tuple, message, has.has_value())) {
            case Way::kWait:
                return list(tuple);
            case Way::kClose:
                return close(tuple, TupleReason::kOtherMessage);
            case Way::kPosted:
                break;
        }
        tuple.waits.pop_front();
        tuple.under_way.push_back(&message);
        ++tuple.sent;
        ++tuple.outstanding;
        HEDDLE_DEBUG_ASSERT(tuple.outstanding <= tuple.under_way.size(),
                            "what is at the device is under way");
        ++counts_.sent;
        if (!has) ++tuple.late;
        if (t.bytes <= core_.options.most_copied()) ++tuple.small;
        const bool late = tuple.late > kMostLate, small = tuple.small > kMostSmall;
        if (++tuple.looked_at < kLateLook && !late) continue;
        tuple.looked_at = tuple.late = tuple.small = 0;
        if ((late || small) && core_.options.rendezvous == Rendezvous::kAuto)
            return close(tuple, late ? TupleReason::kLate : TupleReason::kSmall);
    }
}

TupleSender::Way TupleSender::post(TupleOut& tuple, TupleMessage& message, bool has_credit) {
    SendRequest& t = *message.request;
    Peer& peer = *tuple.peer;
    const bool on_common = tuple.blocking == nullptr;
    if (!has_credit && on_common) {
        if (tuple.outstanding != 0) return Way::kWait;  // the common one must not block
        BlockingQueue* const queue = device_.take(peer.name);
        if (queue == nullptr || queue->state() != BlockingQueue::State::kReady) return Way::kWait;
        queue->owner = &tuple;
        tuple.blocking = queue;
    }
    // Others wait for a queue that this one does not need: it drains.
    if (!on_common && has_credit && waiting_.size() > tuple.credit_to_come.is_open() &&
        tuple.outstanding != 0 && credit(tuple, tuple.sent - 1))
        return Way::kWait;
    if (tuple.blocking != nullptr ? !tuple.blocking->has_room() : !CoreServices::can_send(peer))
        return Way::kWait;

    // Without credit it may lie at the device for long: what is small, in a copy.
    if (!has_credit) copy(message);
    std::array<ibv_sge, kMaxSges> sges{};
    std::size_t count = 0;
    const std::size_t most_inline =
        tuple.blocking != nullptr ? tuple.blocking->max_inline() : device_.limits.max_inline;
    const bool is_inline = t.bytes <= std::min(most_inline, core_.options.inline_bytes);
    if (!is_inline && message.buffer == nullptr && t.bulk.local.count == 0 &&
        !core_.use_memory(t.bulk.local, t.iov.data(), t.iov_count, t.descriptors.data(), t.bytes,
                          0))
        return Way::kClose;
    const auto add = [&](const iovec& sge, std::uint32_t key) {
        if (sge.iov_len != 0)
            sges[count++] = {reinterpret_cast<std::uintptr_t>(sge.iov_base),
                             static_cast<std::uint32_t>(sge.iov_len), key};
    };
    if (is_inline || message.buffer != nullptr)
        for (std::size_t i = 0; i < t.iov_count; ++i)
            add(t.iov[i], is_inline ? 0 : device_.send_buffers.key());
    else
        for (std::size_t i = 0; i < t.bulk.local.count; ++i)
            add(t.bulk.local.iov[i], t.bulk.local.local_keys[i]);
    const std::uint32_t immediate = TupleImmediate::put(t.tag, tuple.mask, tuple.sent);
    if (tuple.blocking != nullptr) {
        if (!tuple.blocking->post({sges.data(), count}, is_inline, immediate, tuple.srqn, message))
            return Way::kWait;
        if (!has_credit) ++counts_.blocking;
        return Way::kPosted;
    }
    post::WorkRequest work;
    work.opcode = post::Opcode::kSendImm;
    work.immediate = immediate;
    work.remote_srq = tuple.srqn;
    work.sges = {sges.data(), count};
    if (is_inline) work.flags = post::kInline;
    WrContext sent;
    sent.handler = &message;
    switch (core_.post(peer, work, sent)) {
        case post::Posted::kOk:
            return Way::kPosted;
        case post::Posted::kFull:
            return Way::kWait;
        case post::Posted::kInvalid:
            break;
    }
    return Way::kClose;
}

void TupleMessage::done(int error, int) { sender->done(*this, error == 0); }
void TupleMessage::completed(const ibv_wc& wc) {
    tuple->blocking->count_done();
    sender->done(*this, wc.status == IBV_WC_SUCCESS);
}

void TupleSender::done(TupleMessage& message, bool delivered) {
    TupleOut& tuple = *message.tuple;
    HEDDLE_ASSERT(message.in_use && tuple.in_use && tuple.outstanding != 0);
    --tuple.outstanding;
    (delivered ? message.delivered : message.flushed) = true;
    while (!tuple.under_way.empty() && tuple.under_way.front()->delivered) {
        TupleMessage& first = *tuple.under_way.front();
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
    HEDDLE_ASSERT(tuple.blocking->owner == &tuple, "a queue has one tuple at a time");
    tuple.blocking->owner = nullptr;
    tuple.blocking = nullptr;
}

void TupleSender::finish(TupleMessage& message, int error) {
    SendRequest& request = *message.request;
    if (message.buffer != nullptr) {
        HEDDLE_ASSERT(copies_ != 0, "a copy was given back twice");
        device_.send_buffers.give_back(message.buffer);
        --copies_;
    }
    messages_.give_back(message);
    request.step = SendRequest::Step::kFin;
    requests_.finish(request, error, 0);
}

// Its peer owes credit meanwhile, so its death is noticed as that of a peer that owes a reply.
void TupleSender::list(TupleOut& tuple) {
    if (tuple.credit_to_come.is_open()) return;
    tuple.credit_to_come = OutstandingReply(*tuple.peer);
    waiting_.push_back(&tuple);
}

void TupleSender::unlist(TupleOut& tuple) noexcept { tuple.credit_to_come.reset(); }

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

}  // namespace heddle::protocol
