// SPDX-License-Identifier: BSD-2-Clause
// The life of an endpoint, and its progress. Whether its peers are alive: core/liveness.cc.
#include "protocol/rdm_endpoint.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "common/give_way.h"
#include "protocol/receive_fast_path.h"
#include "protocol/wireup/connector_report.h"

namespace heddle::protocol {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kDrainFor = std::chrono::seconds(5);
// While an endpoint is closed, it looks so often for peers that have failed.
constexpr auto kLookForFailed = std::chrono::milliseconds(10);
// Messages between two looks at 16 bits of a sequence number: few enough that these suffice.
constexpr std::uint64_t kCountAgain = 8192;
constexpr auto kCreditLook = std::chrono::microseconds(200);

}  // namespace

EndpointImpl::EndpointImpl(std::shared_ptr<Domain> its_domain, const AddressVector& its_addresses,
                           const Bindings& its_bindings)
    : Core(std::move(its_domain), its_addresses, its_bindings),
      reuse_(options, *domain->body().cache, domain->body().reuses,
             [&body = domain->body()]() -> const ReuseCosts& {
                 return body.process->reuse_costs(*body.context);
             }) {
    LocalEndpoint local;
    local.name = name;
    local.context = domain->body().context->context.get();
    local.pd = domain->body().context->pd.get();
    local.xrcd = domain->body().context->xrcd.get();
    local.srq = channel->objects().srq();
    local.cq = channel->objects().cq();
    local.keep_targets = name.rc();
    local.drain = &channel->drain();
    if (Tuples::are_possible(*this)) {
        tuples = std::make_unique<Tuples>(*this, requests, receives_, delivery_);
        receiver_.set_interceptor(&tuples->receiver);
        if (tuples->least_bytes() == 0) may_send_small = false;
    }
    rendezvous_.set_copier(fragment_sender_);
    if (options.rings.peers == 0 && !tuples) look_who_talks_at_ = Rings::kNever;
    channel->users().attach(name.endpoint, *this);
    channel->use(connector);
    local.dc_target = channel->objects().dc_target();
    connector.add(local);
    if (options.rails.ports.empty()) return;
    rails = std::make_unique<Rails>(*this, *domain, channel->wait_set());
    rendezvous_.set_stripes(*rails);
}

EndpointImpl::~EndpointImpl() {
    close();
    rails.reset();
    connector.remove(name);
    channel->forget(*this);
    channel->users().detach(name.endpoint);
    process->release_endpoint(name.endpoint);
    receiver_.set_interceptor(nullptr);
    tuples.reset();
}

// What was injected, and replies that peers wait for, still go out. A message whose send was
// reported as complete stays until its receiver has fetched it, as nobody else has it.
void EndpointImpl::close() {
    closing = true;
    delivery_.refuse_all();
    const auto start = Clock::now();
    auto look_at = start;
    std::unordered_map<const Connection*, bool> reaches_somebody;
    const auto is_lost = [&](const Connection& connection) {
        if (Clock::now() >= look_at) {
            look_at = Clock::now() + kLookForFailed;
            reaches_somebody = connections_of_peers();
        }
        const auto known = reaches_somebody.find(&connection);
        return known != reaches_somebody.end() && !known->second;
    };
    for (;;) {
        progress(~0u);
        bool waiting = false;
        for (const auto& peer : peers)
            waiting = waiting || (peer->failed == 0 && !peer->waiting.empty());
        if (tuples) waiting = !tuples->close_all() || waiting;
        waiting = waiting || rendezvous_.is_reading();
        const Unfetched left = unfetched();
        if (left.messages == 0 && !waiting && channel->drained(is_lost)) return;
        const auto waited = Clock::now() - start;
        if (left.messages == 0 && waited >= kDrainFor) return;
        if (left.messages != 0 && waited >= std::chrono::seconds(options.timeouts.close_s)) {
            warn_of(left);
            return;
        }
        common::give_way();
    }
}

