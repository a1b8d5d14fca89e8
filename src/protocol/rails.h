// SPDX-License-Identifier: BSD-2-Clause
// The other rails of an endpoint: ports besides its own, over which it reads stripes of long
// messages (rndv/stripes.h), and over which peers read from it. At each there is an endpoint of
// this one's, which makes and watches the connections; it sends no messages. Peers learn of them by
// kRails. Threads: the endpoint's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "protocol/common/address_vector.h"
#include "protocol/common/completions.h"
#include "protocol/core/core_services.h"
#include "protocol/rdm_endpoint.h"
#include "protocol/rndv/stripes.h"
#include "protocol/transport/domain.h"
#include "protocol/transport/wait_set.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

class Rails final : public StripeReader {
public:
    // The ports of core.options.rails.ports; one that cannot be used is left out, and the user
    // told. `own`: the domain of the endpoint. `sleeps_on` is readable whenever a rail has
    // something. Throws VerbsError. References are kept.
    Rails(CoreServices& core, const Domain& own, WaitSet& sleeps_on);
    ~Rails();
    Rails(const Rails&) = delete;
    Rails& operator=(const Rails&) = delete;

    // Tells the peer this side's rails, once. It can be sent to.
    void tell(Peer& peer);
    void on_message(Peer& peer, const RailsBody& body);

    std::unique_ptr<RailMemory> register_memory(const Peer& peer, std::span<const iovec> memory,
                                                std::size_t bytes) override;
    std::size_t read(const Peer& peer, const StripedMemory& memory, std::size_t bytes,
                     StripeOwner& owner, Stripes& stripes) override;

    // Stripes are under way, or connections.
    bool is_busy() const noexcept { return under_way_ != 0 || connecting_ != 0 || must_look_; }
    void progress();
    // As RdmEndpoint::arm().
    bool arm();

private:
    struct Rail;
    // From one of this side's rails to one of the peer's.
    struct Route {
        std::uint32_t rail = 0, theirs = 0;
        std::uint64_t address = 0;  // in the rail's address vector
        std::uint32_t speed = 0;    // of the slower end, in Mb/s
        enum : std::uint8_t { kConnecting, kOpen, kLost } state = kConnecting;
    };
    struct PeerRails {
        bool is_told = false;     // of this side's
        std::uint32_t speed = 0;  // of the connection of the peer
        std::vector<Route> routes;
    };
    void add_routes(PeerRails& its, const RailsBody& body);
    std::size_t look_at(PeerRails& its);
    bool post(const Route& route, const StripedMemory& memory, Stripe& stripe);
    void take_ended(Rail& rail);
    void lose(Route& route, int error) const;
    PeerRails& of(const Peer& peer);

    CoreServices& core_;
    const std::uint32_t speed_;  // of the endpoint's own port
    std::vector<std::unique_ptr<Rail>> rails_;
    std::vector<PeerRails> peers_;  // by their numbers
    std::size_t under_way_ = 0;     // stripes
    std::size_t connecting_ = 0;    // routes
    bool must_look_ = false;        // a rail had something when the endpoint wanted to sleep
};

}  // namespace heddle::protocol
