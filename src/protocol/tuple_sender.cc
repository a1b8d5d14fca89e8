// SPDX-License-Identifier: BSD-2-Clause
// The sender's side of tuple queues. A message with credit - its receive is posted, and its size
// known - goes on the connection of all messages, which so never blocks. One without goes on a
// queue that may, which is its tuple's until that has drained; where there is none, it waits here
// for credit. Messages of a tuple stay on the queue that holds the oldest of them under way, as two
// queues have no order between them.
// How a tuple leaves its queue: tuple_leaving.cc.
#include "protocol/tuples.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "heddle/error.h"
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

TupleSender::TupleSender(EndpointImpl& endpoint, TupleDevice& device)
    : endpoint_(endpoint), device_(device) {}

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
    if (endpoint_.closing || peer.failed != 0) return;
    const TupleKey key{peer.number, a.tag & ~peer.tuple_mask};
    const bool always = endpoint_.options.rendezvous == Rendezvous::kTuple;
    if (filter_.use(key, always ? kRepeats : endpoint_.options.tuple_after)) open(peer, a, key);
}

void TupleSender::open(Peer& peer, const SendArguments& a, const TupleKey& key) {
    if (by_key_.contains(key)) return;  // the mask has changed meanwhile
    try {
        if (!credits_)
            credits_.emplace(endpoint_.domain->body().context->pd.get(),
                             kTupleDepth * sizeof(TupleCredit),
                             static_cast<std::uint32_t>(
                                 std::max<std::size_t>(kCreditBlocks, endpoint_.options.tuples)),
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
    ++peer.other_ways;
    tuple.reply = OutstandingReply(peer);
    ++endpoint_.tuple_counts.asked;

    TupleOpenBody open;
    open.sender = SlotPool<TupleOut>::id(tuple);
    open.mask = tuple.mask;
    open.credits = reinterpret_cast<std::uintptr_t>(credits);
    open.credits_key = credits_->remote_key();
    open.data = tuple.data;
    open.flags = tuple.has_data ? TupleOpenBody::kHasData : 0;
    endpoint_.control(peer, Kind::kTupleOpen, open, {}, a.tag);
    endpoint_.look_if_open(peer);
}

void TupleSender::got_answer(Peer& peer, const TupleAnswerBody& answer) {
    TupleOut* const tuple = tuples_.find(answer.tuple);
    if (tuple == nullptr || tuple->peer != &peer || tuple->state != TupleOut::State::kAsked)
        return endpoint_.protocol_error(peer);
    tuple->reply.reset();
    TupleReason declined = reason_of(answer.declined);
    if (declined == TupleReason::kMask && !TupleImmediate::possible(answer.mask))
        declined = TupleReason::kManyBits;
    if (declined != TupleReason::kNone) {
        ++endpoint_.tuple_counts.declined[static_cast<std::size_t>(declined)];
        filter_.restart({peer.number, tuple->tag}, declined != TupleReason::kMask);
        if (declined == TupleReason::kMask) peer.new_tuple_mask = answer.mask;
        return end(*tuple);
    }
    tuple->state = TupleOut::State::kBeginning;
    tuple->receiver = answer.receiver;
    tuple->srqn = answer.srqn;
    ++endpoint_.tuple_counts.opened;
    const std::uint64_t id = SlotPool<TupleOut>::id(*tuple);
    if (EndpointImpl::can_send(peer) && begin(id)) return;
    endpoint_.wait(peer, PendingPtr(new TupleBeginning(*this, id)));
}

// The beginning gets its sequence number when it goes, behind all that was sent before it.
bool TupleSender::begin(std::uint64_t id) {
    TupleOut* const tuple = tuples_.find(id);
    if (tuple == nullptr || tuple->state != TupleOut::State::kBeginning) return true;
    Peer& peer = *tuple->peer;
    const Header header{Kind::kTupleBegin,
                        0,
                        endpoint_.name.endpoint,
                        peer.name.endpoint,
                        peer.outgoing.send_sequence(),
                        0};
    std::byte room[sizeof header + sizeof(TupleBeginBody)];
    MessageWriter message(room, header);
    message.add(TupleBeginBody{tuple->receiver});
    if (!endpoint_.send_control(peer, message.written())) return false;
    peer.outgoing.count_sequenced();
    tuple->state = TupleOut::State::kOpen;
    advance(*tuple);
    return true;
}

void TupleSender::send(TupleOut& tuple, SendRequest& t) {
    t.step = SendRequest::Step::kTuple;
    t.by_tuple.sender = this;
    t.by_tuple.tuple = &tuple;
    t.by_tuple.delivered = t.by_tuple.flushed = false;
    t.by_tuple.buffer = nullptr;
    t.by_tuple.place = t.peer->outgoing.sent + t.peer->waiting_sequenced;
    t.by_tuple.order = ++t.peer->to_tuples;
    tuple.waits.push_back(&t);
    if (tuple.state == TupleOut::State::kOpen) advance(tuple);
    // The sender of a small message may go on; the memory for such copies is bounded.
    if (!tuple.waits.empty() && tuple.waits.back() == &t) {
        ++endpoint_.tuple_counts.held;
        copy(t);
    }
}

// What is small is copied, and its end told: nobody has to wait until there is a receive for it.
void TupleSender::copy(SendRequest& t) noexcept {
    if (t.report.is_done || t.bytes >= endpoint_.options.tuple_copy || t.flags & FI_INJECT ||
        t.flags & FI_MATCH_COMPLETE)
        return;
    memory::Pool& buffers = endpoint_.channel->send_buffers();
    if (t.bytes > buffers.bytes() || copies_ >= buffers.count() / 2) return;
    t.by_tuple.buffer = buffers.take();
    if (t.by_tuple.buffer == nullptr) return;
    ++copies_;
    ++endpoint_.tuple_counts.copied;
    std::byte* to = t.by_tuple.buffer;
    for (std::size_t i = 0; i < t.iov_count; ++i) {
        if (t.iov[i].iov_len != 0) std::memcpy(to, t.iov[i].iov_base, t.iov[i].iov_len);
        to += t.iov[i].iov_len;
    }
    t.iov[0] = {t.by_tuple.buffer, t.bytes};
    t.iov_count = 1;
    endpoint_.entry(t.report.what, false, t.report.context, 0, 0, 0, t.report.counter);
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
        SendRequest& t = *tuple.waits.front();
        const bool has_data = t.flags & FI_REMOTE_CQ_DATA;
        if (t.bytes > endpoint_.channel->max_message() || t.iov_count > kMaxSges ||
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
        ++endpoint_.tuple_counts.sent;
        if (!has) ++tuple.late;
        if (t.bytes <= endpoint_.options.eager_bytes) ++tuple.small;
        const bool late = tuple.late > kMostLate, small = tuple.small > kMostSmall;
        if (++tuple.looked_at < kLateLook && !late) continue;
        tuple.looked_at = tuple.late = tuple.small = 0;
        if ((late || small) && endpoint_.options.rendezvous == Rendezvous::kAuto)
            return close(tuple, late ? TupleReason::kLate : TupleReason::kSmall);
    }
}

TupleSender::Way TupleSender::post(TupleOut& tuple, SendRequest& t, bool has_credit) {
    Peer& peer = *tuple.peer;
    const bool on_common = tuple.blocking == nullptr;
    if (!has_credit && on_common) {
        if (tuple.outstanding != 0) return Way::kWait;  // the common one must not block
        BlockingQueue* const queue = device_.take(endpoint_.connector, endpoint_.name, peer.name,
                                                  endpoint_.options.tuple_queues);
        if (queue == nullptr || queue->state() != BlockingQueue::State::kReady) return Way::kWait;
        queue->owner = &tuple;
        tuple.blocking = queue;
    }
    // Others wait for a queue that this one does not need: it drains.
    if (!on_common && has_credit && waiting_.size() > tuple.credit_to_come.is_open() &&
        tuple.outstanding != 0 && credit(tuple, tuple.sent - 1))
        return Way::kWait;
    if (tuple.blocking != nullptr ? !tuple.blocking->has_room() : !EndpointImpl::can_send(peer))
        return Way::kWait;

    // Without credit it may lie at the device for long: what is small, in a copy.
    if (!has_credit) copy(t);
    std::array<ibv_sge, kMaxSges> sges{};
    std::size_t count = 0;
    const std::size_t most_inline =
        tuple.blocking != nullptr ? device_.max_inline : endpoint_.channel->max_inline();
    const bool is_inline = t.bytes <= std::min(most_inline, endpoint_.options.inject_bytes);
    if (!is_inline && t.by_tuple.buffer == nullptr && t.bulk.local.count == 0 &&
        !t.bulk.local.use(endpoint_.domain->body(), t.iov.data(), t.iov_count, t.descriptors.data(),
                          t.bytes, 0))
        return Way::kClose;
    const auto add = [&](const iovec& sge, std::uint32_t key) {
        if (sge.iov_len != 0)
            sges[count++] = {reinterpret_cast<std::uintptr_t>(sge.iov_base),
                             static_cast<std::uint32_t>(sge.iov_len), key};
    };
    if (is_inline || t.by_tuple.buffer != nullptr)
        for (std::size_t i = 0; i < t.iov_count; ++i)
            add(t.iov[i], is_inline ? 0 : endpoint_.channel->send_buffers().key());
    else
        for (std::size_t i = 0; i < t.bulk.local.count; ++i)
            add(t.bulk.local.iov[i], t.bulk.local.local_keys[i]);
    const std::uint32_t immediate = TupleImmediate::put(t.tag, tuple.mask, tuple.sent);
    if (tuple.blocking != nullptr) {
        if (!tuple.blocking->post({sges.data(), count}, is_inline, immediate, tuple.srqn, t))
            return Way::kWait;
        if (!has_credit) ++endpoint_.tuple_counts.blocking;
        return Way::kPosted;
    }
    post::WorkRequest work;
    work.opcode = post::Opcode::kSendImm;
    work.immediate = immediate;
    work.remote_srq = tuple.srqn;
    work.sges = {sges.data(), count};
    if (is_inline) work.flags = post::kInline;
    WrContext sent;
    sent.user = &endpoint_;
    sent.handler = &t;
    switch (endpoint_.channel->post(*peer.connection, work, sent)) {
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
void SendRequest::done(int error, int) { by_tuple.sender->done(*this, error == 0); }
void SendRequest::completed(const ibv_wc& wc) {
    by_tuple.tuple->blocking->count_done();
    by_tuple.sender->done(*this, wc.status == IBV_WC_SUCCESS);
}

void TupleSender::done(SendRequest& t, bool delivered) {
    TupleOut& tuple = *t.by_tuple.tuple;
    --tuple.outstanding;
    (delivered ? t.by_tuple.delivered : t.by_tuple.flushed) = true;
    while (!tuple.under_way.empty() && tuple.under_way.front()->by_tuple.delivered) {
        SendRequest& first = *tuple.under_way.front();
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

void TupleSender::finish(SendRequest& t, int error) {
    if (t.by_tuple.buffer != nullptr) {
        endpoint_.channel->send_buffers().give_back(t.by_tuple.buffer);
        t.by_tuple.buffer = nullptr;
        --copies_;
    }
    t.step = SendRequest::Step::kFin;
    t.by_tuple.tuple = nullptr;
    endpoint_.requests.finish(t, error, 0);
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
