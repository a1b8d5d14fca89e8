// SPDX-License-Identifier: BSD-2-Clause
// The side that asks: requests on their way, when each is due to be sent again, and what its QP
// becomes when it is answered. One thread at a time; nothing here sends.
//
// A program that talks to all peers at once must not make all of them lose datagrams. So a request
// is sent only while it has one of Options::most_asked turns. The others wait, and the next one is
// drawn by lot, so that the processes of a job do not all ask the same peers first. A request
// whose peer does not reply gives its turn up if others wait. It gets another one when all others
// have had theirs, so that peers which are gone do not keep this process from the rest.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
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
        bool is_spare;
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
    std::optional<Outgoing> answered(const Datagram& reply, Clock::time_point now,
                                     std::vector<Ended>& ended);
    // A BYE of the side that was asked: the target of a connection has gone. False: it is none of
    // these.
    bool bye(const Datagram& bye) noexcept;
    // What is due. Those that had no answer for too long have failed.
    std::vector<Outgoing> due(Clock::time_point now, std::vector<Ended>& ended);
    std::optional<Clock::time_point> next() const;
    // How many requests have a turn.
    std::size_t turns() const noexcept { return turns_; }
    // All that wait fail; the BYEs of all.
    std::vector<Outgoing> stop_all(Clock::time_point now, std::vector<Ended>& ended);

private:
    using Timers = std::multimap<Clock::time_point, std::uint64_t>;
    struct Asked {
        ConnectionRequest* request = nullptr;  // alive until its owner stops or abandons it
        Datagram datagram;
        // kAbandoned: by its owner, and `request` is nullptr.
        enum State : std::uint8_t { kWaits, kHasTurn, kConnected, kAbandoned } state = kWaits;
        unsigned times_sent = 0;
        unsigned tries = 0;     // so often may it be sent before it gives its turn up
        std::size_t place = 0;  // in its queue(), for kWaits
        Clock::time_point started, give_up;
        std::chrono::milliseconds pause{};
        Timers::iterator timer;  // or end()
    };
    using Table = std::unordered_map<std::uint64_t, Asked>;
    static bool has_target(const Asked& asked) noexcept;
    Outgoing farewell(const Asked& asked) const;
    void set_timer(Asked& asked, Clock::time_point at);
    void stop_timer(Asked& asked) noexcept;
    std::vector<std::uint64_t>& queue(const Asked& asked) noexcept {
        return asked.times_sent == 0 ? waiting_ : waiting_again_;
    }
    bool somebody_waits() const noexcept { return !waiting_.empty() || !waiting_again_.empty(); }
    void wait_for_turn(Asked& asked);
    void leave_turns(Asked& asked) noexcept;
    void give_turns();
    Outgoing send(Asked& asked, Clock::time_point now);
    int take_up(const Asked& asked, const Datagram& reply) const noexcept;
    static void end(const Asked& asked, int error, Clock::time_point now,
                    std::vector<Ended>& ended);

    const EndpointAddress self_;
    const verbs::ConnectionAttributes& own_;  // the owner changes it when the port changes
    const std::chrono::milliseconds first_pause_, patience_;
    const std::size_t most_turns_;
    std::random_device random_;  // what a name does not tell: a BYE has to have the number
    std::mt19937_64 lots_;       // which turn is next, and how long a pause is
    Table asked_;
    std::unordered_map<const ConnectionRequest*, std::uint64_t> ids_;
    Timers timers_;
    // Those without a turn: that have had none yet, and others. The order means nothing.
    std::vector<std::uint64_t> waiting_, waiting_again_;
    std::size_t turns_ = 0;
};

}  // namespace heddle::protocol