// Whether each of them still reaches somebody. What is on its way to peers that have failed, as a
// probe of before, is of no use, and with a device that repeats it for long it ends late.
std::unordered_map<const Connection*, bool> EndpointImpl::connections_of_peers() const {
    std::unordered_map<const Connection*, bool> reaches_somebody;
    for (const auto& peer : peers)
        if (peer->connection != nullptr) {
            bool& reaches = reaches_somebody[peer->connection];
            reaches = reaches || peer->failed == 0;
        }
    return reaches_somebody;
}

// Messages of which the application thinks that they are sent, and their receivers have not got.
EndpointImpl::Unfetched EndpointImpl::unfetched() const {
    Unfetched left;
    requests.for_each([&](const SendRequest& t) {
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
            " not received within " + std::to_string(options.timeouts.close_s) +
            " s after the sender closed its endpoint (FI_HEDDLE_CLOSE_TIMEOUT)");
}

// Flat: what a message passes through is one piece of code.
[[gnu::flatten]] void EndpointImpl::progress(unsigned most) {
    if (uses_tuples()) [[unlikely]]
        tuples->progress();
    has_enough_ = false;
    if (!rings.empty()) most = std::max(most - rings.take_from_all(most, *this), 1u);
    if (local.is_active()) most = std::max(most - take_by_shm(most), 1u);
    // The device gets the consumer index once for that many.
    for (;;) {
        const unsigned wanted = std::min(most, kPolledAtOnce);
        if (channel->poll_for(*this, wanted) != kPolledAtOnce) break;
        most -= wanted;
        if (most == 0) break;
    }
    if (rails && rails->is_busy()) [[unlikely]]
        rails->progress();
    flush_blocked();
    is_device_alone_ = !uses_tuples() && rings.empty() && !local.is_active() && !rails;
    if (counts.received >= look_who_talks_at_) [[unlikely]]
        look_who_talks(false);
    if (++ticks_ >= kTickEvery) [[unlikely]]
        tick();
}

// By itself, as processes without such peers need none of it.
[[gnu::noinline, gnu::flatten]] unsigned EndpointImpl::take_by_shm(unsigned most) {
    if (local.is_opening()) [[unlikely]]
        local.look_at_answers();
    const unsigned taken = local.take_from_all(most, *this);
    if (rendezvous_.is_reading()) [[unlikely]]
        rendezvous_.read_from_processes();
    return taken;
}

[[gnu::flatten]] void EndpointImpl::read_shm(Peer& peer) { local.take_from(peer, *this); }

inline void EndpointImpl::take_next(Peer& peer, bool is_tagged, const ShmReceiver::Found& found) {
    take_eager(peer, is_tagged, found.bytes, found.has_immediate, found.immediate);
}

inline void EndpointImpl::take_other(Peer& peer, const Header& header,
                                     const ShmReceiver::Found& found) {
    received_from(peer, header, found.bytes, found.has_immediate, found.immediate);
}

[[gnu::flatten]] void EndpointImpl::read_ring(Peer& peer) { rings.take_from(peer, ~0u, *this); }

inline void EndpointImpl::take_next(Peer& peer, const ReceiveRing::Found& found) {
    const bool is_tagged = (word_at(found.bytes.data()) & kTaggedStart) != 0;
    take_eager(peer, is_tagged, found.bytes, found.has_immediate, found.immediate);
}

inline void EndpointImpl::take_other(Peer& peer, const Header& header,
                                     const ReceiveRing::Found& found) {
    received_from(peer, header, found.bytes, found.has_immediate, found.immediate);
}

// long_since: a second has passed since it last was true.
void EndpointImpl::look_who_talks(bool long_since) {
    for (const auto& peer : peers)
        peer->incoming.number_received();
    const std::uint64_t after =
        std::min(rings.look_who_talks(long_since), tuples ? kCountAgain : Rings::kNever);
    look_who_talks_at_ = after == Rings::kNever ? after : counts.received + after;
}

void EndpointImpl::tick() {
    ticks_ = 0;
    requests.trim();
    if (!liveness_.is_time()) return;
    if (channel->error() != 0) return broken(channel->error());
    look_who_talks(true);
    local.look();
    liveness_.look([this](std::vector<bool>& has_receive) { receiver_.mark_sources(has_receive); });
}

// Nobody makes progress meanwhile: an endpoint that waits for a peer looks again in time.
void EndpointImpl::tick_while_asleep() {
    const bool receives_wait = receives_.queued() != 0 && !peers.empty();
    if (!liveness_.is_reply_owed() && (!receives_wait || options.timeouts.keepalive_s == 0)) return;
    ticks_ = kTickEvery;
    channel->wait_set().wake_after(Liveness::kProbeEvery);
}

void EndpointImpl::sent(const WrContext& sent, int error, int device_error) {
    Counter* const counter = !(sent.what & WrContext::kCount) ? nullptr
                             : sent.what & WrContext::kRma    ? bindings.write_counter
                                                              : bindings.send_counter;
    entry(sent.what, false, sent.context, 0, error, device_error, counter);
}

void EndpointImpl::on_peer_failed(Peer& peer, int error) {
    if (tuples) tuples->on_peer_failed(peer, error);
    // What it had written before is in its ring, in front of the receives.
    if (rings.has_ring_here(peer)) read_ring(peer);
    if (local.has_ring_here(peer)) read_shm(peer);
    local.on_peer_failed(peer);
    flow_.on_peer_failed(peer);
    fragments_.on_peer_failed(peer, error);
    receiver_.on_peer_failed(peer);
    if (peer.outstanding_replies == 0 && !rendezvous_.is_reading()) return;
    requests.for_each([&](SendRequest& request) {
        if (request.peer == &peer && request.step == SendRequest::Step::kAnswer)
            requests.finish(request, error, 0);
    });
    rendezvous_.on_peer_failed(peer, error);
}

void EndpointImpl::on_connected(Peer& peer) {
    local.on_connected(peer, peer.connection->host());
    if (rails) rails->tell(peer);
}

// Receives that are posted later, from any source, end in tick().
void EndpointImpl::broken(int error) {
    for (std::size_t i = 0; i < peers.size(); ++i)  // there may be more meanwhile
        if (peers[i]->failed == 0) fail_peer(*peers[i], error);
    receiver_.on_device_failed(error);
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
            on_connected(*peer), flush(*peer);
    }
}

