// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/rails.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "protocol/common/iov.h"
#include "protocol/endpoint_impl.h"
#include "protocol/wireup/connector_report.h"

namespace heddle::protocol {
namespace {

// Stripes are whole pages where the message begins with one, and no shorter than this: less takes
// longer to ask for than it gains.
constexpr std::size_t kStripeUnit = 4096, kLeastStripe = 4 * kStripeUnit;

// In Mb/s. A port whose speed is unknown counts as a slow one.
std::uint32_t megabits(const DeviceInfo& port) noexcept {
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(port.speed / 1'000'000, 1, ~0u));
}

// What an endpoint needs that is read from and reads, and has no messages.
Options rail_options(const Options& own, const DeviceInfo& own_port, const std::string& rail) {
    Options options = own;
    options.device = rail;
    options.rails = {};
    options.rails.beside = port_name(own_port);
    options.rendezvous = Rendezvous::kGet;
    options.tuples.queues = 0;
    options.rings.peers = 0;
    options.shm.on = false;
    options.reuse.after = 0;
    options.eager_bytes = options.rendezvous_above = 256;
    options.receive_buffers = 16;
    options.receive_bytes = 0;
    options.timeouts.keepalive_s = 0;
    // A rail that cannot be reached costs time, and no message.
    options.complain = options.inform != nullptr ? options.inform : [](const char*) {};
    return options;
}

}  // namespace

struct Rails::Rail {
    Rail(const Options& own, const DeviceInfo& own_port, const std::string& port)
        : domain(std::make_shared<Domain>(rail_options(own, own_port, port))),
          speed(megabits(domain->device())),
          endpoint(domain, addresses, Bindings{.transmit = &ended, .receive = &messages}) {}

    std::shared_ptr<Domain> domain;
    std::uint32_t speed;
    AddressVector addresses;
    Completions ended, messages;
    RdmEndpoint endpoint;  // last: it uses the others

    const Peer& at(std::uint64_t address) { return *endpoint.impl().peers.at(address); }
};

Rails::Rails(CoreServices& core, const Domain& own, WaitSet& sleeps_on)
    : core_(core), speed_(megabits(own.device())) {
    for (const std::string& port : core.options.rails.ports) {
        if (rails_.size() == kOtherRails) break;
        try {
            auto rail = std::make_unique<Rail>(core.options, own.device(), port);
            sleeps_on.watch(rail->endpoint.wait_fd());
            rails_.push_back(std::move(rail));
        } catch (const VerbsError& error) {
            tell_user(core.options.complain, "rail " + port + " is not used: " + error.what());
        }
    }
}

Rails::~Rails() = default;

Rails::PeerRails& Rails::of(const Peer& peer) {
    if (peer.number >= peers_.size()) peers_.resize(core_.peers.size());
    return peers_[peer.number];
}

void Rails::tell(Peer& peer) {
    if (std::exchange(of(peer).is_told, true) || rails_.empty()) return;
    RailsBody body;
    body.speed = speed_;
    for (const auto& rail : rails_)
        body.rails[body.count++] = {rail->endpoint.name(), rail->speed, 0};
    core_.control(
        peer, Kind::kRails,
        std::span(reinterpret_cast<const std::byte*>(&body), RailsBody::bytes(body.count)), {});
}

// Connections are made at once: a message that had to wait for one would gain nothing.
void Rails::on_message(Peer& peer, const RailsBody& body) {
    PeerRails& its = of(peer);
    if (its.speed != 0) return core_.protocol_error(peer);
    its.speed = std::min(speed_, body.speed);
    add_routes(its, body);
    tell(peer);
}

void Rails::add_routes(PeerRails& its, const RailsBody& body) {
    std::array<bool, kOtherRails> taken{};
    for (std::uint32_t rail = 0; rail < rails_.size(); ++rail) {
        EndpointImpl& ours = rails_[rail]->endpoint.impl();
        // The rail of the same number first: where each rail is a network of its own, that is the
        // one that can be reached.
        std::uint32_t found = body.count;
        for (std::uint32_t k = 0; k < body.count && found == body.count; ++k) {
            const std::uint32_t theirs = (rail + k) % body.count;
            if (!taken[theirs] &&
                obstacle_to(ours.name, body.rails[theirs].name) == Obstacle::kNone)
                found = theirs;
        }
        if (found == body.count) continue;
        taken[found] = true;
        const RailBody& theirs = body.rails[found];
        Route route;
        route.rail = rail;
        route.theirs = found;
        route.address = rails_[rail]->addresses.insert(theirs.name);
        route.speed = std::min(rails_[rail]->speed, theirs.speed);
        ours.connect(*ours.peers.at(route.address));
        ++connecting_;
        its.routes.push_back(route);
    }
}

