// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/wireup/connector_requests.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "heddle/detail/assert.h"
#include "protocol/wireup/connector_report.h"
#include "verbs/connection.h"

namespace heddle::protocol {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLongestPause{1000};
constexpr milliseconds kFarewells{5000};  // so long is a BYE repeated
// So often is a request sent in its first turn, if it gets no reply. In a later turn: once.
constexpr unsigned kFirstTries = 2;
// The timer of what is due now, whatever the time is.
constexpr ConnectorRequests::Clock::time_point kAtOnce{};

}  // namespace

ConnectorRequests::ConnectorRequests(const EndpointAddress& self,
                                     const verbs::ConnectionAttributes& own,
                                     const Connector::Options& options)
    : self_(self),
      own_(own),
      first_pause_(std::max(options.first_repeat_ms, 1u)),
      patience_(options.give_up_ms),
      most_turns_(std::max(options.most_asked, 1u)),
      lots_(self.process.nonce ^ options.seed) {}

void ConnectorRequests::start(ConnectionRequest& request, Clock::time_point now) {
    HEDDLE_ASSERT(request.state.load(std::memory_order_relaxed) == ConnectionRequest::kConnecting);
    HEDDLE_ASSERT(request.qp != nullptr && !ids_.contains(&request));
    request.peer_has_left.store(false, std::memory_order_relaxed);
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
    asked.pause = first_pause_;
    asked.timer = timers_.end();
    ids_.emplace(&request, d.id);
    wait_for_turn(asked_.emplace(d.id, asked).first->second);
    give_turns();
}

void ConnectorRequests::set_timer(Asked& asked, Clock::time_point at) {
    HEDDLE_ASSERT(asked.timer == timers_.end(), "a request has one timer");
    asked.timer = timers_.emplace(at, asked.datagram.id);
}

void ConnectorRequests::stop_timer(Asked& asked) noexcept {
    if (asked.timer != timers_.end()) timers_.erase(std::exchange(asked.timer, timers_.end()));
}

void ConnectorRequests::wait_for_turn(Asked& asked) {
    asked.state = Asked::kWaits;
    asked.place = queue(asked).size();
    queue(asked).push_back(asked.datagram.id);
}

// It waits no more, or gives its turn up. Afterwards the caller calls give_turns().
void ConnectorRequests::leave_turns(Asked& asked) noexcept {
    if (asked.state == Asked::kHasTurn) {
        HEDDLE_ASSERT(turns_ != 0);
        --turns_;
    } else if (asked.state == Asked::kWaits) {
        std::vector<std::uint64_t>& all = queue(asked);
        HEDDLE_ASSERT(all[asked.place] == asked.datagram.id, "a request knows its place");
        const std::uint64_t last = all.back();
        asked_.find(last)->second.place = asked.place;
        all[asked.place] = last;
        all.pop_back();
    }
}

void ConnectorRequests::give_turns() {
    while (turns_ < most_turns_ && somebody_waits()) {
        const auto& all = !waiting_.empty() ? waiting_ : waiting_again_;
        Asked& asked = asked_.find(all[lots_() % all.size()])->second;
        leave_turns(asked);
        stop_timer(asked);
        asked.state = Asked::kHasTurn;
        asked.tries = asked.times_sent == 0 ? kFirstTries : 1;
        ++turns_;
        set_timer(asked, kAtOnce);
    }
}

// The peer may have one: it has heard of the request, and not said that it is gone.
bool ConnectorRequests::has_target(const Asked& asked) noexcept {
    return asked.times_sent != 0 && (asked.request == nullptr ||
                                     !asked.request->peer_has_left.load(std::memory_order_relaxed));
}

ConnectorRequests::Outgoing ConnectorRequests::farewell(const Asked& asked) const {
    return {bye_of(asked.datagram.id, self_), asked.datagram.to};
}

