// SPDX-License-Identifier: BSD-2-Clause
// The life of an endpoint, and its progress. Whether its peers are alive: liveness.cc.
#include "protocol/rdm_endpoint.h"

#include <rdma/fi_errno.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "protocol/receive_fast_path.h"
#include "protocol/tuples.h"
#include "protocol/wireup/connector_report.h"

namespace heddle::protocol {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kDrainFor = std::chrono::seconds(5);
constexpr auto kCreditLook = std::chrono::microseconds(200);

}  // namespace

EndpointImpl::EndpointImpl(std::shared_ptr<Domain> its_domain, const AddressVector& its_addresses,
                           const Bindings& its_bindings)
    : Core(std::move(its_domain), its_addresses, its_bindings) {
    LocalEndpoint local;
    local.name = name;
    local.context = domain->body().context->context.get();
    local.pd = domain->body().context->pd.get();
    local.xrcd = domain->body().context->xrcd.get();
    local.srq = channel->srq();
    local.cq = channel->cq();
    local.keep_targets = !channel->xrc();
    local.drain = &channel->drain();
    reuse_from.fill(~std::size_t{0});
    if (options.mr_cache_bytes != 0 && options.reuse_after != 0) {
        reuse_from.fill(Reuse::kLeastBytes);
        const std::uint32_t fewest = options.reuse_after.value_or(ReuseCosts::kFewestUses);
        sent_from.emplace(*domain->body().cache, 0, fewest);
        read_into.emplace(*domain->body().cache, IBV_ACCESS_LOCAL_WRITE, fewest);
        domain->body().reuses.insert(domain->body().reuses.end(), {&*sent_from, &*read_into});
    }
    const bool by_tuples =
        options.rendezvous == Rendezvous::kTuple || options.rendezvous == Rendezvous::kAuto;
    if (by_tuples && channel->xrc() && options.tuples != 0) {
        tuples = std::make_unique<Tuples>(*this);
        tuples_from = options.rendezvous == Rendezvous::kTuple ? 0 : options.eager_bytes + 1;
        if (tuples_from == 0) may_send_small = false;
    }
    if (options.rings == 0 && !tuples) look_who_talks_at = ~std::uint64_t{0};
    channel->attach(name.endpoint, *this);
    channel->use(connector);
    connector.add(local);
}

EndpointImpl::~EndpointImpl() {
    close();
    std::erase_if(domain->body().reuses, [this](const Reuse* reuse) {
        return (sent_from && reuse == &*sent_from) || (read_into && reuse == &*read_into);
    });
    connector.remove(name);
    channel->forget(*this);
    channel->detach(name.endpoint);
    process->release_endpoint(name.endpoint);
    tuples.reset();
    for (Matcher* const matcher : {&tagged, &untagged}) {
        while (matcher->any_receive() != nullptr) {
        }
        while (UnexpectedMessage* const message = matcher->any_message())
            delete static_cast<Unexpected*>(message);
    }
    for (const auto& [context, message] : claimed)
        delete message;
}

// What was injected, and answers that peers wait for, still go out. A message whose send the
// application was told is complete stays until its receiver has fetched it, as nobody else has it.
void EndpointImpl::close() {
    closing = true;
    refuse_unexpected();
    const auto start = Clock::now();
    for (;;) {
        progress(~0u);
        bool waiting = false;
        for (const auto& peer : peers)
            waiting = waiting || (peer->failed == 0 && !peer->waiting.empty());
        if (tuples) {
            waiting = !tuples->sender.close_all() || waiting;
            waiting = !tuples->receiver.close_all() || waiting;
        }
        const Unfetched left = unfetched();
        if (left.messages == 0 && !waiting && channel->drained()) return;
        const auto waited = Clock::now() - start;
        if (left.messages == 0 && waited >= kDrainFor) return;
        if (left.messages != 0 && waited >= std::chrono::seconds(options.close_timeout_s)) {
            warn_of(left);
            return;
        }
        ::sched_yield();
    }
}

// Messages of which the application thinks that they are sent, and their receivers have not got.
EndpointImpl::Unfetched EndpointImpl::unfetched() const {
    Unfetched left;
    send_requests.for_each_in_use([&](const SendRequest& t) {
        const bool is_message = !(t.flags & (FI_RMA | FI_ATOMIC));
        const bool will_be_told =
            t.report.what & (WrContext::kEntry | WrContext::kCount) && !(t.flags & FI_INJECT);
        if (!is_message || will_be_told || t.peer->failed != 0) return;
        ++left.messages;
        left.peer = t.peer;
    });
    return left;
}

