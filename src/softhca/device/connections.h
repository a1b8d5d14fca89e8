// SPDX-License-Identifier: BSD-2-Clause
// What the fabric's segment has of rdma_cm: the ids of all processes, their multicast groups, and
// the events that wait for them. It corresponds to the kernel's ucma.c, cma.c and cm.c;
// src/softhca/rdmacm has the rules.
//
// All fields are read and written under Segment.connection_lock. Ids and events become live and
// free under it, too, so nobody has to wait for an epoch's end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softhca/device/object.h"

namespace softhca::device {

// How far a connection is. An id that was made for a request begins at kRequested.
enum class CmState : std::uint32_t {
    kIdle,
    kBound,     // it has a source address
    kResolved,  // ... and a destination
    kRouted,    // ... and a path
    kListening,
    kRequested,  // a request is sent or received
    kReplied,    // a reply is sent or received: the active side has to confirm
    kConnected,
    kDisconnected,
};

struct CmAddress {
    std::uint16_t family;  // AF_INET, AF_INET6, AF_IB; 0 without an address
    std::uint16_t port;    // network byte order; of AF_IB the last 16 bits of the service ID
    std::uint16_t pkey;    // AF_IB
    std::uint32_t flow;    // AF_IB; as the program gave it
    std::uint64_t scope;
    std::uint8_t ip[16];                  // of AF_INET the first four; of AF_IB the GID
    std::uint64_t service, service_mask;  // AF_IB: the service ID, and which bits of it count
};

// What a request or reply says of its sender's QP (IBTA 12.7.1, 12.7.4).
struct CmParameters {
    std::uint32_t qp_number, qkey, psn;
    std::uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry, srq;
    std::uint32_t ece_vendor, ece_options;
};

// A reference to an id, which may be gone.
struct CmReference {
    std::uint32_t index, generation;  // index kNone: none
};

struct alignas(64) CmId {
    ObjectHead head;
    CmState state;
    std::uint32_t is_passive;  // it was made for a request
    std::uint64_t uid;         // the program's; 0 until it knows of the id
    std::uint32_t channel, channel_generation;
    std::uint32_t port_space, qp_type;  // enum rdma_ucm_port_space; enum ibv_qp_type
    CmAddress source, destination;
    std::uint32_t has_device;                     // an address that belongs to a device
    std::uint32_t source_port, destination_port;  // the ports of the addresses, by index (port.h)
    std::uint32_t reported;                       // events that GET_EVENT gave out
    std::uint32_t backlog;     // of a listener: requests that may still be queued
    CmReference peer;          // the other side
    CmParameters own, remote;  // own.psn: where this side wants the other to begin
    std::uint32_t reuse_address, one_family, traffic_class, ack_timeout;
    std::uint32_t has_communicated;    // its peer was there, so its absence means something
    std::uint64_t time_wait_until_ns;  // 0: it is not in TIMEWAIT
};

// A multicast group that an id has joined. Its owner is the process of the id.
struct alignas(64) CmGroup {
    ObjectHead head;
    CmReference id;
    std::uint64_t uid;       // the program's
    std::uint32_t reported;  // events of the group that GET_EVENT gave out
};

inline constexpr std::size_t kCmEventBytes = 336;  // struct rdma_ucm_event_resp

// An event in the queue of its id's channel. Its owner is the process of that channel.
struct alignas(64) CmEvent {
    ObjectHead head;
    std::uint32_t next;  // index of the next, or kNone
    CmReference id;      // which counts it: of a request, the listener
    CmReference made;    // of a request: the id that was made for it
    CmReference group;   // of a group: it counts the event, too
    alignas(8) std::byte response[kCmEventBytes];
};

}  // namespace softhca::device