std::optional<ConnectorRequests::Outgoing> ConnectorRequests::stop(
    const ConnectionRequest& request) {
    const auto id = ids_.find(&request);
    if (id == ids_.end()) return {};
    const auto asked = asked_.find(id->second);
    HEDDLE_ASSERT(asked != asked_.end() && asked->second.request == &request,
                  "both tables know the request");
    const Outgoing out = farewell(asked->second);
    stop_timer(asked->second);
    leave_turns(asked->second);
    const bool is_known_there = has_target(asked->second);
    asked_.erase(asked);
    ids_.erase(id);
    give_turns();
    if (!is_known_there) return {};
    return out;
}

void ConnectorRequests::abandon(const ConnectionRequest& request, Clock::time_point now) {
    const auto id = ids_.find(&request);
    if (id == ids_.end()) return;
    const auto known = asked_.find(id->second);
    HEDDLE_ASSERT(known != asked_.end() && known->second.state != Asked::kAbandoned,
                  "a request that was abandoned has no owner");
    Asked& asked = known->second;
    if (asked.state != Asked::kConnected) return;
    if (!has_target(asked)) {
        ids_.erase(id);
        asked_.erase(known);
        return;
    }
    asked.request = nullptr;
    asked.state = Asked::kAbandoned;
    asked.pause = first_pause_;
    asked.give_up = now + kFarewells;
    set_timer(asked, now);
    ids_.erase(id);
}

bool ConnectorRequests::bye(const Datagram& bye) noexcept {
    const auto known = asked_.find(bye.id);
    if (known == asked_.end() || known->second.state != Asked::kConnected ||
        known->second.datagram.to.process != bye.from.process)
        return false;
    Asked& asked = known->second;
    HEDDLE_ASSERT(asked.request != nullptr, "a connection has an owner until it is abandoned");
    asked.request->peer_has_left.store(true, std::memory_order_release);
    return true;
}

// Everything is done with the request once its state is stored: its owner may free it then.
void ConnectorRequests::end(const Asked& asked, int error, Clock::time_point now,
                            std::vector<Ended>& ended) {
    HEDDLE_ASSERT(asked.request != nullptr && asked.state <= Asked::kHasTurn);
    ConnectionRequest& request = *asked.request;
    HEDDLE_ASSERT(request.state.load(std::memory_order_relaxed) == ConnectionRequest::kConnecting,
                  "a request ends once");
    HEDDLE_ASSERT(error >= 0, "an errno is positive");
    ended.push_back({&request, request.changed, request.argument, error, asked.datagram.to,
                     now - asked.started, asked.times_sent, request.is_spare});
    request.error = error;
    request.state.store(error == 0 ? ConnectionRequest::kConnected : ConnectionRequest::kFailed,
                        std::memory_order_release);
}

int ConnectorRequests::take_up(const Asked& asked, const Datagram& reply) const noexcept {
    // A peer that answers with more than it was asked for is broken.
    if (reply.mtu > asked.datagram.mtu || reply.reads > asked.datagram.reads) return EPROTO;
    HEDDLE_ASSERT(reply.error == 0 && reply.mtu != 0 && reply.reads != 0,
                  "parse() refuses an answer without a QP");
    if (asked.datagram.from.dc()) {
        // An initiator has one MTU for all targets.
        if (reply.mtu != asked.datagram.mtu) return EMSGSIZE;
        asked.request->dc_target = reply.qpn;
        asked.request->ticket = reply.psn;
        return 0;
    }
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
                                                                       Clock::time_point now,
                                                                       std::vector<Ended>& ended) {
    HEDDLE_ASSERT(reply.kind == DatagramKind::kReply, "the caller has looked at the kind");
    const auto at = asked_.find(reply.id);
    if (at == asked_.end()) {
        if (reply.error != 0) return {};
        return Outgoing{bye_of(reply.id, self_), reply.from};
    }
    Asked& asked = at->second;
    // From another process at that QP number only a refusal counts: the one that was asked is gone.
    if (asked.state > Asked::kHasTurn || asked.times_sent == 0 ||
        reply.from.process.ud_qpn != asked.datagram.to.process.ud_qpn ||
        (reply.error == 0 && reply.from.process != asked.datagram.to.process))
        return {};
    stop_timer(asked);
    leave_turns(asked);
    const int error = reply.error != 0 ? reply.error : take_up(asked, reply);
    asked.request->packet_bytes = 128u << reply.mtu;
    asked.request->host = reply.host;
    std::optional<Outgoing> out;
    end(asked, error, now, ended);
    if (error == 0) {
        asked.state = Asked::kConnected;
    } else {
        if (reply.error == 0) out = farewell(asked);
        ids_.erase(asked.request);
        asked_.erase(at);
    }
    give_turns();
    return out;
}

