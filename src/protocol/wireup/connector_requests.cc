// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/wireup/connector_requests.h"

#include <algorithm>
#include <cerrno>

#include "heddle/detail/assert.h"
#include "protocol/wireup/connector_report.h"
#include "verbs/connection.h"

namespace heddle::protocol {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLongestPause{1000};
constexpr milliseconds kFarewells{5000};  // so long is a BYE repeated

}  // namespace

ConnectorRequests::ConnectorRequests(const EndpointAddress& self,
                                     const verbs::ConnectionAttributes& own,
                                     const Connector::Options& options)
    : self_(self),
      own_(own),
      first_pause_(std::max(options.first_repeat_ms, 1u)),
      patience_(options.give_up_ms) {}

void ConnectorRequests::start(ConnectionRequest& request, Clock::time_point now) {
    HEDDLE_ASSERT(request.state.load(std::memory_order_relaxed) == ConnectionRequest::kConnecting);
    HEDDLE_ASSERT(request.qp != nullptr && !ids_.contains(&request));
    Asked asked;
    asked.request = &request;
    Datagram& d = asked.datagram;
    d.kind = DatagramKind::kRequest;
    do
        d.id = std::uint64_t{random_()} << 32 | random_();
    while (asked_.contains(d.id));
    d.from = request.from;
    d.to = request.to;
    d.qpn = request.qp->qp_num;
    d.psn = random_() & 0xff'ffff;
    d.mtu = static_cast<std::uint8_t>(own_.mtu);
    d.reads = verbs::most_reads(request.qp->context);
    HEDDLE_ASSERT(d.qpn < 1u << 24 && d.mtu != 0 && d.reads != 0, "the peer's parse() wants that");
    asked.started = now;
    asked.give_up = now + patience_;
    asked.pause = first_pause_;
    asked.timer = timers_.emplace(now, d.id);
    ids_.emplace(&request, d.id);
    asked_.emplace(d.id, asked);
}

ConnectorRequests::Outgoing ConnectorRequests::bye(const Asked& asked) const {
    Outgoing out;
    out.datagram.kind = DatagramKind::kBye;
    out.datagram.id = asked.datagram.id;
    out.datagram.from = self_;
    out.to = asked.datagram.to;
    return out;
}

std::optional<ConnectorRequests::Outgoing> ConnectorRequests::stop(
    const ConnectionRequest& request) {
    const auto id = ids_.find(&request);
    if (id == ids_.end()) return {};
    const auto asked = asked_.find(id->second);
    HEDDLE_ASSERT(asked != asked_.end() && asked->second.request == &request,
                  "both tables know the request");
    const Outgoing out = bye(asked->second);
    if (!asked->second.connected) timers_.erase(asked->second.timer);
    const bool heard_of = asked->second.times_sent != 0;
    asked_.erase(asked);
    ids_.erase(id);
    if (!heard_of) return {};
    return out;
}

void ConnectorRequests::abandon(const ConnectionRequest& request, Clock::time_point now) {
    const auto id = ids_.find(&request);
    if (id == ids_.end()) return;
    const auto known = asked_.find(id->second);
    HEDDLE_ASSERT(known != asked_.end() && !known->second.abandoned,
                  "a request that was abandoned has no owner");
    Asked& asked = known->second;
    if (!asked.connected) return;
    asked.request = nullptr;
    asked.abandoned = true;
    asked.pause = first_pause_;
    asked.give_up = now + kFarewells;
    asked.timer = timers_.emplace(now, id->second);
    ids_.erase(id);
}

// Everything is done with the request once its state is stored: its owner may free it then.
void ConnectorRequests::end(const Asked& asked, int error, std::vector<Ended>& ended) {
    HEDDLE_ASSERT(asked.request != nullptr && !asked.connected && !asked.abandoned);
    ConnectionRequest& request = *asked.request;
    HEDDLE_ASSERT(request.state.load(std::memory_order_relaxed) == ConnectionRequest::kConnecting,
                  "a request ends once");
    HEDDLE_ASSERT(error >= 0, "an errno is positive");
    ended.push_back({&request, request.changed, request.argument, error, asked.datagram.to,
                     Clock::now() - asked.started, asked.times_sent});
    request.error = error;
    request.state.store(error == 0 ? ConnectionRequest::kConnected : ConnectionRequest::kFailed,
                        std::memory_order_release);
}