void EndpointImpl::warn_of(const Unfetched& left) const {
    complain_of(
        *left.peer,
        std::to_string(left.messages) +
            (left.messages == 1 ? " message is lost: it was" : " messages are lost: they were") +
            " not received within " + std::to_string(options.close_timeout_s) +
            " s after the sender closed its endpoint (FI_HEDDLE_CLOSE_TIMEOUT)");
}

// The application will post no receive for them any more: their senders need not wait.
void EndpointImpl::refuse_unexpected() {
    for (Matcher* const matcher : {&tagged, &untagged})
        while (auto* const message = static_cast<Unexpected*>(matcher->any_message())) {
            if (message->rendezvous && message->peer->failed == 0)
                refuse_rendezvous(*message->peer, message->operation, message->by_put, ECONNRESET);
            discard(*message);
        }
}

// Flat: what a message passes through is one piece of code.
[[gnu::flatten]] void EndpointImpl::progress(unsigned most) {
    if (tuples) [[unlikely]]
        tuples->progress();
    if (!ringed.empty()) most = std::max(most - take_from_rings(most), 1u);
    // The device is told of no more than that at once.
    for (;;) {
        const unsigned wanted = std::min(most, Channel::kPollAtOnce);
        if (channel->poll_for(*this, wanted) != Channel::kPollAtOnce) break;
        most -= wanted;
        if (most == 0) break;
    }
    flush_blocked();
    if (counts.received >= look_who_talks_at) [[unlikely]]
        look_who_talks(false);
    if (++ticks >= kTickEvery) [[unlikely]]
        tick();
}

void EndpointImpl::sent(const WrContext& sent, int error, int device_error) {
    Counter* const counter = !(sent.what & WrContext::kCount) ? nullptr
                             : sent.what & WrContext::kRma    ? bindings.write_counter
                                                              : bindings.send_counter;
    entry(sent.what, false, sent.context, 0, error, device_error, counter);
}

std::uint32_t EndpointImpl::uses_for(std::size_t bytes, ReuseCosts::Way way) noexcept {
    if (options.reuse_after) return *options.reuse_after;
    std::uint32_t& enough = enough_uses[way][ReuseCosts::index_of(bytes)];
    if (enough == 0) {
        const ReuseCosts& costs = process->reuse_costs(*domain->body().context);
        reuse_from[way] = costs.smallest(way);
        sent_from->set_fewest(costs.fewest_uses(options.speculation));
        read_into->set_fewest(costs.fewest_uses(options.speculation));
        enough = costs.uses_for(bytes, way, options.speculation);
    }
    return enough;
}

void EndpointImpl::tuple_sent(SendRequest& transfer, bool delivered) {
    tuples->sender.done(transfer, delivered);
}

// Who asks for a queue where there are none is told so; the rest then never comes.
void EndpointImpl::got_tuple(Peer& peer, const Message& m) {
    if (!tuples) {
        if (m.header.kind != Kind::kTupleOpen) return protocol_error(peer);
        TupleAnswerBody answer;
        answer.tuple = m.tuple_open.sender;
        answer.declined = static_cast<std::uint32_t>(TupleReason::kOther);
        return control(peer, Kind::kTupleAnswer, answer);
    }
    switch (m.header.kind) {
        case Kind::kTupleOpen:
            return tuples->receiver.got_open(peer, m.header.tag, m.tuple_open);
        case Kind::kTupleBegin:
            return tuples->receiver.got_begin(peer, m.tuple_begin);
        case Kind::kTupleEnd:
            return tuples->receiver.got_end(peer, m.tuple_begin);
        case Kind::kTupleDrained:
            return tuples->receiver.got_drained(peer, m.tuple_drained);
        case Kind::kTupleAnswer:
            return tuples->sender.got_answer(peer, m.tuple_answer);
        case Kind::kTupleRevoke:
            return tuples->sender.got_revoke(peer, m.tuple_revoke);
        case Kind::kTupleClosed:
            return tuples->sender.got_closed(peer, m.tuple_closed);
        default:
            return;
    }
}

void ZcopyRequest::done(int error, int device_error) {
    if (reused != nullptr) --reused->in_flight;
    if (copy_from != nullptr) {
        if (error == 0) std::memcpy(copy_to, copy_from, bytes);
        endpoint->channel->send_buffers().give_back(copy_from);
    }
    const ZcopyRequest ended = *this;
    endpoint->zcopy_requests.give_back(*this);
    // An error is told even if success would not have been.
    const std::uint8_t wanted = error != 0 ? ended.what | WrContext::kEntry : ended.what;
    ended.endpoint->entry(wanted, ended.read, ended.context, 0, error, device_error, ended.counter);
}