ConnectorRequests::Outgoing ConnectorRequests::send(Asked& asked, Clock::time_point now) {
    if (asked.times_sent == 0) asked.give_up = now + patience_;
    Outgoing out = asked.state == Asked::kAbandoned
                       ? farewell(asked)
                       : Outgoing{asked.datagram, asked.datagram.to, asked.times_sent != 0};
    ++asked.times_sent;
    if (asked.tries != 0) --asked.tries;
    // Up to twice as long: those that lost a datagram together do not come together again.
    const auto pause =
        std::chrono::microseconds(asked.pause) * static_cast<int>(128 + lots_() % 129) / 128;
    asked.pause = std::min(asked.pause * 2, kLongestPause);
    set_timer(asked, std::min<Clock::time_point>(now + pause, asked.give_up));
    return out;
}

std::vector<ConnectorRequests::Outgoing> ConnectorRequests::due(Clock::time_point now,
                                                                std::vector<Ended>& ended) {
    std::vector<Outgoing> out;
    while (!timers_.empty() && timers_.begin()->first <= now) {
        const auto at = asked_.find(timers_.begin()->second);
        HEDDLE_ASSERT(at != asked_.end() && at->second.timer == timers_.begin(),
                      "a request has one timer, which ends with it");
        Asked& asked = at->second;
        stop_timer(asked);
        const bool is_abandoned = asked.state == Asked::kAbandoned;
        const bool has_obstacle =
            !is_abandoned && obstacle_to(self_, asked.datagram.to) != Obstacle::kNone;
        if (has_obstacle || (asked.times_sent != 0 && now >= asked.give_up)) {
            if (!has_obstacle) out.push_back(farewell(asked));
            if (!is_abandoned) {
                end(asked, has_obstacle ? EHOSTUNREACH : ETIMEDOUT, now, ended);
                ids_.erase(asked.request);
            }
            leave_turns(asked);
            asked_.erase(at);
            give_turns();
        } else if (asked.state == Asked::kHasTurn && asked.tries == 0 && somebody_waits()) {
            leave_turns(asked);
            give_turns();
            wait_for_turn(asked);
            set_timer(asked, asked.give_up);
        } else {
            out.push_back(send(asked, now));
        }
    }
    HEDDLE_ASSERT(turns_ <= most_turns_ && (!somebody_waits() || turns_ == most_turns_),
                  "no request waits while there is a turn for it");
    HEDDLE_ASSERT(timers_.size() <= asked_.size() && ids_.size() <= asked_.size(),
                  "each timer and each owner has a request");
    return out;
}

std::optional<ConnectorRequests::Clock::time_point> ConnectorRequests::next() const {
    if (timers_.empty()) return {};
    return timers_.begin()->first;
}

std::vector<ConnectorRequests::Outgoing> ConnectorRequests::stop_all(Clock::time_point now,
                                                                     std::vector<Ended>& ended) {
    std::vector<Outgoing> out;
    for (const auto& [id, asked] : asked_) {
        if (has_target(asked)) out.push_back(farewell(asked));
        if (asked.state <= Asked::kHasTurn) end(asked, ECANCELED, now, ended);
    }
    asked_.clear();
    ids_.clear();
    timers_.clear();
    waiting_.clear();
    waiting_again_.clear();
    turns_ = 0;
    return out;
}

}  // namespace heddle::protocol
