// SPDX-License-Identifier: BSD-2-Clause
// The side that asks: requests on their way, when each is due to be sent again, and what its QP
// becomes when it is answered. One thread at a time; nothing here sends.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <unordered_map>
#include <vector>

#include "protocol/wireup/connector.h"
#include "protocol/wireup/connector_wire.h"
#include "verbs/connection.h"

namespace heddle::protocol {

class ConnectorRequests {
public:
    using Clock = std::chrono::steady_clock;
    // A request that has come to its end. Its owner is called when no lock is held. The request
    // itself may be gone by then.
    struct Ended {
        const ConnectionRequest* request;
        void (*changed)(void*);
        void* argument;
        int error;  // 0 or an errno
        EndpointAddress to;
        Clock::duration waited;
        unsigned times_sent;
    };
    // What is sent where.
    struct Outgoing {
        Datagram datagram;
        EndpointAddress to;
        bool again = false;
    };
    // `self`: this side, process and flags. `own`: what each of its connections has.
    ConnectorRequests(const EndpointAddress& self, const verbs::ConnectionAttributes& own,
                      const Connector::Options& options);

    void start(ConnectionRequest& request, Clock::time_point now);
    // The BYE for one that was started and is over; nothing if there is none of that kind.
    std::optional<Outgoing> stop(const ConnectionRequest& request);
    // The same of one whose QP has failed: its BYE is due at once, and some times again, as nothing
    // answers a BYE.
    void abandon(const ConnectionRequest& request, Clock::time_point now);
    // A reply nobody waits for is answered by a BYE: its target would be there for ever.
    std::optional<Outgoing> answered(const Datagram& reply, std::vector<Ended>& ended);
    // What is due. Those that had no answer for too long have failed.
    std::vector<Outgoing> due(Clock::time_point now, std::vector<Ended>& ended);
    std::optional<Clock::time_point> next() const;
    // All that wait fail; the BYEs of all.
    std::vector<Outgoing> stop_all(std::vector<Ended>& ended);

private:
    struct Asked {
        ConnectionRequest* request = nullptr;  // never looked into once it is connected
        Datagram datagram;
        bool connected = false;
        unsigned times_sent = 0;
        bool abandoned = false;  // by its owner: `request` is nullptr
        Clock::time_point started, give_up;
        std::chrono::milliseconds pause{};
        std::multimap<Clock::time_point, std::uint64_t>::iterator timer;
    };
    using Table = std::unordered_map<std::uint64_t, Asked>;
    Outgoing bye(const Asked& asked) const;
    int take_up(const Asked& asked, const Datagram& reply) const noexcept;
    static void end(const Asked& asked, int error, std::vector<Ended>& ended);

    const EndpointAddress self_;
    const verbs::ConnectionAttributes& own_;  // the owner changes it when the port changes
    const std::chrono::milliseconds first_pause_, patience_;
    std::random_device random_;  // what a name does not tell: a BYE has to have the number
    Table asked_;
    std::unordered_map<const ConnectionRequest*, std::uint64_t> ids_;
    std::multimap<Clock::time_point, std::uint64_t> timers_;
};

}  // namespace heddle::protocol