void EndpointImpl::drain() {
    if (tuples) tuples->drain();
}

bool EndpointImpl::arm() {
    if (!rings.stop_all() || rendezvous_.is_reading() || !local.arm() || !channel->arm())
        return false;
    if (rails && !rails->arm()) return false;
    if (waits_for_shm()) channel->wait_set().wake_after(kCreditLook);
    if (tuples) {
        if (!tuples->device.arm()) return false;
        // Credit comes without an event.
        if (tuples->sender.waits()) channel->wait_set().wake_after(kCreditLook);
    }
    tick_while_asleep();
    return true;
}

EndpointState EndpointImpl::state() const noexcept {
    EndpointState state;
    state.peers = channel->connections();
    state.under_way = channel->under_way();
    for (const auto& peer : peers) {
        state.held += peer->waiting.size();
        state.outstanding_replies += peer->outstanding_replies;
    }
    state.receives = receives_.queued();
    state.messages = receives_.tagged.messages() + receives_.untagged.messages();
    if (tuples) {
        state.held += tuples->sender.held();
        state.tuples_out = tuples->sender.count();
        state.tuples_in = tuples->receiver.count();
    }
    return state;
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
    impl_->set_min_multi_receive(bytes);
}
void RdmEndpoint::progress(unsigned most) { impl_->progress(most); }
int RdmEndpoint::wait_fd() const noexcept { return impl_->channel->wait_set().fd(); }
bool RdmEndpoint::arm() { return impl_->arm(); }
ReuseCounts RdmEndpoint::reuse_counts() const noexcept { return impl_->reuse_counts(); }
TupleCounts RdmEndpoint::tuple_counts() const noexcept { return impl_->tuple_counts(); }
bool RdmEndpoint::waits() const noexcept { return impl_->requests.open() != 0; }
EndpointCounts RdmEndpoint::counts() const noexcept { return impl_->counts; }
EndpointState RdmEndpoint::state() const noexcept { return impl_->state(); }

}  // namespace heddle::protocol
