// SPDX-License-Identifier: BSD-2-Clause
// The connector's thread and what it shares with those who call: one mutex over the UD QP and both
// sides' tables. Calls take it for a moment; the thread holds it while it works, never asleep and
// never while it tells an owner that a request has ended.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "protocol/wireup/connector.h"
#include "protocol/wireup/connector_port.h"
#include "protocol/wireup/connector_requests.h"
#include "protocol/wireup/connector_targets.h"

namespace heddle::protocol {

// An eventfd, to wake a thread that sleeps in poll().
class WakeUp {
public:
    WakeUp();  // throws VerbsError
    ~WakeUp();
    WakeUp(const WakeUp&) = delete;
    WakeUp& operator=(const WakeUp&) = delete;
    int fd() const noexcept { return fd_; }
    void signal() const noexcept;
    void clear() const noexcept;

private:
    int fd_;
};

class Connector::Service {
public:
    Service(ibv_context* context, ibv_pd* pd, const verbs::LocalPort& port, const Options& options);
    ~Service();
    Service(const Service&) = delete;
    Service& operator=(const Service&) = delete;

    const EndpointAddress& self() const noexcept { return self_; }
    void add(const LocalEndpoint& endpoint);
    void remove(const EndpointAddress& endpoint);
    void connect(ConnectionRequest& request);
    void stop(const ConnectionRequest& request);
    void abandon(const ConnectionRequest& request);
    void drop(const EndpointAddress& peer, std::uint32_t peer_qpn);
    void refuse(const EndpointAddress& peer, const EndpointAddress& endpoint);
    bool is_quiet(const EndpointAddress& peer, std::uint32_t peer_qpn) const;
    void lose(const EndpointAddress& peer, const EndpointAddress& endpoint);
    void drained() const noexcept { wake_up_.signal(); }
    bool has_left(const EndpointAddress& peer, const EndpointAddress& endpoint) const {
        return targets_.has_left(peer, endpoint);
    }
    std::optional<EndpointAddress> asker(std::uint32_t target_qpn) const {
        return targets_.asker(target_qpn);
    }
    const std::atomic<std::uint64_t>& removals() const noexcept { return targets_.removals(); }
    Counts counts() const;

private:
    void run() noexcept;
    void sleep() noexcept;
    // The lock, for a call. The thread lets go of it between two batches of datagrams while
    // somebody waits for it, so that nobody who floods the port keeps callers out.
    std::unique_lock<std::mutex> enter() const {
        entering_.fetch_add(1, std::memory_order_relaxed);
        std::unique_lock lock(mutex_);
        entering_.fetch_sub(1, std::memory_order_relaxed);
        return lock;
    }
    void let_in() const noexcept;
    bool is_watched(ibv_context* context) const noexcept;
    void read_events() noexcept;
    void port_changed(ibv_context* context, ibv_event_type type) noexcept;
    template <class Concerns>
    void device_failed(ibv_event_type type, int error, const Concerns& concerns) noexcept;
    void arrived(const ConnectorPort::Arrival& arrival);
    void send(const Datagram& datagram, const EndpointAddress& to) noexcept;
    void send(const ConnectorRequests::Outgoing& out) noexcept { send(out.datagram, out.to); }
    void tell(std::unique_lock<std::mutex>& lock);
    void complain(const ConnectorRequests::Ended& ended) noexcept;

    const Options options_;
    const std::uint64_t nonce_;
    WakeUp wake_up_;
    ConnectorPort port_;
    const std::string device_;
    verbs::ConnectionAttributes own_;  // what each connection has
    const EndpointAddress self_;
    mutable std::mutex mutex_;
    mutable std::atomic<unsigned> entering_{0};  // callers that wait for the mutex
    ConnectorTargets targets_;
    ConnectorRequests requests_;
    std::vector<ConnectorRequests::Ended> ended_;
    const int async_fds_;      // an epoll of the contexts of all endpoints
    bool is_down_ = false;     // by the thread: its port
    bool has_events_ = false;  // by the thread: it is readable
    std::unordered_set<ProcessName, ProcessNameHash> complained_of_;  // by the thread
    std::condition_variable callback_ended_;
    Counts counts_;
    std::mt19937_64 luck_;
    bool leaving_ = false;
    std::thread thread_;
};

}  // namespace heddle::protocol
