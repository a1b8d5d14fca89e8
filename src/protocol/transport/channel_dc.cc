// SPDX-License-Identifier: BSD-2-Clause
// Connections by DC: they have a way to the peer's target, and an initiator while they need one.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "protocol/transport/channel.h"
#include "protocol/transport/channel_limits.h"
#include "protocol/wireup/connector_wire.h"

namespace heddle::protocol {
namespace {

// Connections for whose tickets there are addresses; memory, as they come.
constexpr std::uint32_t kMostTickets = 65'536, kFewTickets = 64;

verbs::ConnectionAttributes attributes_of(const endpoint::SharedContext& shared,
                                          const Options& options) {
    verbs::ConnectionAttributes attributes;
    attributes.port = shared.port;
    attributes.mtu = shared.port.mtu;
    attributes.reads = verbs::most_reads(shared.context.get());
    attributes.min_rnr_timer = static_cast<std::uint8_t>(options.timeouts.rnr);
    attributes.ack_timeout = static_cast<std::uint8_t>(options.timeouts.ack);
    attributes.retries = static_cast<std::uint8_t>(options.timeouts.retries);
    return attributes;
}

}  // namespace

void Channel::use(Connector& connector) {
    connector_ = &connector;
    if (options_.transport == Transport::kDc && objects_.dc_target() == 0)
        objects_.make_dc_target(connector.process().dc_key(),
                                attributes_of(objects_.shared(), options_));
}

// With the first connection: a process that only receives has none.
void Channel::make_initiators() {
    std::vector<verbs::QueuePair> all;
    while (all.size() < kDcInitiators) {
        all.push_back(make_send_queue(options_.send_depth));
        if (!all.back())
            throw VerbsError("initiator " + std::to_string(all.size()) + " of " +
                                 std::to_string(kDcInitiators) + " of DC",
                             errno, "FI_HEDDLE_TRANSPORT=auto uses XRC or RC");
    }
    initiators_.emplace(std::move(all), attributes_of(objects_.shared(), options_));
    tickets_.emplace(objects_.shared().pd.get(), sizeof(DcPrefix), kFewTickets, kMostTickets);
}

void Channel::make_dc(Connection& connection) {
    if (!initiators_) make_initiators();
    if (connection.index_ >= kMostTickets)
        throw VerbsError("connection " + std::to_string(connection.index_ + 1) + " by DC", ENOBUFS,
                         std::to_string(kMostTickets) + " are the most of a channel");
    if (connection.index_ >= tickets_->count())
        tickets_->grow(std::min(2 * tickets_->count(), kMostTickets));
    connection.dc_ = std::make_unique<DcTarget>();
}

// Where the peer's messages go, and what they begin with. 0 or an errno.
int Channel::open_dc(Connection& connection) noexcept {
    const ConnectionRequest& request = *connection.queue_.request;
    DcTarget& target = *connection.dc_;
    ibv_ah_attr path =
        verbs::path_to(address_of(request.to, request.dc_target), objects_.shared().port);
    target.path.reset(ibv_create_ah(objects_.shared().pd.get(), &path));
    if (!target.path) return errno != 0 ? errno : EIO;
    target.number = request.dc_target;
    target.key = request.to.process.dc_key();
    const DcPrefix prefix{request.ticket, 0};
    std::byte* const at = tickets_->at(connection.index_);
    std::memcpy(at, &prefix, sizeof prefix);
    target.ticket = {reinterpret_cast<std::uintptr_t>(at), sizeof prefix,
                     tickets_->key(connection.index_)};
    return 0;
}

// True: the connection may post. What waits for an initiator comes before what a connection could
// add to its WRs that are under way, so none keeps an initiator for ever.
bool Channel::take_initiator(Connection& connection) noexcept {
    if (connection.initiator_ != nullptr) return !initiators_->is_wanted || connection.idle();
    for (DcInitiator& each : *initiators_) {
        if (each.holder != nullptr && !each.holder->idle()) continue;
        if (each.holder != nullptr) leave_initiator(*each.holder);
        if (each.is_broken && !initiators_->repair(each)) continue;
        each.holder = &connection;
        connection.initiator_ = &each;
        initiators_->is_wanted = false;
        return true;
    }
    initiators_->is_wanted = true;
    for (const DcInitiator& each : *initiators_)
        if (each.holder != nullptr && each.holder->ready() && each.holder->unsignaled() != 0)
            signal_behind(*each.holder);
    return false;
}

// What it has reserved is given back, so that it asks before it posts again.
void Channel::leave_initiator(Connection& connection) noexcept {
    HEDDLE_ASSERT(connection.idle() && connection.initiator_ != nullptr);
    give_back_room(connection);
    connection.initiator_->holder = nullptr;
    connection.initiator_ = nullptr;
}

}  // namespace heddle::protocol