std::unique_ptr<RailMemory> Rails::register_memory(const Peer& peer, std::span<const iovec> memory,
                                                   std::size_t bytes) {
    if (bytes < core_.options.rails.bytes || of(peer).routes.empty()) return nullptr;
    auto registered = std::make_unique<RailMemory>();
    for (std::size_t rail = 0; rail < rails_.size(); ++rail)
        if (!registered->at[rail].use(rails_[rail]->domain->body(), memory.data(), memory.size(),
                                      nullptr, bytes, IBV_ACCESS_REMOTE_READ))
            return nullptr;
    return registered;
}

std::size_t Rails::read(const Peer& peer, const StripedMemory& memory, std::size_t bytes,
                        StripeOwner& owner, Stripes& stripes) {
    stripes = {};
    PeerRails& its = of(peer);
    if (bytes < core_.options.rails.bytes || its.routes.empty()) return bytes;
    look_at(its);
    std::uint64_t speed = its.speed;
    for (const Route& route : its.routes)
        if (route.state == Route::kOpen) speed += route.speed;
    std::size_t left = bytes;
    for (std::uint32_t i = 0; i < its.routes.size(); ++i) {
        const Route& route = its.routes[i];
        if (route.state != Route::kOpen) continue;
        // In units, so that the product has room for any message.
        const std::size_t share =
            static_cast<std::size_t>(bytes / kStripeUnit * route.speed / speed) * kStripeUnit;
        if (share < kLeastStripe) continue;
        Stripe& stripe = stripes[i];
        stripe.owner = &owner;
        stripe.range = {left - share, share};
        if (!post(route, memory, stripe)) continue;
        left -= share;
        core_.counts.stripes.bytes += share;
    }
    if (left != bytes) ++core_.counts.stripes.messages;
    return left;
}

// False: the rail has no room.
bool Rails::post(const Route& route, const StripedMemory& memory, Stripe& stripe) {
    std::array<iovec, kMaxSegments> local;
    std::array<RmaSegment, kMaxSegments> remote;
    RmaArguments read;
    read.iov = local.data();
    read.remote = remote.data();
    const auto& [offset, bytes] = stripe.range;
    std::size_t lacking = for_each_part(
        memory.local, offset, bytes, [&](const iovec& each, std::size_t skipped, std::size_t part) {
            local[read.iov_count++] = {static_cast<std::byte*>(each.iov_base) + skipped, part};
        });
    lacking += for_each_part(memory.remote, offset, bytes,
                             [&](const Segment& each, std::size_t skipped, std::size_t part) {
                                 remote[read.remote_count++] = {each.address + skipped, part,
                                                                each.rail_keys.at[route.theirs]};
                             });
    HEDDLE_ASSERT(lacking == 0, "both sides have memory for all bytes of a message");
    read.to = route.address;
    read.flags = FI_READ | FI_COMPLETION;
    read.context = &stripe;
    if (rails_[route.rail]->endpoint.rma(read) != 0) return false;
    stripe.is_under_way = true;
    ++under_way_;
    return true;
}

void Rails::progress() {
    for (const auto& rail : rails_) {
        rail->endpoint.progress();
        take_ended(*rail);
    }
    must_look_ = false;
    if (connecting_ == 0) return;
    connecting_ = 0;
    for (PeerRails& its : peers_)
        connecting_ += look_at(its);
}

void Rails::take_ended(Rail& rail) {
    while (!rail.ended.empty()) {
        const CompletionEntry entry = rail.ended.front();
        rail.ended.pop();
        HEDDLE_ASSERT(under_way_ != 0, "a stripe has ended twice");
        --under_way_;
        auto& stripe = *static_cast<Stripe*>(entry.context);
        if (entry.error != 0) ++core_.counts.stripes.again;
        stripe.owner->on_stripe(stripe, entry.error);
    }
}

// Finds which routes are open, and which have failed. How many are neither.
std::size_t Rails::look_at(PeerRails& its) {
    std::size_t connecting = 0;
    for (Route& route : its.routes) {
        if (route.state == Route::kLost) continue;
        const Peer& there = rails_[route.rail]->at(route.address);
        if (there.failed != 0) {
            lose(route, there.failed);
        } else if (there.connection != nullptr && there.connection->ready()) {
            route.state = Route::kOpen;
        } else {
            route.state = Route::kConnecting;
            ++connecting;
        }
    }
    return connecting;
}

void Rails::lose(Route& route, int error) const {
    route.state = Route::kLost;
    if (core_.options.inform == nullptr) return;
    const std::string line = "rail " + port_name(rails_[route.rail]->domain->device()) +
                             " is left for a peer: " + std::string(std::strerror(error)) +
                             "; its messages go by the others";
    core_.options.inform(line.c_str());
}

bool Rails::arm() {
    for (const auto& rail : rails_)
        if (!rail->endpoint.arm()) must_look_ = true;
    return !must_look_;
}

}  // namespace heddle::protocol
