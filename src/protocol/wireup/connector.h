// SPDX-License-Identifier: BSD-2-Clause
// Connections on demand, over a UD QP of the process. A thread that sleeps until there is something
// to do answers peers and repeats what got lost, so a process that computes can be connected to.
//
// A connection goes one way: from a channel's QP here (XRC: an initiator QP, which reaches every
// endpoint in the remote context; else an RC QP to one endpoint) to one that the peer's connector
// makes when it is asked (an XRC target QP, or an RC QP that receives from the endpoint's SRQ).
// Both sides may so start at once, and no attempt is broken off. Two datagrams: REQUEST, REPLY;
// a request is repeated until it is answered, and answered again when it is repeated. Few requests
// of a process are on their way at once; connector_requests.h says which.
//
// By DC no QP is made for a peer. The reply has the number of the endpoint's target, and a ticket,
// by which the peer's messages are known: they begin with it, as all come by the same target.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "protocol/common/endpoint_address.h"
#include "protocol/wireup/targets.h"
#include "verbs/local_port.h"

namespace heddle::protocol {

// One connection, on the side that asks. The QP is the channel's, in the state INIT, when
// connect() is called; only the connector touches it until `state` is no longer kConnecting. By DC
// it is one of the channel's initiators, which the connector does not touch.
struct ConnectionRequest {
    enum State : int { kConnecting, kConnected, kFailed };
    ibv_qp* qp = nullptr;
    bool is_spare = false;  // nobody need read that it has failed: there is another
    EndpointAddress from;   // the initiator: endpoint, context and process
    EndpointAddress to;
    std::atomic<State> state{kConnecting};    // by the connector's thread, release
    int error = 0;                            // errno, before kFailed is stored
    std::uint32_t packet_bytes = 0;           // the path MTU, before kConnected is stored
    std::uint64_t host = 0;                   // the peer's Options::host, the same
    std::uint32_t dc_target = 0, ticket = 0;  // by DC, the same
    // After kConnected: the peer has said that its end is no more. By the connector's thread; what
    // the peer did before that was done.
    std::atomic<bool> peer_has_left{false};
    // Called by the connector's thread after `state` has changed, so that sleepers look again. It
    // may call the connector. The request may be gone by then: `argument` is valid until
    // disconnect() has returned, or else as long as the connector.
    void (*changed)(void* argument) = nullptr;
    void* argument = nullptr;
};

// How far the thread that polls completion queues has emptied them. A target QP that is done with
// keeps its number until the messages that it delivered have been read, as their completions name
// nothing but that number.
struct Drain {
    std::atomic<std::uint64_t> asked{0};  // by the connector's thread
    // By the thread that polls: the value of `asked` that it read before it found the queues empty.
    // Then it calls Connector::drained().
    std::atomic<std::uint64_t> done{0};
    // An errno: the device said that the completion queue, or the SRQ, has failed for good, or that
    // it has failed itself. By the connector's thread, once.
    std::atomic<int> device_error{0};
    // Called after `asked` or `device_error` has changed; any thread.
    void (*ask)(void* argument) = nullptr;
    void* argument = nullptr;
};

// What the connector may make target QPs in: an endpoint of this process. Plain values; the
// objects outlive the registration.
struct LocalEndpoint {
    EndpointAddress name;
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_xrcd* xrcd = nullptr;  // nullptr: RC
    ibv_srq* srq = nullptr;
    ibv_cq* cq = nullptr;         // RC: of both directions of the QP it makes
    std::uint32_t dc_target = 0;  // DC: the number of the QP that all peers send to
    // RC: its targets stay until remove(), because libmlx5 takes what a QP that is destroyed has
    // received out of the CQ, which a thread may be polling without libmlx5's lock just then.
    bool keep_targets = false;
    Drain* drain = nullptr;  // nullptr: nobody reads what target QPs deliver
};

class Connector final : public TargetQueuePairs {
public:
    struct Options {
        // The least pause before the first repeat, and then twice as long each time, up to 1 s. A
        // pause is up to twice its least.
        unsigned first_repeat_ms = 50;
        unsigned give_up_ms = 30'000;  // then the connection fails with ETIMEDOUT
        unsigned receives = 512;       // datagrams that may wait for the thread
        unsigned most_asked = 64;      // requests that are on their way; more wait for their turn
        // Target QPs: of all peers together, and of one peer process. A peer that asks for one more
        // is refused with ENOBUFS.
        std::size_t most_targets = 65'536, most_targets_of_peer = 16'384;
        // The askers of so many target QPs that are gone stay known, for has_left().
        std::size_t most_gone = 16'384;
        // How long the device may take to say that a target QP in error takes no more receives.
        unsigned last_receive_ms = 2000;
        // Takes one line for each peer process that cannot be connected to. nullptr: stderr.
        void (*complain)(const char* line) = nullptr;
        // Takes a line for the log. nullptr: there is none.
        void (*inform)(const char* line) = nullptr;
        // The QPs that it connects have these (ibv_modify_qp(3): 4.096 us * 2^ack_timeout a try).
        unsigned ack_timeout = 18, retries = 6, rnr_timer = 10;
        // Which processes could share memory with this one: 48 bits, told to all peers; 0: none.
        std::uint64_t host = 0;
        // For tests: each datagram is dropped, or sent twice, with this probability.
        double drop = 0, repeat = 0;
        // Decides that. With the process's nonce it also decides pauses and the order of requests.
        std::uint64_t seed = 1;
    };
    // Starts the thread. The context is used for the UD QP, which is at that port. Throws
    // VerbsError.
    Connector(ibv_context* context, ibv_pd* pd, const verbs::LocalPort& port,
              const Options& options);
    ~Connector();  // sends BYE to those that it is connected to, ends the thread, destroys targets
    Connector(const Connector&) = delete;
    Connector& operator=(const Connector&) = delete;

