// SPDX-License-Identifier: BSD-2-Clause
// The side that is asked: which endpoints there are, and the target QPs that were made for peers.
// A request that comes again gets the answer that it got; what a peer may make here is bounded.
//
// A target that is done with retires (IBTA 10.3.1, for QPs with an SRQ): it goes to the error
// state, in which it gives back the receive of a message that never ended; the device says that it
// takes no more (IBV_EVENT_QP_LAST_WQE_REACHED); the threads that poll empty the completion queues;
// and only then is it destroyed. Until then no other target has its number, by which completions
// name it.
//
// asker(), has_left(), removals(): any thread, any time. The rest: one thread at a time.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "protocol/wireup/connector.h"
#include "protocol/wireup/connector_wire.h"
#include "verbs/connection.h"

namespace heddle::protocol {

class ConnectorTargets {
public:
    using Clock = std::chrono::steady_clock;

    // `self`: this side, process and flags. `own`: what each of its connections has.
    ConnectorTargets(const EndpointAddress& self, const verbs::ConnectionAttributes& own,
                     const Connector::Options& options);
    ~ConnectorTargets();
    ConnectorTargets(const ConnectorTargets&) = delete;
    ConnectorTargets& operator=(const ConnectorTargets&) = delete;

    void add(const LocalEndpoint& endpoint);
    // Calls tell(bye, to) for each target that goes and whose asker has not said BYE.
    using Tell = std::function<void(const Datagram& bye, const EndpointAddress& to)>;
    void remove(const EndpointAddress& endpoint, const Tell& tell) noexcept;
    // The reply to a request that parse() let pass.
    Datagram answer(const Datagram& request, Clock::time_point now) noexcept;
    void bye(const Datagram& bye, Clock::time_point now) noexcept;
    void drop(const ProcessName& peer, std::uint32_t peer_qpn, Clock::time_point now) noexcept;
    void lose(const EndpointAddress& peer, const EndpointAddress& endpoint,
              Clock::time_point now) noexcept;
    void refuse(const EndpointAddress& peer, const EndpointAddress& endpoint) noexcept;
    bool is_quiet(const ProcessName& peer, std::uint32_t peer_qpn) const noexcept;

    // IBV_EVENT_QP_LAST_WQE_REACHED of a QP, be it a target or not.
    void reached_last(std::uint32_t number) noexcept;
    // Destroys those that have retired and been drained. To be called after reached_last(), when a
    // Drain is done, and at next().
    void advance(Clock::time_point now) noexcept;
    std::optional<Clock::time_point> next() const noexcept;

    std::optional<EndpointAddress> asker(std::uint32_t target_qpn) const;
    bool has_left(const EndpointAddress& peer, const EndpointAddress& endpoint) const;
    const std::atomic<std::uint64_t>& removals() const noexcept { return removals_; }
    std::size_t size() const noexcept { return targets_.size() + retired_.size(); }
    const std::vector<LocalEndpoint>& endpoints() const noexcept { return endpoints_; }

private:
    struct Key {
        std::uint64_t nonce = 0, id = 0;
        bool operator==(const Key&) const = default;
    };
    struct KeyHash {
        std::size_t operator()(const Key& key) const noexcept {
            return static_cast<std::size_t>(key.nonce * 31 ^ key.id);
        }
    };
    struct Target {
        ibv_qp* qp = nullptr;   // by DC there is none of its own
        std::uint32_t qpn = 0;  // what the peer sends to
        Datagram request;
        // What the reply says of `qp`: the rest of it is the same for all.
        std::uint32_t psn = 0;  // by DC: the ticket
        std::uint8_t mtu = 0, reads = 0;
        bool reached_last = false;           // it takes no more receives
        std::vector<std::uint32_t> lost_by;  // channels here for which its peer is lost
        // By which its messages are known.
        std::uint32_t number() const noexcept { return qp != nullptr ? qpn : psn; }
    };
    using Targets = std::unordered_map<Key, Target, KeyHash>;
    // In the error state. `waits` is empty until the last receive was reached.
    struct Retired {
        Target target;
        Clock::time_point deadline;  // for the device's word that it was
        bool is_draining = false;
        struct Wait {
            Drain* drain;
            std::uint64_t ticket;
        };
        std::vector<Wait> waits;
    };

    void say_bye(const Target& target, const Tell& tell) noexcept;
    Datagram refusal(const Datagram& request, int error) const noexcept;
    Datagram reply(const Target& target) const noexcept;
    void make_ticket(const LocalEndpoint& endpoint, const Datagram& request, Target& target);
    // 0 or an errno.
    int make(const LocalEndpoint& endpoint, const Datagram& request, Target& target) noexcept;
    Targets::iterator destroy(Targets::iterator target) noexcept;
    Targets::iterator retire(Targets::iterator target, Clock::time_point now) noexcept;
    Targets::iterator forget(Targets::iterator target) noexcept;
    void destroy(const Target& target) noexcept;
    void ask(Retired& retired);
    template <class Wanted>
    void destroy_retired(const Wanted& wanted) noexcept;
    bool keeps_targets(const EndpointAddress& endpoint) const noexcept;
    // Its peer has said so, or is lost. Returns the one after it.
    Targets::iterator leave(Targets::iterator target, Clock::time_point now) noexcept;
    bool is_lost_by_all(const Target& target) const noexcept;
    // Has that peer as many targets as it may? Those of a process that had its UD QP before go.
    bool is_at_limit(const EndpointAddress& from, Clock::time_point now) noexcept;
    void note_gone(std::uint32_t number) noexcept;

    const EndpointAddress self_;
    const verbs::ConnectionAttributes& own_;  // the owner changes it when the port changes
    const std::size_t most_, most_of_peer_, most_gone_;
    const std::uint64_t host_;
    const Clock::duration last_receive_;
    std::random_device random_;
    std::vector<LocalEndpoint> endpoints_;
    Targets targets_;
    std::vector<Retired> retired_;
    // By what the device tells of an asker (source_of()): how many there are.
    std::unordered_map<ProcessName, std::size_t, ProcessNameHash> by_source_;
    mutable std::shared_mutex askers_mutex_;
    // By QP number. Targets that are gone are kept until there is another of that number, or
    // most_gone_ have gone since.
    struct Asker {
        EndpointAddress from, to;
        bool left = false;          // it said BYE
        bool dropped = false;       // its target is gone, and says nothing of the asker
        std::uint64_t gone_as = 0;  // the how-manieth target to go; 0: it is there
    };
    std::unordered_map<std::uint32_t, Asker> askers_;
    struct Gone {
        std::uint32_t number;
        std::uint64_t gone_as;
    };
    std::deque<Gone> gone_;
    std::uint64_t last_gone_ = 0;
    std::atomic<std::uint64_t> removals_{0};  // how often an asker has become another, or unknown
};

}  // namespace heddle::protocol
