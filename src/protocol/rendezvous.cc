// SPDX-License-Identifier: BSD-2-Clause
// Messages whose payload stays with the sender until there is a receive for it. RGET: the receiver
// reads it (RTS, RDMA read, FIN). RPUT: the receiver says where to, the sender writes it (RTS, CTS,
// RDMA write, FIN). Both from and to where the application has it: nothing is copied.
#include <rdma/fi_errno.h>

#include <algorithm>

#include "protocol/endpoint_impl.h"
#include "protocol/wire/message_writer.h"

namespace heddle::protocol {
namespace {

std::span<const std::byte> bytes_of(std::span<const Segment> segments) noexcept {
    return std::as_bytes(segments);
}

// Local buffers as a peer names them.
std::size_t segments_of(const LocalBuffers& local,
                        std::array<Segment, kMaxSegments>& out) noexcept {
    for (std::size_t i = 0; i < local.count; ++i)
        out[i] = {reinterpret_cast<std::uintptr_t>(local.iov[i].iov_base), local.iov[i].iov_len,
                  local.remote_keys[i], 0};
    return local.count;
}

void transfer_written(void* argument, int error, int device_error) {
    auto& t = *static_cast<SendRequest*>(argument);
    const FinBody fin{t.receive, static_cast<std::uint32_t>(error), 1};
    static_cast<EndpointImpl*>(t.owner)->control(*t.peer, Kind::kFin, fin);
    t.pool->finish(t, error, device_error);
}

void receive_read(void* argument, int error, int device_error) {
    auto& r = *static_cast<Receive*>(argument);
    r.endpoint->rendezvous_done(r, error, device_error);
}

}  // namespace

// False: no room.
bool EndpointImpl::send_rts(SendRequest& t) {
    const bool put = options.rendezvous == Rendezvous::kPut;
    const bool has_data = t.flags & FI_REMOTE_CQ_DATA;
    Header header{
        Kind::kRts, 0, name.endpoint, t.peer->name.endpoint, t.peer->outgoing.send_sequence(),
        t.tag};
    if (t.flags & FI_TAGGED) header.flags |= Header::kTagged;
    if (put) header.flags |= Header::kPut;
    if (has_data) header.flags |= Header::kWideData;
    if (t.by_tuple.later) header.flags |= Header::kLater;
    std::array<Segment, kMaxSegments> segments;
    const std::size_t count = put ? 0 : segments_of(t.bulk.local, segments);
    const RtsBody body{SlotPool<SendRequest>::id(t), t.bytes, static_cast<std::uint32_t>(count), 0};
    std::byte room[kMostControlBytes];
    MessageWriter message(room, header);
    if (has_data) message.add(t.data);
    if (t.by_tuple.later)
        message.add(
            PlaceBody{t.peer->outgoing.sent - std::min(t.by_tuple.place, t.peer->outgoing.sent),
                      t.by_tuple.order, 0});
    message.add(body).add_bytes(bytes_of({segments.data(), count}));
    if (!send_control(*t.peer, message.written())) return false;
    t.peer->outgoing.count_sequenced();
    t.step = SendRequest::Step::kAnswer;
    t.reply = OutstandingReply(*t.peer);
    return true;
}

void EndpointImpl::begin_rendezvous(Receive& r, Peer& peer, std::uint64_t tag, std::uint64_t data,
                                    bool has_data, std::uint64_t operation, std::size_t bytes,
                                    std::span<const Segment> segments, bool by_put) {
    r.peer = &peer;
    r.message_tag = tag;
    r.message_data = data;
    r.has_data = has_data;
    r.operation = operation;
    r.message_bytes = bytes;
    r.by_put = by_put;
    const std::size_t taken = std::min(bytes, r.bytes);
    r.taken = taken;
    if (!r.bulk.local.use(domain->body(), r.iov.data(), r.iov_count, nullptr, taken,
                          IBV_ACCESS_LOCAL_WRITE | (by_put ? IBV_ACCESS_REMOTE_WRITE : 0))) {
        const int error = errno;
        refuse_rendezvous(peer, operation, by_put, error);
        finish(r, peer, tag, data, has_data, nullptr, bytes, 0, error, 0);
        return;
    }
    std::copy(segments.begin(), segments.end(), r.bulk.remote.begin());
    r.bulk.remote_count = segments.size();
    r.started = false;
    if (!by_put && taken == 0) return rendezvous_done(r, 0, 0);
    if (!can_send(peer) || !r.try_post()) wait(peer, of_pool(r));
}

bool Receive::try_post() {
    if (by_put) {
        std::array<Segment, kMaxSegments> segments;
        const std::size_t count = segments_of(bulk.local, segments);
        const CtsBody cts{operation, SlotPool<Receive>::id(*this), taken,
                          static_cast<std::uint32_t>(count), 0};
        const Header header{Kind::kCts, 0, endpoint->name.endpoint, peer->name.endpoint, 0, 0};
        std::byte room[kMostControlBytes];
        MessageWriter message(room, header);
        message.add(cts).add_bytes(bytes_of({segments.data(), count}));
        if (!endpoint->send_control(*peer, message.written())) return false;
        started = true;
        reply = OutstandingReply(*peer);
        return true;
    }
    if (!started) {
        started = true;
        bulk.begin(*endpoint->channel, *endpoint, *peer->connection, peer->name.srqn,
                   post::Opcode::kRead, taken, receive_read, this);
    }
    return bulk.post();
}

void Receive::fail(int error) {
    if (started && !by_put)
        bulk.post();  // it sees that the connection has failed, and ends when all WRs have
    else
        endpoint->rendezvous_done(*this, error, 0);
}

void EndpointImpl::rendezvous_done(Receive& r, int error, int device_error) {
    Peer& peer = *r.peer;
    r.bulk.local.release();
    r.reply.reset();
    if (!r.by_put)
        control(peer, Kind::kFin, FinBody{r.operation, static_cast<std::uint32_t>(error), 0});
    r.by_put = r.started = false;
    finish(r, peer, r.message_tag, r.message_data, r.has_data,
           r.iov_count != 0 ? r.iov[0].iov_base : nullptr, r.message_bytes,
           error == 0 ? r.taken : 0, error, device_error);
}

// Tells the sender that its message is not wanted, or cannot be had.
void EndpointImpl::refuse_rendezvous(Peer& peer, std::uint64_t operation, bool, int error) {
    control(peer, Kind::kFin, FinBody{operation, static_cast<std::uint32_t>(error), 0});
}

void EndpointImpl::got_cts(Peer& peer, const Message& message) {
    SendRequest* const t = requests.find_awaiting(message.cts.operation, peer);
    if (t == nullptr || t->flags & FI_ATOMIC || options.rendezvous != Rendezvous::kPut ||
        message.cts.bytes > t->bytes)
        return protocol_error(peer);
    t->reply.reset();
    t->receive = message.cts.receive;
    t->step = SendRequest::Step::kBulk;
    std::copy_n(message.segments, message.cts.segments, t->bulk.remote.begin());
    t->bulk.remote_count = message.cts.segments;
    t->bulk.begin(*channel, *this, *peer.connection, peer.name.srqn, post::Opcode::kWrite,
                  message.cts.bytes, transfer_written, t);
    if (!peer.waiting.empty() || !t->bulk.post()) wait(peer, of_pool(*t));
}

void EndpointImpl::got_fin(Peer& peer, const FinBody& fin) {
    if (fin.put != 0) {
        Receive* const r = receives.find(fin.operation);
        if (r == nullptr || r->peer != &peer || !r->by_put || !r->started)
            return protocol_error(peer);
        rendezvous_done(*r, errno_of(fin.status), 0);
        return;
    }
    SendRequest* const t = requests.find_awaiting(fin.operation, peer);
    if (t == nullptr || t->flags & FI_ATOMIC) return protocol_error(peer);
    t->reply.reset();
    t->step = SendRequest::Step::kFin;
    requests.finish(*t, errno_of(fin.status), 0);
}

}  // namespace heddle::protocol