    // All that follows: any thread.
    const ProcessName& process() const noexcept;
    // The process and its port, of no endpoint.
    const EndpointAddress& self() const noexcept;
    void add(const LocalEndpoint& endpoint);
    // Afterwards no target of it exists (RC) and nobody is connected to it any more; an XRC
    // target stays while another endpoint of its context is there.
    void remove(const EndpointAddress& endpoint);

    // The request stays alive until it has failed, or disconnect() or abandon() has returned.
    void connect(ConnectionRequest& request);
    // The QP is about to be destroyed, connected or not: the peer can do away with its target (best
    // effort). Waits for a `changed` that is being called (not within it), so it is called with no
    // lock held that it takes.
    void disconnect(ConnectionRequest& request);
    // The QP of a connection that was made has failed. Says so to the peer, some times, as
    // datagrams get lost. The request is not looked into afterwards.
    void abandon(ConnectionRequest& request);

    void drop(const EndpointAddress& peer, std::uint32_t peer_qpn) override;
    bool is_quiet(const EndpointAddress& peer, std::uint32_t peer_qpn) const override;
    // Nobody answers to the channel of `endpoint` where `peer` was. What that peer had begun to
    // send never ends: its targets go, once all channels that they reach have lost it.
    void lose(const EndpointAddress& peer, const EndpointAddress& endpoint);
    // A Drain was done as it was asked.
    void drained();
    void refuse(const EndpointAddress& peer, const EndpointAddress& endpoint) override;
    std::optional<EndpointAddress> asker(std::uint32_t target_qpn) const override;
    bool has_left(const EndpointAddress& peer, const EndpointAddress& endpoint) const override;

    struct Counts {
        std::uint64_t requests_sent = 0, requests_received = 0, replies_sent = 0, repeated = 0,
                      targets = 0, refused = 0, malformed = 0;
        std::uint64_t unsent = 0;  // datagrams that found no slot or no path
    };
    Counts counts() const;

private:
    class Service;
    explicit Connector(std::unique_ptr<Service> service) noexcept;
    std::unique_ptr<Service> service_;
};

}  // namespace heddle::protocol
