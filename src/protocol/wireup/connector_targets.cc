// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/wireup/connector_targets.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>

#include "heddle/detail/assert.h"
#include "verbs/connection.h"

namespace heddle::protocol {
namespace {

// In the error state a target acknowledges nothing, and gives back the receive of a message that
// has not ended.
void fail(ibv_qp* target) noexcept {
    if (target == nullptr) return;  // DC: it is the endpoint's, for all peers
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    ibv_modify_qp(target, &error, IBV_QP_STATE);
}

// A QP between contexts (XRC) reaches all endpoints of the one, and is of all endpoints of the
// other that share its channel, whoever of them asked.
bool reaches(const EndpointAddress& to, const EndpointAddress& endpoint) noexcept {
    return to == endpoint || (to.xrc() && endpoint.xrc() && to.process == endpoint.process &&
                              to.context == endpoint.context);
}

// What a datagram's sender cannot choose: the port and the UD QP it sends from (is_of()). Within a
// subnet of InfiniBand it may have sent without a GRH, and then its GID is what it says.
ProcessName source_of(const EndpointAddress& from, const verbs::LocalPort& own) noexcept {
    ProcessName source;
    source.ud_qpn = from.process.ud_qpn;
    if (verbs::is_global(address_of(from, 0), own))
        std::copy_n(from.process.gid, sizeof source.gid, source.gid);
    else
        source.lid = from.process.lid;
    source.nonce = source.lid;  // which is hashed
    return source;
}

}  // namespace

ConnectorTargets::ConnectorTargets(const EndpointAddress& self,
                                   const verbs::ConnectionAttributes& own,
                                   const Connector::Options& options)
    : self_(self),
      own_(own),
      most_(options.most_targets),
      most_of_peer_(options.most_targets_of_peer),
      most_gone_(options.most_gone),
      host_(options.host),
      last_receive_(std::chrono::milliseconds(options.last_receive_ms)) {}

ConnectorTargets::~ConnectorTargets() {
    while (!targets_.empty())
        destroy(targets_.begin());
    HEDDLE_ASSERT(std::all_of(by_source_.begin(), by_source_.end(),
                              [](const auto& each) { return each.second == 0; }),
                  "what a peer has taken is given back");
    destroy_retired([](const Retired&) { return true; });
}

void ConnectorTargets::add(const LocalEndpoint& endpoint) {
    HEDDLE_ASSERT(endpoint.name.process == self_.process);
    HEDDLE_ASSERT(endpoint.name.xrc() == (endpoint.xrcd != nullptr));
    HEDDLE_ASSERT(std::none_of(endpoints_.begin(), endpoints_.end(),
                               [&](const LocalEndpoint& e) { return e.name == endpoint.name; }),
                  "no two endpoints have one name");
    endpoints_.push_back(endpoint);
}

// Those that have said BYE, or are lost, do not ask.
void ConnectorTargets::say_bye(const Target& target, const Tell& tell) noexcept {
    {
        const std::shared_lock lock(askers_mutex_);
        const auto asker = askers_.find(target.number());
        if (asker == askers_.end() || asker->second.left || asker->second.dropped) return;
    }
    tell(bye_of(target.request.id, self_), target.request.from);
}

void ConnectorTargets::remove(const EndpointAddress& endpoint, const Tell& tell) noexcept {
    std::erase_if(endpoints_, [&](const LocalEndpoint& e) { return e.name == endpoint; });
    const bool context_stays = std::any_of(
        endpoints_.begin(), endpoints_.end(),
        [&](const LocalEndpoint& e) { return e.name.xrc() && e.name.context == endpoint.context; });
    const auto goes = [&](const Target& target) {
        const EndpointAddress& to = target.request.to;
        return endpoint.xrc() ? to.xrc() && to.context == endpoint.context && !context_stays
                              : to == endpoint;
    };
    for (auto target = targets_.begin(); target != targets_.end();) {
        if (!goes(target->second)) {
            ++target;
            continue;
        }
        say_bye(target->second, tell);
        target = destroy(target);
    }
    destroy_retired([&](const Retired& retired) { return goes(retired.target); });
    // A Drain that no endpoint has any more is not waited for: its queues are about to go.
    const auto is_gone = [this](const Retired::Wait& wait) {
        return std::none_of(endpoints_.begin(), endpoints_.end(),
                            [&](const LocalEndpoint& e) { return e.drain == wait.drain; });
    };
    for (Retired& retired : retired_)
        std::erase_if(retired.waits, is_gone);
}

Datagram ConnectorTargets::answer(const Datagram& request, Clock::time_point now) noexcept {
    HEDDLE_ASSERT(request.kind == DatagramKind::kRequest && request.reads != 0 && request.mtu != 0,
                  "parse() refuses a request without a QP");
    const Key key{request.from.process.nonce, request.id};
    const auto known = targets_.find(key);
    if (known != targets_.end()) {
        // Two requests of one number: somebody else's, or a broken peer.
        return known->second.request == request ? reply(known->second) : refusal(request, EINVAL);
    }
    const auto endpoint =
        std::find_if(endpoints_.begin(), endpoints_.end(),
                     [&](const LocalEndpoint& e) { return e.name == request.to; });
    // Also when the name is of a process that had our QP number before us.
    if (endpoint == endpoints_.end()) return refusal(request, ECONNREFUSED);
    constexpr std::uint8_t kTransport = EndpointAddress::kTransport;
    if (((request.from.flags ^ request.to.flags) & kTransport) != 0)
        return refusal(request, EPROTOTYPE);
    if (is_at_limit(request.from, now) || size() >= most_) return refusal(request, ENOBUFS);
    Target target;
    target.request = request;
    if (const int error = make(*endpoint, request, target)) return refusal(request, error);
    try {
        std::size_t& of_peer = by_source_[source_of(request.from, own_.port)];
        const std::unique_lock lock(askers_mutex_);
        if (!askers_.insert_or_assign(target.number(), Asker{request.from, request.to}).second)
            removals_.fetch_add(1, std::memory_order_release);
        targets_.emplace(key, target);
        ++of_peer;
        HEDDLE_ASSERT(of_peer <= most_of_peer_ && size() <= most_, "is_at_limit() was asked");
    } catch (const std::bad_alloc&) {
        if (target.qp != nullptr) ibv_destroy_qp(target.qp);
        return refusal(request, ENOMEM);
    }
    return reply(target);
}

Datagram ConnectorTargets::refusal(const Datagram& request, int error) const noexcept {
    Datagram reply;
    reply.kind = DatagramKind::kReply;
    reply.id = request.id;
    reply.from = self_;
    reply.error = static_cast<std::uint16_t>(error);
    return reply;
}

Datagram ConnectorTargets::reply(const Target& target) const noexcept {
    Datagram reply = refusal(target.request, 0);
    reply.qpn = target.qpn;
    reply.psn = target.psn;
    reply.mtu = target.mtu;
    reply.reads = target.reads;
    reply.host = host_;
    return reply;
}

void ConnectorTargets::bye(const Datagram& bye, Clock::time_point now) noexcept {
    const auto target = targets_.find({bye.from.process.nonce, bye.id});
    if (target == targets_.end() || !(target->second.request.from.process == bye.from.process))
        return;
    leave(target, now);
}

// What has come of it waits, where an endpoint wants that.
ConnectorTargets::Targets::iterator ConnectorTargets::leave(Targets::iterator target,
                                                            Clock::time_point now) noexcept {
    {
        const std::unique_lock lock(askers_mutex_);
        const auto asker = askers_.find(target->second.number());
        if (asker != askers_.end()) asker->second.left = true;
    }
    if (!keeps_targets(target->second.request.to)) return retire(target, now);
    fail(target->second.qp);
    return std::next(target);
}

bool ConnectorTargets::is_lost_by_all(const Target& target) const noexcept {
    return std::all_of(endpoints_.begin(), endpoints_.end(), [&](const LocalEndpoint& endpoint) {
        return !reaches(target.request.to, endpoint.name) ||
               std::find(target.lost_by.begin(), target.lost_by.end(), endpoint.name.channel) !=
                   target.lost_by.end();
    });
}

void ConnectorTargets::lose(const EndpointAddress& peer, const EndpointAddress& endpoint,
                            Clock::time_point now) noexcept {
    const auto is_of_peer = [&](const EndpointAddress& from) {
        return from.xrc() == peer.xrc() && from.process == peer.process &&
               (peer.xrc() ? from.context == peer.context : from.endpoint == peer.endpoint);
    };
    for (auto target = targets_.begin(); target != targets_.end();) {
        bool goes =
            is_of_peer(target->second.request.from) && reaches(target->second.request.to, endpoint);
        if (goes) try {
                target->second.lost_by.push_back(endpoint.channel);
            } catch (const std::bad_alloc&) {  // then it stays
                goes = false;
            }
        goes = goes && is_lost_by_all(target->second);
        target = goes ? leave(target, now) : std::next(target);
    }
}

bool ConnectorTargets::keeps_targets(const EndpointAddress& endpoint) const noexcept {
    return std::any_of(endpoints_.begin(), endpoints_.end(), [&](const LocalEndpoint& each) {
        return each.keep_targets && each.name == endpoint;
    });
}

void ConnectorTargets::drop(const ProcessName& peer, std::uint32_t peer_qpn,
                            Clock::time_point now) noexcept {
    const auto target = std::find_if(targets_.begin(), targets_.end(), [&](const auto& each) {
        const Datagram& request = each.second.request;
        return request.from.xrc() && request.from.process == peer && request.qpn == peer_qpn;
    });
    if (target == targets_.end()) return;
    {
        const std::unique_lock lock(askers_mutex_);
        const auto asker = askers_.find(target->second.number());
        if (asker != askers_.end()) asker->second.dropped = true;
    }
    retire(target, now);
}

bool ConnectorTargets::is_quiet(const ProcessName& peer, std::uint32_t peer_qpn) const noexcept {
    return std::none_of(retired_.begin(), retired_.end(), [&](const Retired& retired) {
        const Datagram& request = retired.target.request;
        return !retired.is_draining && request.from.process == peer && request.qpn == peer_qpn;
    });
}

void ConnectorTargets::refuse(const EndpointAddress& peer,
                              const EndpointAddress& endpoint) noexcept {
    for (const auto& [key, target] : targets_) {
        const EndpointAddress& from = target.request.from;
        if (from.process != peer.process || from.channel != peer.channel ||
            !reaches(target.request.to, endpoint))
            continue;
        fail(target.qp);
        if (target.qp != nullptr) continue;
        const std::unique_lock lock(askers_mutex_);
        if (askers_.erase(target.number()) != 0) removals_.fetch_add(1, std::memory_order_release);
    }
}

// It is none of its peer's targets any more.
ConnectorTargets::Targets::iterator ConnectorTargets::forget(Targets::iterator target) noexcept {
    const auto of_peer = by_source_.find(source_of(target->second.request.from, own_.port));
    HEDDLE_ASSERT(of_peer != by_source_.end() && of_peer->second != 0);
    if (--of_peer->second == 0) by_source_.erase(of_peer);
    return targets_.erase(target);
}

ConnectorTargets::Targets::iterator ConnectorTargets::destroy(Targets::iterator target) noexcept {
    fail(target->second.qp);
    destroy(target->second);
    return forget(target);
}

// A QP that cannot be destroyed is left to the context's end, and has no owner any more.
void ConnectorTargets::destroy(const Target& target) noexcept {
    if (target.qp != nullptr) ibv_destroy_qp(target.qp);
    note_gone(target.number());
}

template <class Wanted>
void ConnectorTargets::destroy_retired(const Wanted& wanted) noexcept {
    std::erase_if(retired_, [&](const Retired& retired) {
        if (!wanted(retired)) return false;
        destroy(retired.target);
        return true;
    });
}

ConnectorTargets::Targets::iterator ConnectorTargets::retire(Targets::iterator target,
                                                             Clock::time_point now) noexcept {
    HEDDLE_ASSERT(target != targets_.end());
    fail(target->second.qp);
    try {
        retired_.push_back({target->second, now + last_receive_, false, {}});
    } catch (const std::bad_alloc&) {  // then it goes at once
        return destroy(target);
    }
    return forget(target);
}

void ConnectorTargets::reached_last(std::uint32_t number) noexcept {
    for (Retired& retired : retired_)
        if (retired.target.number() == number) retired.target.reached_last = true;
    for (auto& [key, target] : targets_)
        if (target.number() == number) target.reached_last = true;
}

// Everything that it delivered is in the completion queues of the endpoints that it reached.
void ConnectorTargets::ask(Retired& retired) {
    HEDDLE_ASSERT(!retired.is_draining && retired.waits.empty(), "each Drain is asked once");
    retired.is_draining = true;
    for (const LocalEndpoint& endpoint : endpoints_) {
        Drain* const drain = endpoint.drain;
        const bool is_known =
            std::any_of(retired.waits.begin(), retired.waits.end(),
                        [&](const Retired::Wait& wait) { return wait.drain == drain; });
        if (drain == nullptr || is_known || !reaches(retired.target.request.to, endpoint.name))
            continue;
        retired.waits.push_back({drain, drain->asked.load(std::memory_order_relaxed) + 1});
        drain->asked.fetch_add(1, std::memory_order_release);
        drain->ask(drain->argument);
    }
}

void ConnectorTargets::advance(Clock::time_point now) noexcept {
    for (Retired& retired : retired_) {
        if (!retired.is_draining && (retired.target.reached_last || now >= retired.deadline)) try {
                ask(retired);
            } catch (const std::bad_alloc&) {  // then nobody is waited for
            }
        std::erase_if(retired.waits, [](const Retired::Wait& wait) {
            HEDDLE_ASSERT(wait.ticket <= wait.drain->asked.load(std::memory_order_relaxed),
                          "it was asked for");
            return wait.drain->done.load(std::memory_order_acquire) >= wait.ticket;
        });
    }
    destroy_retired(
        [](const Retired& retired) { return retired.is_draining && retired.waits.empty(); });
}

std::optional<ConnectorTargets::Clock::time_point> ConnectorTargets::next() const noexcept {
    std::optional<Clock::time_point> next;
    for (const Retired& retired : retired_)
        if (!retired.is_draining && (!next || retired.deadline < *next)) next = retired.deadline;
    return next;
}

void ConnectorTargets::note_gone(std::uint32_t number) noexcept {
    const std::unique_lock lock(askers_mutex_);
    const auto asker = askers_.find(number);
    if (asker == askers_.end()) return;
    HEDDLE_ASSERT(asker->second.gone_as == 0, "a target goes once");
    try {
        gone_.push_back({number, last_gone_ + 1});
        asker->second.gone_as = ++last_gone_;
    } catch (const std::bad_alloc&) {  // then it goes at once
        askers_.erase(asker);
        removals_.fetch_add(1, std::memory_order_release);
    }
    while (gone_.size() > most_gone_) {
        const auto oldest = askers_.find(gone_.front().number);
        if (oldest != askers_.end() && oldest->second.gone_as == gone_.front().gone_as) {
            askers_.erase(oldest);
            removals_.fetch_add(1, std::memory_order_release);
        }
        gone_.pop_front();
    }
}

bool ConnectorTargets::is_at_limit(const EndpointAddress& from, Clock::time_point now) noexcept {
    const ProcessName source = source_of(from, own_.port);
    const auto of_peer = by_source_.find(source);
    if (of_peer == by_source_.end() || of_peer->second < most_of_peer_) return false;
    const std::size_t before = targets_.size();
    for (auto target = targets_.begin(); target != targets_.end();) {
        const EndpointAddress& other = target->second.request.from;
        const bool gone = other.process.nonce != from.process.nonce &&
                          source_of(other, own_.port) == source &&
                          !keeps_targets(target->second.request.to);
        target = gone ? retire(target, now) : std::next(target);
    }
    return targets_.size() == before;
}

std::optional<EndpointAddress> ConnectorTargets::asker(std::uint32_t target_qpn) const {
    const std::shared_lock lock(askers_mutex_);
    const auto asker = askers_.find(target_qpn);
    if (asker == askers_.end()) return {};
    return asker->second.from;
}

bool ConnectorTargets::has_left(const EndpointAddress& peer,
                                const EndpointAddress& endpoint) const {
    const std::shared_lock lock(askers_mutex_);
    bool left = false;
    for (const auto& [qpn, asker] : askers_) {
        if (asker.dropped || asker.from.process != peer.process ||
            asker.from.channel != peer.channel || !reaches(asker.to, endpoint))
            continue;
        if (!asker.left) return false;
        left = true;
    }
    return left;
}

}  // namespace heddle::protocol