void EndpointImpl::finish(SendRequest& t, int error, int device_error) {
    t.reply.reset();
    t.bulk.local.release();
    std::uint8_t what = t.report.what;
    // An error is reported even if success would not have been, as of what was injected: but no
    // operation is reported twice.
    if (error != 0 && !t.report.is_done) what |= WrContext::kEntry;
    entry(what, t.report.read, t.report.context, t.flags, error, device_error, t.report.counter);
    end_request(t);
}

void EndpointImpl::on_peer_failed(Peer& peer, int error) {
    if (tuples) {
        tuples->sender.fail(peer, error);
        tuples->receiver.fail(peer);
    }
    // What it had written before is in its ring, in front of the receives.
    if (peer.receive_ring != nullptr) take_from_ring(peer, ~0u);
    fail_receives(peer);
    if (peer.outstanding_replies == 0) return;
    send_requests.for_each_in_use([&](SendRequest& transfer) {
        if (transfer.peer == &peer && transfer.step == SendRequest::Step::kAnswer)
            finish(transfer, error, 0);
    });
    receives.for_each_in_use([&](Receive& receive) {
        if (receive.peer == &peer && receive.by_put && !receive.queued)
            rendezvous_done(receive, error, 0);
    });
}

bool EndpointImpl::lost(const Connection& connection, int error, int device_error) {
    const bool ours = std::any_of(peers.begin(), peers.end(), [&](const auto& peer) {
        return peer->connection == &connection;
    });
    if (ours) entry(WrContext::kEntry, false, nullptr, 0, error, device_error, nullptr);
    return ours;
}

void EndpointImpl::changed(Connection& connection) {
    for (const auto& peer : peers) {
        if (peer->connection != &connection) continue;
        if (connection.failed())
            fail_peer(*peer, connection.error());
        else
            flush(*peer);
    }
}

void EndpointImpl::drain() {
    if (!tuples) return;
    while (tuples->device.poll() != 0) {
    }
}

RdmEndpoint::RdmEndpoint(std::shared_ptr<Domain> domain, const AddressVector& addresses,
                         const Bindings& bindings)
    : impl_(std::make_unique<EndpointImpl>(std::move(domain), addresses, bindings)) {}
RdmEndpoint::~RdmEndpoint() = default;

const EndpointAddress& RdmEndpoint::name() const noexcept { return impl_->name; }
ssize_t RdmEndpoint::send(const SendArguments& arguments) { return impl_->send(arguments); }
ssize_t RdmEndpoint::receive(const ReceiveArguments& arguments) {
    return impl_->receive(arguments);
}
ssize_t RdmEndpoint::rma(const RmaArguments& arguments) { return impl_->rma(arguments); }
ssize_t RdmEndpoint::atomic(const AtomicArguments& arguments) { return impl_->atomic(arguments); }
ssize_t RdmEndpoint::cancel(void* context) { return impl_->cancel(context); }
void RdmEndpoint::set_min_multi_receive(std::size_t bytes) noexcept {
    impl_->min_multi_receive = bytes;
}
void RdmEndpoint::progress(unsigned most) { impl_->progress(most); }
int RdmEndpoint::wait_fd() const noexcept { return impl_->channel->wait_fd(); }
bool RdmEndpoint::arm() {
    if (!impl_->stop_rings() || !impl_->channel->arm()) return false;
    if (impl_->tuples) {
        if (!impl_->tuples->device.arm()) return false;
        // Credit comes without an event.
        if (impl_->tuples->sender.waits()) impl_->channel->wake_after(kCreditLook);
    }
    impl_->tick_while_asleep();
    return true;
}
ReuseCounts RdmEndpoint::reuse_counts() const noexcept {
    ReuseCounts counts;
    if (impl_->sent_from) counts += impl_->sent_from->counts();
    if (impl_->read_into) counts += impl_->read_into->counts();
    return counts;
}
TupleCounts RdmEndpoint::tuple_counts() const noexcept { return impl_->tuple_counts; }
bool RdmEndpoint::waits() const noexcept { return impl_->open_requests != 0; }
EndpointCounts RdmEndpoint::counts() const noexcept { return impl_->counts; }
EndpointState RdmEndpoint::state() const noexcept {
    const EndpointImpl& impl = *impl_;
    EndpointState state;
    state.peers = impl.channel->connections();
    state.under_way = impl.channel->under_way();
    for (const auto& peer : impl.peers) {
        state.held += peer->waiting.size();
        state.outstanding_replies += peer->outstanding_replies;
    }
    state.receives = impl.tagged.receives() + impl.untagged.receives();
    state.messages = impl.tagged.messages() + impl.untagged.messages();
    if (impl.tuples) {
        state.held += impl.tuples->sender.held();
        state.tuples_out = impl.tuples->sender.count();
        state.tuples_in = impl.tuples->receiver.count();
    }
    return state;
}

}  // namespace heddle::protocol
