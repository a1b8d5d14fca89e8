// SPDX-License-Identifier: BSD-2-Clause
// RGET and RPUT, both sides: see rendezvous.h.
#include "protocol/rndv/rendezvous.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "heddle/detail/assert.h"
#include "protocol/shm/shm_ring.h"
#include "protocol/wire/message_writer.h"

namespace heddle::protocol {
namespace {

// Local buffers as a peer names them.
SegmentBody segment_of(const LocalBuffers& local, std::size_t i) noexcept {
    return {reinterpret_cast<std::uintptr_t>(local.iov[i].iov_base), local.iov[i].iov_len,
            local.remote_keys[i], 0};
}
void add_segments(MessageWriter& message, const LocalBuffers& local) noexcept {
    for (std::size_t i = 0; i < local.count; ++i)
        message.add(segment_of(local, i));
}
void add_segments(MessageWriter& message, const LocalBuffers& local,
                  const RailMemory& rails) noexcept {
    for (std::size_t i = 0; i < local.count; ++i) {
        message.add(segment_of(local, i));
        RailKeys keys{};
        for (std::size_t rail = 0; rail < rails.at.size(); ++rail)
            if (i < rails.at[rail].count) keys.at[rail] = rails.at[rail].remote_keys[i];
        message.add(keys);
    }
}

}  // namespace

// False: errno says why not. What the receiver's processor reads is not registered.
bool RendezvousProtocol::prepare_memory(SendRequest& t) {
    t.by_shm = t.peer->shm != nullptr && t.peer->shm->is_memory_read() && !t.late.is_late;
    if (t.by_shm) {
        t.bulk.local.use_unregistered(t.iov.data(), t.iov_count, t.bytes);
        return true;
    }
    // By RPUT this side writes: the receiver has nothing to read.
    const int access = core_.options.rendezvous == Rendezvous::kPut ? 0 : IBV_ACCESS_REMOTE_READ;
    if (!core_.use_memory(t.bulk.local, t.iov.data(), t.iov_count, t.descriptors.data(), t.bytes,
                          access))
        return false;
    if (stripes_ != nullptr && access != 0)
        t.rail_memory = stripes_->register_memory(*t.peer, {t.iov.data(), t.iov_count}, t.bytes);
    return true;
}

// Only a FIN says that a message has met its receive, and only an RTS can come later than its turn.
bool RendezvousProtocol::may_be_copied(const SendRequest& t) const noexcept {
    return copier_ != nullptr && !(t.flags & FI_MATCH_COMPLETE) && !t.late.is_late &&
           copier_->may_copy(*t.peer, t.bytes);
}

bool RendezvousProtocol::start_copied(SendRequest& t) {
    core_.note_unregistered(t.bytes);
    t.owner = copier_;  // no registration is tried again
    return copier_->start(t);
}

bool RendezvousProtocol::start(SendRequest& t) {
    if (t.step != SendRequest::Step::kRts) {
        HEDDLE_ASSERT(t.step == SendRequest::Step::kMessage);
        if (!prepare_memory(t)) {
            const int error = errno;
            if (error == ENOMEM && may_be_copied(t)) return start_copied(t);
            requests_.finish(t, error, 0);
            return true;
        }
        t.step = SendRequest::Step::kRts;
        t.owner = this;
        ++core_.counts.rendezvous;
    }
    return send_rts(t);
}

// False if the send queue or the buffers had no room: the caller tries again later.
bool RendezvousProtocol::send_rts(SendRequest& t) {
    const bool put = core_.options.rendezvous == Rendezvous::kPut && !t.by_shm;
    const bool has_data = t.flags & FI_REMOTE_CQ_DATA;
    Header header{
        Kind::kRts, 0, core_.name.endpoint, t.peer->name.endpoint, t.peer->outgoing.send_sequence(),
        t.tag};
    if (t.flags & FI_TAGGED) header.flags |= Header::kTagged;
    if (put) header.flags |= Header::kPut;
    if (has_data) header.flags |= Header::kWideData;
    if (t.late.is_late) header.flags |= Header::kLater;
    const std::size_t count = put ? 0 : t.bulk.local.count;
    const std::uint32_t flags = t.by_shm        ? RtsBody::kByProcess
                                : t.rail_memory ? RtsBody::kRailKeys
                                                : 0u;
    const RtsBody body{SlotPool<SendRequest>::id(t), t.bytes, static_cast<std::uint32_t>(count),
                       flags};
    std::byte room[kMostControlBytes];
    MessageWriter message(room, header);
    if (has_data) message.add(t.data);
    if (t.late.is_late)
        message.add(PlaceBody{t.peer->outgoing.sent - std::min(t.late.place, t.peer->outgoing.sent),
                              t.late.order, 0});
    message.add(body);
    if (t.rail_memory)
        add_segments(message, t.bulk.local, *t.rail_memory);
    else if (!put)
        add_segments(message, t.bulk.local);
    if (!core_.send_control(*t.peer, message.written())) return false;
    t.peer->outgoing.count_sequenced();
    t.step = SendRequest::Step::kAnswer;
    t.reply = OutstandingReply(*t.peer);
    return true;
}

void RendezvousProtocol::fetch(Receive& receive, std::span<const iovec> buffers, std::size_t room,
                               Peer& peer, const AnnouncedMessage& message,
                               std::span<const Segment> segments) {
    const std::size_t taken = std::min(message.bytes, room);
    FetchedMessage& fetched = fetched_.take();
    const int access = IBV_ACCESS_LOCAL_WRITE | (message.by_put ? IBV_ACCESS_REMOTE_WRITE : 0);
    if (message.by_process) {
        fetched.bulk.local.use_unregistered(buffers.data(), buffers.size(), taken);
    } else if (!core_.use_memory(fetched.bulk.local, buffers.data(), buffers.size(), nullptr, taken,
                                 access) &&
               (message.by_put ||
                !copy_instead(core_, fetched.bulk.local, buffers.data(), buffers.size(), taken))) {
        const int error = errno;
        fetched_.give_back(fetched);
        refuse(peer, message.operation, error);
        return user_.on_fetched(receive, peer, message, 0, error, 0);
    }
    HEDDLE_ASSERT(segments.size() <= fetched.bulk.remote.size(), "parse() has counted them");
    fetched.rendezvous = this;
    fetched.receive = &receive;
    fetched.peer = &peer;
    fetched.message = message;
    fetched.taken = taken;
    std::copy(segments.begin(), segments.end(), fetched.bulk.remote.begin());
    fetched.bulk.remote_count = segments.size();
    if (!message.by_put && taken == 0) return end(fetched, 0, 0);
    if (!CoreServices::can_send(peer) || !fetched.try_post()) core_.wait(peer, of_pool(fetched));
}

bool FetchedMessage::try_post() {
    if (message.by_process) {
        rendezvous->reading_.push_back(this);
        return true;
    }
    return message.by_put ? rendezvous->send_cts(*this) : rendezvous->read(*this);
}

bool RendezvousProtocol::send_cts(FetchedMessage& fetched) {
    HEDDLE_ASSERT(!fetched.started, "one CTS a message");
    const CtsBody cts{fetched.message.operation, SlotPool<FetchedMessage>::id(fetched),
                      fetched.taken, static_cast<std::uint32_t>(fetched.bulk.local.count), 0};
    const Header header{Kind::kCts, 0, core_.name.endpoint, fetched.peer->name.endpoint, 0, 0};
    std::byte room[kMostControlBytes];
    MessageWriter message(room, header);
    message.add(cts);
    add_segments(message, fetched.bulk.local);
    if (!core_.send_control(*fetched.peer, message.written())) return false;
    fetched.started = true;
    fetched.reply = OutstandingReply(*fetched.peer);
    return true;
}

bool RendezvousProtocol::read(FetchedMessage& fetched) {
    if (!fetched.started) {
        fetched.started = true;
        if (fetched.message.has_rail_keys && stripes_ != nullptr) [[unlikely]]
            begin_stripes(fetched);
        else
            begin_reading(fetched, {0, fetched.taken});
    }
    return fetched.bulk.post();
}

void RendezvousProtocol::begin_reading(FetchedMessage& fetched, const Bulk::Range& range) {
    fetched.is_moving = true;
    core_.begin_bulk(
        fetched.bulk, *fetched.peer, post::Opcode::kRead, range,
        [](void* argument, int error, int device_error) {
            auto& its = *static_cast<FetchedMessage*>(argument);
            its.is_moving = false;
            its.rendezvous->on_part_read(its, error, device_error);
        },
        &fetched);
}

void RendezvousProtocol::begin_stripes(FetchedMessage& fetched) {
    const LocalBuffers& local = fetched.bulk.local;
    const std::size_t own = stripes_->read(
        *fetched.peer,
        {{local.iov.data(), local.count}, {fetched.bulk.remote.data(), fetched.bulk.remote_count}},
        fetched.taken, fetched, fetched.stripes);
    for (const Stripe& each : fetched.stripes)
        fetched.stripes_open += each.is_under_way;
    begin_reading(fetched, {0, own});
}

void FetchedMessage::on_stripe(Stripe& stripe, int error) {
    HEDDLE_ASSERT(stripe.is_under_way && stripes_open != 0, "a stripe has ended twice");
    stripe.is_under_way = false;
    --stripes_open;
    if (error != 0) stripes_failed |= 1u << (&stripe - stripes.data());
    if (!is_moving) rendezvous->go_on(*this);
}

void RendezvousProtocol::on_part_read(FetchedMessage& fetched, int error, int device_error) {
    if (error != 0 && fetched.error == 0) {
        fetched.error = error;
        fetched.device_error = device_error;
    }
    go_on(fetched);
}

// The connection of the peer reads nothing of the message now.
void RendezvousProtocol::go_on(FetchedMessage& fetched) {
    if (fetched.stripes_failed != 0 && fetched.error == 0) {
        const auto which = static_cast<unsigned>(std::countr_zero(fetched.stripes_failed));
        fetched.stripes_failed &= fetched.stripes_failed - 1;
        begin_reading(fetched, fetched.stripes[which].range);
        if (!CoreServices::can_send(*fetched.peer) || !fetched.try_post())
            core_.wait(*fetched.peer, of_pool(fetched));
        return;
    }
    // While a rail may write to the receive's memory it is not the program's.
    if (fetched.stripes_open == 0) end(fetched, fetched.error, fetched.device_error);
}

void FetchedMessage::fail(int error) {
    if (started && !message.by_put)
        bulk.post();  // it sees that the connection has failed, and ends when all WRs have
    else
        rendezvous->end(*this, error, 0);
}

void RendezvousProtocol::end(FetchedMessage& fetched, int error, int device_error) {
    HEDDLE_ASSERT(fetched.in_use, "a message has ended twice");
    fetched.bulk.local.release();
    fetched.reply.reset();
    if (!fetched.message.by_put) refuse(*fetched.peer, fetched.message.operation, error);
    Receive& receive = *fetched.receive;
    Peer& peer = *fetched.peer;
    const AnnouncedMessage message = fetched.message;
    const std::size_t taken = error == 0 ? fetched.taken : 0;
    fetched_.give_back(fetched);
    user_.on_fetched(receive, peer, message, taken, error, device_error);
}

void RendezvousProtocol::refuse(Peer& peer, std::uint64_t operation, int error) {
    core_.control(peer, Kind::kFin, FinBody{operation, static_cast<std::uint32_t>(error), 0});
}

void RendezvousProtocol::on_message(Peer& peer, const Message& message) {
    if (message.header.kind == Kind::kCts) return on_cts(peer, message);
    HEDDLE_ASSERT(message.header.kind == Kind::kFin);
    on_fin(peer, message.fin);
}

void RendezvousProtocol::on_cts(Peer& peer, const Message& message) {
    SendRequest* const t = requests_.find_awaiting(message.cts.operation, peer);
    if (t == nullptr || t->owner != this || core_.options.rendezvous != Rendezvous::kPut ||
        t->by_shm || message.cts.bytes > t->bytes)
        return core_.protocol_error(peer);
    t->reply.reset();
    t->receive = message.cts.receive;
    t->step = SendRequest::Step::kBulk;
    std::copy_n(message.segments, message.cts.segments, t->bulk.remote.begin());
    t->bulk.remote_count = message.cts.segments;
    core_.begin_bulk(
        t->bulk, peer, post::Opcode::kWrite, {0, message.cts.bytes},
        [](void* argument, int error, int device_error) {
            auto& its = *static_cast<SendRequest*>(argument);
            static_cast<RendezvousProtocol*>(its.owner)->on_written(its, error, device_error);
        },
        t);
    if (!peer.waiting.empty() || !t->bulk.post()) core_.wait(peer, of_pool(*t));
}

void RendezvousProtocol::on_written(SendRequest& t, int error, int device_error) {
    const FinBody fin{t.receive, static_cast<std::uint32_t>(error), 1};
    core_.control(*t.peer, Kind::kFin, fin);
    requests_.finish(t, error, device_error);
}

void RendezvousProtocol::on_fin(Peer& peer, const FinBody& fin) {
    if (fin.put != 0) {
        FetchedMessage* const fetched = fetched_.find(fin.operation);
        if (fetched == nullptr || fetched->peer != &peer || !fetched->reply.is_open())
            return core_.protocol_error(peer);
        return end(*fetched, errno_of(fin.status), 0);
    }
    SendRequest* const t = requests_.find_awaiting(fin.operation, peer);
    if (t == nullptr || t->owner != this) return core_.protocol_error(peer);
    t->reply.reset();
    t->step = SendRequest::Step::kFin;
    requests_.finish(*t, errno_of(fin.status), 0);
}

void RendezvousProtocol::on_peer_failed(const Peer& peer, int error) {
    std::deque<FetchedMessage*> reading;
    reading.swap(reading_);
    for (FetchedMessage* const each : reading) {
        if (each->peer == &peer)
            end(*each, error, 0);
        else
            reading_.push_back(each);
    }
    fetched_.for_each_in_use([&](FetchedMessage& fetched) {
        if (fetched.peer == &peer && fetched.reply.is_open()) end(fetched, error, 0);
    });
}

}  // namespace heddle::protocol
