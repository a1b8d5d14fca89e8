// SPDX-License-Identifier: BSD-2-Clause
// What a process may choose. Each is declared once, with its name, default and help, in
// provider/options.cc; these are the values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/category.h"
#include "protocol/common/endpoint_address.h"

namespace heddle::protocol {

enum class PostPath : std::uint8_t { kAuto, kVerbs, kDirect };
// What queue pairs endpoints send by. kAuto: XRC if the device has it, otherwise RC.
enum class Transport : std::uint8_t { kAuto, kXrc, kRc, kDc };
// The send queues of a thread by DC, as many as UCX has (UCX_DC_MLX5_NUM_DCI).
inline constexpr std::uint32_t kDcInitiators = 8;
// How messages travel that are not sent at once: kTuple is for all there are, by tuple queues
// wherever these are possible; kAuto for those tuples that gain by them. What has no queue: by
// kGet.
enum class Rendezvous : std::uint8_t { kGet, kPut, kTuple, kAuto };

inline constexpr std::size_t kMostInline = 1024;  // inline_bytes

// The device's queues for tuples of sender and tag.
struct TupleOptions {
    std::size_t copy_below = 8192;   // smaller messages that have no receive yet are copied
    std::uint32_t open_after = 128;  // messages of a tuple until kAuto asks for a queue
    std::uint32_t queues = 256;      // of an endpoint
    std::uint32_t process_queues = 1024;
    std::uint32_t queue_pairs = 2;  // to a process, on which messages wait for receives
    bool no_wildcards = false;      // the program has none, nor probes
};

// Small messages and RMA from memory that stays registered.
struct ReuseOptions {
    // Uses of a buffer until small messages are sent from where it stands; 0: never. nullopt: so
    // many percent (speculation) of the break-even that was measured (reuse_costs.h).
    std::optional<std::uint32_t> after;
    unsigned speculation = 25;
};

// Whether this processor sees the bytes that a device writes from the same packet in the order of
// their addresses, so that it may look at the last ones alone. x86 does; of most others libibverbs
// says that they do not (rdma-core libibverbs/verbs.c, ibv_query_qp_data_in_order()).
#if defined(__x86_64__)
inline constexpr bool kSeesWritesInOrder = true;
#else
inline constexpr bool kSeesWritesInOrder = false;
#endif

// Peers of an endpoint whose eager messages are written to it. None if !kSeesWritesInOrder.
struct RingOptions {
    std::uint32_t peers = 0;
    std::size_t message_bytes = 1024;  // messages above this are sent to all's receive buffers
};

// Messages to peers on the same host go through shared memory.
struct ShmOptions {
    bool on = false;
    std::size_t bytes = 128 << 10;  // for messages of each peer that sends; a power of two
};

// How memory is registered.
struct RegistrationOptions {
    // The adapter may let writes to memory pass each other where a completion reports their end.
    bool relaxed_ordering = true;
    bool on_demand_paging = false;  // the program's memory is not pinned
};

// Ports besides the endpoint's own, over which long messages are read.
struct RailOptions {
    std::vector<std::string> ports;  // names
    std::size_t bytes = 128 << 10;   // of a message, at least
    // Not empty: the device is itself a rail beside that port. Nothing is shared with others at it,
    // since it is used by the threads of that port's endpoints.
    std::string beside;
};

// How long is waited for peers.
struct TimeoutOptions {
    unsigned connect_ms = 30'000;
    // A QP waits 4.096 us * 2^ack for the peer's acknowledgement, and repeats its packets so often.
    unsigned ack = 18, retries = 6;
    // How long a sender that found no receive waits: 0.32 ms (IBTA table 45, code 10). It is the
    // receiver's application that is late then, by a time that nobody knows; with 0.01 ms the
    // sender's adapter would send the message a hundred times a millisecond. UCX waits 1 ms.
    unsigned rnr = 10;
    unsigned keepalive_s = 20;  // a silent peer is probed so often; 0: never
    unsigned close_s = 300;     // for messages that a peer has yet to fetch
};

struct Options {
    std::string device;  // empty: any
    RailOptions rails;
    std::optional<Category> endpoints;  // nullopt: 2xdynamic up to the cores, dynamic beyond
    PostPath post = PostPath::kAuto;
    Transport transport = Transport::kAuto;
    Rendezvous rendezvous = Rendezvous::kGet;
    TupleOptions tuples;
    std::size_t eager_bytes = 8192;  // longer messages take more than one receive buffer
    // Above this, and above eager_bytes, messages go by rendezvous; up to it, in fragments.
    std::size_t rendezvous_above = 12288;
    std::size_t most_copied() const noexcept { return std::max(eager_bytes, rendezvous_above); }
    std::size_t inline_bytes = 128;  // these are copied into the work queue entry
    // So much a program may inject. What is longer than inline_bytes goes through a buffer.
    std::size_t inject_bytes = 1024;
    // Eager payload of a peer that has not been taken; then rendezvous.
    std::size_t unexpected_bytes = 4 << 20;
    // Memory that a peer may make us keep for messages without a receive, whatever it sends.
    std::size_t unexpected_limit = std::size_t{1} << 30;
    std::uint32_t receive_buffers = 256;  // of an endpoint, each of eager_bytes and a header
    // They become more, when a burst has taken half of them, up to this many bytes.
    std::size_t receive_bytes = std::size_t{8} << 20;
    std::uint32_t send_depth = 128;  // work queue entries of a connection
    ReuseOptions reuse;
    RingOptions rings;
    ShmOptions shm;
    std::size_t mr_cache_bytes = std::size_t{1} << 30;  // that stay registered; 0: none
    RegistrationOptions registration;
    TimeoutOptions timeouts;
    // Takes a line that the program's user must read, from any thread. nullptr: it goes to stderr.
    void (*complain)(const char* line) = nullptr;
    // Takes a line for the log. nullptr: there is none.
    void (*inform)(const char* line) = nullptr;
};

}  // namespace heddle::protocol
