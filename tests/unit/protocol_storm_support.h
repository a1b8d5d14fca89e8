// SPDX-License-Identifier: BSD-2-Clause
// Many processes that connect to each other, without devices, threads or real time: the connector's
// tables of each process, and a network that counts. Virtual verbs are in protocol_fake_verbs.cc.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <set>
#include <unordered_map>
#include <vector>

#include "protocol/wireup/connector_requests.h"
#include "protocol/wireup/connector_targets.h"

namespace heddle::protocol::test {

// A device as far as the connector's tables use one.
class FakeDevice {
public:
    FakeDevice();
    ibv_context* context() noexcept { return &verbs_.context; }
    ibv_pd* pd() noexcept { return &pd_; }

private:
    verbs_context verbs_{};
    ibv_pd pd_{};
};

// What the processes and their network are like. The times are those of adapters: a datagram, the
// commands that make a target QP, any other datagram.
struct StormCosts {
    using Duration = std::chrono::microseconds;
    Duration wire{3}, new_target{300}, datagram{3};
    std::size_t receive_queue = 512;  // Connector::Options::receives
    // A port takes so many datagrams in a millisecond; what exceeds that is lost. 0: no limit.
    unsigned most_in_ms = 0;
};

class Storm {
public:
    using Clock = ConnectorRequests::Clock;

    Storm(std::size_t processes, const StormCosts& costs, const Connector::Options& options = {});
    ~Storm();

    // That process never receives anything.
    void kill(std::size_t process);
    void connect(std::size_t from, std::size_t to);
    // Until nothing more happens, or so much time has passed.
    void run(std::chrono::milliseconds most);

    struct Totals {
        std::size_t requests = 0, repeats = 0, replies = 0, byes = 0, lost = 0;
        std::size_t connected = 0, failed = 0;
        std::size_t datagrams() const noexcept { return requests + repeats + replies + byes; }
    };
    const Totals& totals() const noexcept { return totals_; }
    // The largest number of requests of one process that were sent and had no reply.
    std::size_t most_outstanding() const noexcept { return most_outstanding_; }
    // The largest number of datagrams that one process sent at one instant.
    std::size_t most_at_once() const noexcept { return most_at_once_; }
    // From the first connect() to the last end of a request.
    std::chrono::milliseconds took() const noexcept {
        return std::chrono::duration_cast<std::chrono::milliseconds>(last_end_ -
                                                                     Clock::time_point{});
    }
    // When each request of the process was sent, by its number on the wire.
    using Instants = std::unordered_map<std::uint64_t, std::vector<Clock::time_point>>;
    const Instants& instants(std::size_t process) const { return processes_[process]->instants; }

private:
    struct Process {
        Process(const EndpointAddress& its_name, const verbs::ConnectionAttributes& own,
                const Connector::Options& options)
            : name(its_name), requests(its_name, own, options), targets(its_name, own, options) {}
        EndpointAddress name;
        ConnectorRequests requests;
        ConnectorTargets targets;
        std::deque<Datagram> received;
        std::set<std::uint64_t> outstanding;
        Instants instants;
        Clock::time_point busy_until{}, wakes_at = Clock::time_point::max(), tick{};
        unsigned in_tick = 0;
        bool is_dead = false;
    };
    struct Event {
        Clock::time_point at;
        std::uint64_t order;
        std::size_t process;
        std::shared_ptr<const Datagram> arrives;  // nullptr: the process works
        bool operator>(const Event& other) const noexcept {
            return at != other.at ? at > other.at : order > other.order;
        }
    };
    void wake(std::size_t process, Clock::time_point at);
    void arrive(Process& process, const Datagram& datagram);
    void work(std::size_t number);
    Clock::duration take(Process& process, const Datagram& datagram);
    void send(Process& from, const Datagram& datagram, const EndpointAddress& to, bool again);
    void count_ends(Process& process);

    FakeDevice device_;
    const StormCosts costs_;
    verbs::ConnectionAttributes own_;
    std::vector<std::unique_ptr<Process>> processes_;
    std::deque<ConnectionRequest> asked_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::uint64_t order_ = 0;
    Clock::time_point now_{}, last_end_{};
    std::vector<ConnectorRequests::Ended> ended_;
    Totals totals_;
    std::size_t most_outstanding_ = 0, most_at_once_ = 0;
};

}  // namespace heddle::protocol::test