int ConnectorRequests::take_up(const Asked& asked, const Datagram& reply) const noexcept {
    // A peer that answers with more than it was asked for is broken.
    if (reply.mtu > asked.datagram.mtu || reply.reads > asked.datagram.reads) return EPROTO;
    HEDDLE_ASSERT(reply.error == 0 && reply.mtu != 0 && reply.reads != 0,
                  "parse() refuses an answer without a QP");
    const QpAddress peer = address_of(asked.datagram.to, reply.qpn);
    verbs::ConnectionAttributes attributes = own_;
    attributes.mtu = static_cast<ibv_mtu>(reply.mtu);
    attributes.send_psn = asked.datagram.psn;
    attributes.receive_psn = reply.psn;
    attributes.reads = reply.reads;
    ibv_qp* const qp = asked.request->qp;
    const int error = verbs::to_ready_to_receive(qp, peer, attributes);
    return error != 0 ? error : verbs::to_ready_to_send(qp, attributes);
}

std::optional<ConnectorRequests::Outgoing> ConnectorRequests::answered(const Datagram& reply,
                                                                       std::vector<Ended>& ended) {
    HEDDLE_ASSERT(reply.kind == DatagramKind::kReply, "the caller has looked at the kind");
    const auto at = asked_.find(reply.id);
    if (at == asked_.end()) {
        if (reply.error != 0) return {};
        Outgoing out;
        out.datagram.kind = DatagramKind::kBye;
        out.datagram.id = reply.id;
        out.datagram.from = self_;
        out.to = reply.from;
        return out;
    }
    Asked& asked = at->second;
    // From another process at that QP number only a refusal counts: the one that was asked is gone.
    if (asked.connected || reply.from.process.ud_qpn != asked.datagram.to.process.ud_qpn ||
        (reply.error == 0 && reply.from.process != asked.datagram.to.process))
        return {};
    timers_.erase(asked.timer);
    const int error = reply.error != 0 ? reply.error : take_up(asked, reply);
    asked.request->packet_bytes = 128u << reply.mtu;
    asked.request->host = reply.host;
    std::optional<Outgoing> out;
    end(asked, error, ended);
    if (error == 0) {
        asked.connected = true;
    } else {
        if (reply.error == 0) out = bye(asked);
        ids_.erase(asked.request);
        asked_.erase(at);
    }
    return out;
}

std::vector<ConnectorRequests::Outgoing> ConnectorRequests::due(Clock::time_point now,
                                                                std::vector<Ended>& ended) {
    std::vector<Outgoing> out;
    while (!timers_.empty() && timers_.begin()->first <= now) {
        const auto at = asked_.find(timers_.begin()->second);
        HEDDLE_ASSERT(at != asked_.end() && at->second.timer == timers_.begin(),
                      "a request has one timer, which ends with it");
        timers_.erase(timers_.begin());
        Asked& asked = at->second;
        if (!asked.abandoned && obstacle_to(self_, asked.datagram.to) != Obstacle::kNone) {
            end(asked, EHOSTUNREACH, ended);
            ids_.erase(asked.request);
            asked_.erase(at);
            continue;
        }
        if (asked.times_sent != 0 && now >= asked.give_up) {
            out.push_back(bye(asked));
            if (!asked.abandoned) {
                end(asked, ETIMEDOUT, ended);
                ids_.erase(asked.request);
            }
            asked_.erase(at);
            continue;
        }
        out.push_back(asked.abandoned
                          ? bye(asked)
                          : Outgoing{asked.datagram, asked.datagram.to, asked.times_sent != 0});
        ++asked.times_sent;
        // A quarter more or less: those that lost a datagram together do not come together again.
        const auto pause = asked.pause * static_cast<int>(96 + random_() % 65) / 128;
        asked.pause = std::min(asked.pause * 2, kLongestPause);
        asked.timer = timers_.emplace(std::min<Clock::time_point>(now + pause, asked.give_up),
                                      asked.datagram.id);
    }
    HEDDLE_ASSERT(timers_.size() <= asked_.size() && ids_.size() <= asked_.size(),
                  "each timer and each owner has a request");
    return out;
}

std::optional<ConnectorRequests::Clock::time_point> ConnectorRequests::next() const {
    if (timers_.empty()) return {};
    return timers_.begin()->first;
}

std::vector<ConnectorRequests::Outgoing> ConnectorRequests::stop_all(std::vector<Ended>& ended) {
    std::vector<Outgoing> out;
    for (const auto& [id, asked] : asked_) {
        if (asked.times_sent != 0) out.push_back(bye(asked));
        if (!asked.connected) end(asked, ECANCELED, ended);
    }
    asked_.clear();
    ids_.clear();
    timers_.clear();
    return out;
}

}  // namespace heddle::protocol
