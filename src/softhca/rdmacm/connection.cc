// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/rdmacm/connection.h"

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/device/port.h"
#include "softhca/rdmacm/address.h"
#include "softhca/rdmacm/gid_address.h"
#include "softhca/rdmacm/request_data.h"
#include "softhca/rdmacm/route.h"

namespace softhca::rdmacm {
namespace {

// The private data of messages that answer a request (ib_cm.h); request_data.h has a request's.
constexpr std::size_t kReplyData = 196, kRejectData = 148, kDatagramReplyData = 136;

// Reasons of a REJ (IBTA 12.6.7.2), statuses of a SIDR_REP (12.11.2).
constexpr int kInvalidService = 8, kByConsumer = 28, kVendorOption = 35;
constexpr int kNoService = 1, kDatagramRejected = 2;

constexpr std::uint32_t kMostBacklog = 1024;
constexpr std::uint64_t kTimeWait = 1'000'000'000;  // ns

bool is_datagram(const CmId& id) noexcept { return id.qp_type == IBV_QPT_UD; }

rdma_ucm_event_resp event_of(const CmId& id, std::uint32_t number, Event type,
                             int status) noexcept {
    rdma_ucm_event_resp event{};
    event.uid = id.uid;
    event.id = number;
    event.event = static_cast<std::uint32_t>(type);
    event.status = static_cast<std::uint32_t>(status);
    return event;
}

// `room`: the bytes of the message.
template <class Parameters>
void put_data(Parameters& to, std::size_t room, const void* data, std::size_t bytes) noexcept {
    SOFTHCA_ASSERT(bytes <= room && room <= sizeof to.private_data);
    if (bytes != 0) std::memcpy(to.private_data, data, bytes);
    to.private_data_len = static_cast<std::uint8_t>(room);  // zero padded, as a MAD is
}

void put_connection(rdma_ucm_event_resp& event, const device::CmParameters& from) noexcept {
    event.param.conn.qp_num = from.qp_number;
    event.param.conn.srq = from.srq;
    // What one side may start the other has to answer.
    event.param.conn.responder_resources = from.initiator_depth;
    event.param.conn.initiator_depth = from.responder_resources;
    event.param.conn.flow_control = from.flow_control;
    event.param.conn.retry_count = from.retry_count;
    event.param.conn.rnr_retry_count = from.rnr_retry;
    event.ece.vendor_id = from.ece_vendor;
    event.ece.attr_mod = from.ece_options;
}

void take_wanted(device::CmParameters& own, const rdma_ucm_conn_param& wanted,
                 const rdma_ucm_ece& ece) noexcept {
    own.qp_number = wanted.qp_num & 0xff'ffff;
    own.responder_resources = wanted.responder_resources;
    own.initiator_depth = wanted.initiator_depth;
    own.flow_control = wanted.flow_control;
    own.retry_count = wanted.retry_count & 7;
    own.rnr_retry = wanted.rnr_retry_count & 7;
    own.srq = wanted.srq;
    own.ece_vendor = ece.vendor_id;
    own.ece_options = ece.attr_mod;
}

CmId* peer_of(Locked& connections, CmId& id) noexcept { return connections.find(id.peer); }

void part(CmId& id) noexcept {
    id.peer = {kNone, 0};
    id.has_communicated = 0;
}

// No port has an AF_IB destination whose path the program made up itself.
bool has_links(const device::Segment& segment, const CmId& id) noexcept {
    return id.destination_port != kNone && device::port_at(segment, id.source_port).is_up() &&
           device::port_at(segment, id.destination_port).is_up();
}

// A program learns nothing of an id that it does not know yet (ucma_event_handler).
bool push(Locked& connections, CmId& id, const rdma_ucm_event_resp& event) noexcept {
    return id.uid == 0 || connections.push(id, event);
}

void refuse(Locked& connections, CmId& active, int reason, const void* data,
            std::size_t bytes) noexcept {
    const bool datagram = is_datagram(active);
    rdma_ucm_event_resp event = event_of(active, connections.index_of(active),
                                         datagram ? Event::kUnreachable : Event::kRejected, reason);
    if (datagram)
        put_data(event.param.ud, kDatagramReplyData, data, bytes);
    else
        put_data(event.param.conn, kRejectData, data, bytes);
    part(active);
    // It may be used for another try (cma_ib_handler, IB_CM_REJ_RECEIVED).
    active.state = CmState::kDisconnected;
    push(connections, active, event);
}

// Both sides go to TIMEWAIT, and the one that still knows its id learns of both.
void end(Locked& connections, CmId& id) noexcept {
    id.state = CmState::kDisconnected;
    id.time_wait_until_ns = device::now_ns() + kTimeWait;
    part(id);
    tell(connections, id, Event::kDisconnected);
}

// The other side of an id that goes, or that is gone.
void lose_peer(Locked& connections, CmId& id) noexcept {
    switch (id.state) {
        case CmState::kRequested:
            if (!id.is_passive)
                return refuse(connections, id, is_datagram(id) ? kDatagramRejected : kByConsumer,
                              nullptr, 0);
            break;
        case CmState::kReplied:
            return refuse(connections, id, kByConsumer, nullptr, 0);
        case CmState::kConnected:
            if (!is_datagram(id)) return end(connections, id);
            break;
        default:
            break;
    }
    part(id);
}

// The ends of a request, as the receiving side sees them.
struct Ends {
    CmAddress source, destination;
};

// The ends as GIDs (cma_save_ib_info).
Ends gid_ends_of(const device::Segment& segment, const CmId& id) noexcept {
    const ib_user_path_rec path = route_of(segment, id).ib_route[0];
    Ends ends{address_of_gid(path.sgid, path_pkey(id)), address_of_gid(path.dgid, path_pkey(id))};
    ends.destination.port = id.destination.port;
    ends.destination.service = service_of(id, id.destination);
    ends.destination.service_mask = ~std::uint64_t{0};
    return ends;
}

// The id of AF_IB that listens for the service of the request. One that is bound to a GID hears
// what comes to its port, and requests with IP addresses to any port of its device
// (cma_match_net_dev). *is_known: an id listens for that service on the device, whatever its
// address.
CmId* find_gid_listener(Locked& connections, const CmId& id, bool has_ip, bool* is_known) noexcept {
    const auto device_of = [&](std::uint32_t port) {
        return device::port_at(connections.segment(), port).device();
    };
    const std::uint64_t service = service_of(id, id.destination);
    CmId* found = nullptr;
    *is_known = false;
    connections.each([&](CmId& each) {
        if (each.state != CmState::kListening || service_of(each, each.source) != service ||
            (each.has_device && device_of(each.source_port) != device_of(id.destination_port)))
            return;
        *is_known = true;
        if (each.source.family == AF_IB &&
            (has_ip || !each.has_device || each.source_port == id.destination_port))
            found = &each;
    });
    return found;
}

// Whether the request has the addresses of its ends: those of the id, or of AF_IB those of a header
// that its program made, as librdmacm does where ibacm has found the GIDs of IP addresses.
bool find_ip_ends(Locked& connections, const CmId& id, const RequestData& data,
                  Ends* ends) noexcept {
    *ends = {id.source, id.destination};
    if (id.source.family != AF_IB) return true;
    // Linux since 4.3 takes any data that does not begin with a 0 for a header of another version,
    // and refuses it (cma_save_ip_info). rsockets with AF_IB leave such bytes uninitialized, and
    // work here.
    return data.read_header(&ends->source, &ends->destination) &&
           is_of_fabric(connections, ends->destination);
}

// The id that listens for the request, and the request's ends as its family has them. Or nullptr,
// and the reason of the refusal. Ids of IP addresses and those of AF_IB reach each other if the
// request has IP addresses (cma_ib_id_from_event, cma_find_listener).
CmId* find_receiver(Locked& connections, const CmId& id, const RequestData& data, Ends* ends,
                    int* refused) noexcept {
    const std::uint64_t service = service_of(id, id.destination);
    const bool has_ip = find_ip_ends(connections, id, data, ends);
    CmId* found = nullptr;
    bool is_known = true;
    if (has_ip && service >> 32 == 0)
        found = find_listener(connections, static_cast<std::uint32_t>(service >> 16),
                              ends->destination);
    if (found == nullptr) {
        found = find_gid_listener(connections, id, has_ip, &is_known);
        *ends = gid_ends_of(connections.segment(), id);
    }
    // Where only ids of IP addresses are concerned, another address is as good as no service.
    is_known = is_known && (found != nullptr || id.source.family == AF_IB);
    *refused = is_known ? kByConsumer : kInvalidService;
    if (found == nullptr) return nullptr;
    const device::Port port = device::port_at(connections.segment(), id.destination_port);
    const bool may_answer = found->source.family != AF_IB || !port.is_ethernet();
    return may_answer && is_datagram(*found) == is_datagram(id) ? found : nullptr;
}

int request(Locked& connections, CmId& id, CmId& listener, const RequestData& data,
            const Ends& ends) noexcept {
    if (listener.backlog == 0) return kByConsumer;
    CmId* const made = connections.make_for(listener);
    if (made == nullptr) return kByConsumer;
    made->is_passive = 1;
    made->has_device = 1;
    made->state = CmState::kRequested;
    made->port_space = listener.port_space;
    made->qp_type = listener.qp_type;
    made->source = ends.destination;
    made->destination = ends.source;
    made->source_port = id.destination_port;
    made->destination_port = id.source_port;
    made->traffic_class = listener.traffic_class;
    made->own.psn = random_psn();
    made->own.qkey = kDefaultQkey;
    // Until it replies it has what the request asks for.
    made->remote = id.own;
    made->own.responder_resources = id.own.initiator_depth;
    made->own.initiator_depth = id.own.responder_resources;
    made->own.retry_count = id.own.retry_count;
    made->own.rnr_retry = id.own.rnr_retry;
    made->peer = connections.reference(id);
    made->has_communicated = 1;
    rdma_ucm_event_resp event =
        event_of(listener, connections.index_of(*made), Event::kConnectRequest, 0);
    const std::uint16_t family = listener.source.family;
    const std::size_t bytes = RequestData::room_for(id, family);
    if (is_datagram(id)) {
        put_data(event.param.ud, bytes, data.data_for(family), bytes);
    } else {
        put_connection(event, id.own);
        put_data(event.param.conn, bytes, data.data_for(family), bytes);
    }
    const CmReference reference = connections.reference(*made);
    if (!connections.push(listener, event, reference)) {
        destroy(connections, *made);
        return kByConsumer;
    }
    --listener.backlog;
    id.peer = reference;
    id.has_communicated = 1;
    id.state = CmState::kRequested;
    return 0;
}

}  // namespace

bool tell(Locked& connections, CmId& id, Event event, int status, std::uint64_t argument) noexcept {
    rdma_ucm_event_resp response = event_of(id, connections.index_of(id), event, status);
    std::memcpy(&response.param, &argument, sizeof argument);
    return push(connections, id, response);
}

int listen(Locked& connections, CmId& id, std::uint32_t backlog) noexcept {
    if (id.state == CmState::kIdle) {
        CmAddress any{};
        any.family = AF_INET;
        if (const int error = bind(connections, id, any)) return error;
    }
    if (id.state != CmState::kBound) return EINVAL;
    // Whoever listens does not share its port (cma_bind_listen).
    if (id.reuse_address)
        if (const int error = check_port(connections, id, id.source, false)) return error;
    id.backlog = backlog > 0 && backlog < kMostBacklog ? backlog : kMostBacklog;
    id.state = CmState::kListening;
    return 0;
}

int connect(Locked& connections, CmId& id, const rdma_ucm_conn_param& wanted,
            const rdma_ucm_ece& ece) noexcept {
    if (!wanted.valid) return EINVAL;
    if (id.state != CmState::kRouted) return EINVAL;
    if (wanted.private_data_len > RequestData::room_for(id, id.source.family)) return EINVAL;
    take_wanted(id.own, wanted, ece);
    id.own.psn = random_psn();
    if (!has_links(connections.segment(), id)) {
        // No answer comes. The kernel repeats its request for a minute before it says so
        // (cma_ib_handler, IB_CM_REQ_ERROR).
        id.state = CmState::kDisconnected;
        tell(connections, id, Event::kUnreachable, -ETIMEDOUT);
        return 0;
    }
    const RequestData data(id, wanted.private_data, wanted.private_data_len);
    Ends ends{};
    int refused = 0;
    CmId* const listener = find_receiver(connections, id, data, &ends, &refused);
    id.state = CmState::kRequested;
    if (listener != nullptr) refused = request(connections, id, *listener, data, ends);
    if (refused != 0 && is_datagram(id))
        refused = refused == kInvalidService ? kNoService : kDatagramRejected;
    if (refused != 0) refuse(connections, id, refused, nullptr, 0);
    return 0;
}

int accept(Locked& connections, CmId& id, std::uint64_t uid, const rdma_ucm_conn_param& wanted,
           const rdma_ucm_ece& ece) noexcept {
    if (!id.is_passive || id.state != CmState::kRequested) return EINVAL;
    const std::size_t most = is_datagram(id) ? kDatagramReplyData : kReplyData;
    if (wanted.private_data_len > most) return EINVAL;
    CmId* const active = peer_of(connections, id);
    if (active == nullptr || active->state != CmState::kRequested) return EINVAL;
    const std::uint8_t retries = id.own.retry_count;
    take_wanted(id.own, wanted, ece);
    id.own.retry_count = retries;  // a reply has none: the request's counts (IBTA 12.7.4)
    id.uid = uid;
    if (is_datagram(id)) {
        // Ids with IP addresses have one key (ucma_copy_conn_param).
        const bool has_own_key = id.source.family == AF_IB && wanted.qkey != 0;
        id.own.qkey = has_own_key ? wanted.qkey : kDefaultQkey;
        rdma_ucm_event_resp event =
            event_of(*active, connections.index_of(*active), Event::kEstablished, 0);
        event.param.ud.qp_num = id.own.qp_number;
        event.param.ud.qkey = id.own.qkey;
        event.param.ud.ah_attr = path_to(connections.segment(), *active);
        put_data(event.param.ud, kDatagramReplyData, wanted.private_data, wanted.private_data_len);
        event.ece.vendor_id = id.own.ece_vendor;
        event.ece.attr_mod = id.own.ece_options;
        active->own.qkey = id.own.qkey;
        id.state = active->state = CmState::kConnected;
        // An exchange of two messages: from here on neither side knows of the other.
        part(id);
        part(*active);
        push(connections, *active, event);
        return 0;
    }
    active->remote = id.own;
    active->own.responder_resources = id.own.initiator_depth;
    active->own.initiator_depth = id.own.responder_resources;
    active->own.rnr_retry = id.own.rnr_retry;
    id.state = active->state = CmState::kReplied;
    rdma_ucm_event_resp event =
        event_of(*active, connections.index_of(*active), Event::kConnectResponse, 0);
    put_connection(event, id.own);
    put_data(event.param.conn, kReplyData, wanted.private_data, wanted.private_data_len);
    push(connections, *active, event);
    return 0;
}

int confirm(Locked& connections, CmId& id) noexcept {
    if (id.is_passive || id.state != CmState::kReplied) return EINVAL;
    CmId* const passive = peer_of(connections, id);
    if (passive == nullptr) return EINVAL;
    id.state = CmState::kConnected;
    if (passive->state == CmState::kReplied) {
        passive->state = CmState::kConnected;
        tell(connections, *passive, Event::kEstablished);
    }
    return 0;
}

int communication_established(Locked& connections, CmId& id) noexcept {
    if (id.state == CmState::kConnected) return EISCONN;
    if (!id.is_passive || id.state != CmState::kReplied) return EINVAL;
    id.state = CmState::kConnected;
    tell(connections, id, Event::kEstablished);
    return 0;
}

int reject(Locked& connections, CmId& id, std::uint8_t reason, const void* data,
           std::size_t bytes) noexcept {
    if (reason != 0 && reason != kByConsumer && reason != kVendorOption) return EINVAL;
    const std::size_t most = is_datagram(id) ? kDatagramReplyData : kRejectData;
    const bool has_request = id.is_passive && id.state == CmState::kRequested;
    if (bytes > most || (!has_request && id.state != CmState::kReplied)) return EINVAL;
    CmId* const peer = peer_of(connections, id);
    id.state = CmState::kDisconnected;
    part(id);
    if (peer != nullptr)
        refuse(connections, *peer,
               is_datagram(id) ? kDatagramRejected
               : reason != 0   ? reason
                               : kByConsumer,
               data, bytes);
    return 0;
}

int disconnect(Locked& connections, CmId& id) noexcept {
    if (is_datagram(id)) return EINVAL;
    switch (id.state) {
        case CmState::kConnected:
        case CmState::kReplied:
            break;
        case CmState::kDisconnected:
            return 0;  // the answer to the other side's, which has not waited for it
        default:
            return EINVAL;
    }
    if (CmId* const peer = peer_of(connections, id)) end(connections, *peer);
    end(connections, id);
    return 0;
}

void destroy(Locked& connections, CmId& id) noexcept {
    CmId* const peer = peer_of(connections, id);
    if (peer != nullptr) lose_peer(connections, *peer);
    connections.free(id, [&](CmId& made) { destroy(connections, made); });
}

void peer_lost(Locked& connections, CmId& id) noexcept { lose_peer(connections, id); }

}  // namespace softhca::rdmacm
