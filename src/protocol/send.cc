// SPDX-License-Identifier: BSD-2-Clause
// Messages out. Small ones are copied into the work queue entry, larger ones into a registered
// buffer; by a SEND, or into the peer's ring (eager_ring.h). Above the eager limit, or where the
// peer has no credit left for eager payload, the message goes by rendezvous (rendezvous.cc).
#include <rdma/fi_errno.h>

#include <cstring>

#include "protocol/send_fast_path.h"
#include "protocol/tuples.h"
#include "protocol/wire/message_writer.h"

namespace heddle::protocol {
namespace {

constexpr std::size_t kMostWaiting = 65536;  // operations of a peer; then -FI_EAGAIN

std::size_t bytes_of(const iovec* iov, std::size_t count) noexcept {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i)
        bytes += iov[i].iov_len;
    return bytes;
}

std::byte* gather(std::byte* to, const iovec* iov, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        if (iov[i].iov_len == 0) continue;
        std::memcpy(to, iov[i].iov_base, iov[i].iov_len);
        to += iov[i].iov_len;
    }
    return to;
}

// Remote CQ data that does not fit into 32 bits travels behind the header.
bool is_wide(const Outgoing& out) noexcept { return out.has_data && out.data > UINT32_MAX; }

// What comes before the payload. Returns its end.
std::byte* put_header(std::byte* to, const Outgoing& out) noexcept {
    Header header = out.header;
    if (is_wide(out)) header.flags |= Header::kWideData;
    MessageWriter message({to, sizeof header + sizeof out.data}, header);
    if (is_wide(out)) message.add(out.data);
    return to + message.written().size();
}

ibv_sge sge_of(const void* at, std::size_t bytes, std::uint32_t key = 0) noexcept {
    return {reinterpret_cast<std::uintptr_t>(at), static_cast<std::uint32_t>(bytes), key};
}

// To the receive queue of all that send to that endpoint.
void address_send(post::WorkRequest& work, const Peer& peer, const Outgoing& out) noexcept {
    const bool immediate = out.has_data && !is_wide(out);
    work.opcode = immediate ? post::Opcode::kSendImm : post::Opcode::kSend;
    work.immediate = static_cast<std::uint32_t>(out.data);
    work.remote_srq = peer.name.srqn;
}

// Into the ring that the peer has for this endpoint, so many bytes with its header; the tail, which
// is put there, goes behind them. Returns the tail's end.
std::byte* address_ring(post::WorkRequest& work, const Peer& peer, const SendRing& to,
                        const Outgoing& out, std::size_t bytes, std::byte* tail_at) noexcept {
    RingTail tail = to.tail(bytes);
    if (out.has_data && !is_wide(out)) {
        tail.flags = RingTail::kImmediate;
        tail.immediate = static_cast<std::uint32_t>(out.data);
    }
    std::memcpy(tail_at, &tail, sizeof tail);
    work.opcode = post::Opcode::kWrite;
    work.remote_address = to.address(bytes);
    work.remote_key = to.key();
    work.remote_srq = peer.name.srqn;
    return tail_at + sizeof tail;
}

// The reader of a ring looks at the end of a message. Packets may be placed in another order than
// that in which they were sent, so a message that takes two of them goes by SEND.
bool takes(const SendRing& ring, const Peer& peer, const Outgoing& out) noexcept {
    const std::size_t bytes = sizeof(Header) + sizeof out.data + out.bytes;
    return ring.takes(bytes) && bytes + sizeof(RingTail) <= peer.connection->packet_bytes();
}

}  // namespace

// The next message to that peer. what: SendArguments, or a SendRequest.
template <class What>
Outgoing EndpointImpl::outgoing(const Peer& peer, const What& what,
                                std::size_t bytes) const noexcept {
    const std::uint8_t flags = what.flags & FI_TAGGED ? Header::kTagged : 0;
    return {{Kind::kEager, flags, name.endpoint, peer.name.endpoint, peer.outgoing.send_sequence(),
             what.tag},
            &what.iov[0],
            what.iov_count,
            bytes,
            what.data,
            (what.flags & FI_REMOTE_CQ_DATA) != 0};
}

post::Posted EndpointImpl::send_eager(Peer& peer, const Outgoing& out, const WrContext& sent,
                                      bool may_stay) {
    SendRing* ring = rings.ring_at(peer);
    if (ring != nullptr && !takes(*ring, peer, out)) ring = nullptr;
    const auto by_buffer = [&] {
        Reuse::Buffer* const reused =
            may_stay && out.count == 1
                ? reuse.source(out.iov[0], ring != nullptr ? ReuseCosts::kRing : ReuseCosts::kSend)
                : nullptr;
        return reused != nullptr ? send_gathered(peer, out, ring, sent, *reused)
                                 : send_copied(peer, out, ring, sent);
    };
    const post::Posted posted =
        channel->fits_inline(out.bytes) ? send_inline(peer, out, ring, sent) : by_buffer();
    if (posted != post::Posted::kOk) [[unlikely]]
        return posted;
    peer.outgoing.count_sequenced();
    if (ring != nullptr) {
        ring->count_sent();
        ++counts.by_ring;
    }
    if (out.bytes > kFreeBytes) peer.unacked_eager_bytes += out.bytes;
    ++(channel->fits_inline(out.bytes) ? counts.inlined : counts.eager);
    return posted;
}

post::Posted EndpointImpl::send_inline(Peer& peer, const Outgoing& out, SendRing* ring,
                                       const WrContext& sent) {
    std::byte flat[sizeof(Header) + sizeof out.data + kMostInline + sizeof(RingTail)];
    post::WorkRequest work;
    std::byte* end = put_header(flat, out);
    ibv_sge sges[2];
    std::size_t used = 1;
    if (ring != nullptr) {
        end = gather(end, out.iov, out.count);
        end = address_ring(work, peer, *ring, out, static_cast<std::size_t>(end - flat), end);
    } else {
        address_send(work, peer, out);
        if (out.count == 1 && out.bytes != 0) {
            sges[1] = sge_of(out.iov[0].iov_base, out.bytes);
            used = 2;
        } else {
            end = gather(end, out.iov, out.count);
        }
    }
    sges[0] = sge_of(flat, static_cast<std::size_t>(end - flat));
    work.sges = {sges, used};
    work.flags = post::kInline;
    return channel->post(*peer.connection, work, sent);
}

post::Posted EndpointImpl::send_copied(Peer& peer, const Outgoing& out, SendRing* ring,
                                       const WrContext& wanted) {
    memory::Pool& buffers = channel->send_buffers();
    std::byte* const buffer = buffers.take();
    if (buffer == nullptr) return post::Posted::kFull;
    post::WorkRequest work;
    std::byte* end = gather(put_header(buffer, out), out.iov, out.count);
    if (ring != nullptr)
        end = address_ring(work, peer, *ring, out, static_cast<std::size_t>(end - buffer), end);
    else
        address_send(work, peer, out);
    const ibv_sge sge = sge_of(buffer, static_cast<std::size_t>(end - buffer), buffers.key());
    work.sges = {&sge, 1};
    WrContext sent = wanted;
    sent.buffer = buffer;
    const post::Posted posted = channel->post(*peer.connection, work, sent);
    if (posted != post::Posted::kOk) [[unlikely]] {
        buffers.give_back(buffer);
        return posted;
    }
    ++counts.copied_by_size[EndpointCounts::size_index(out.bytes)];
    return posted;
}

// From where it stands, behind a header of ours: two SGEs, and with a ring's tail three
// ("Exploiting application buffer reuse", section 3.2).
post::Posted EndpointImpl::send_gathered(Peer& peer, const Outgoing& out, SendRing* ring,
                                         const WrContext& wanted, Reuse::Buffer& reused) {
    memory::Pool& buffers = channel->send_buffers();
    std::byte* const buffer = buffers.take();
    if (buffer == nullptr) return post::Posted::kFull;
    post::WorkRequest work;
    std::byte* const end = put_header(buffer, out);
    const auto before = static_cast<std::size_t>(end - buffer);
    ibv_sge sges[3] = {sge_of(buffer, before, buffers.key()),
                       sge_of(out.iov[0].iov_base, out.bytes, reused.key())};
    std::size_t used = 2;
    if (ring != nullptr) {
        address_ring(work, peer, *ring, out, before + out.bytes, end);
        sges[used++] = sge_of(end, sizeof(RingTail), buffers.key());
    } else {
        address_send(work, peer, out);
    }
    work.sges = {sges, used};
    ZcopyRequest& direct = requests.take_zcopy(wanted.what, wanted.context, bindings.send_counter);
    direct.reused = &reused;
    WrContext sent;
    sent.user = this;
    sent.handler = &direct;
    sent.buffer = buffer;
    const post::Posted posted = channel->post(*peer.connection, work, sent);
    if (posted == post::Posted::kOk) [[likely]] {
        ++reused.in_flight;
        ++counts.gathered;
        ++counts.gathered_by_size[EndpointCounts::size_index(out.bytes)];
    } else {
        requests.give_back(direct);
        buffers.give_back(buffer);
    }
    return posted;
}

ssize_t EndpointImpl::send(const SendArguments& a) {
    if (a.iov_count == 1 && !(a.flags & (FI_MATCH_COMPLETE | FI_INJECT_COMPLETE)) &&
        send_small(a.iov->iov_base, a.iov->iov_len, a.to, a.tag, a.data, a.flags,
                   a.flags & FI_COMPLETION, a.context))
        return 0;
    return send_any(a);
}

ssize_t EndpointImpl::send_any(const SendArguments& a) {
    if (a.iov_count > kMaxSegments) return -FI_EINVAL;
    Peer* const peer = peers.at(a.to);
    if (peer == nullptr) [[unlikely]]
        return -FI_EINVAL;
    const std::size_t bytes = a.iov_count == 1 ? a.iov->iov_len : bytes_of(a.iov, a.iov_count);
    if (a.flags & FI_INJECT && bytes > options.inject_bytes) return -FI_EMSGSIZE;
    if (!tuples || !(a.flags & FI_TAGGED)) [[likely]]
        return send_by_software(*peer, a, bytes);
    if (TupleOut* const tuple = tuples->sender.find(*peer, a.tag))
        return send_to_tuple(*tuple, *peer, a, bytes);
    const ssize_t sent = send_by_software(*peer, a, bytes);
    if (sent == 0 && bytes >= tuples_from) tuples->sender.note(*peer, a);
    return sent;
}

ssize_t EndpointImpl::send_to_tuple(TupleOut& tuple, Peer& peer, const SendArguments& a,
                                    std::size_t bytes) {
    if (TupleSender::is_full(tuple)) return -FI_EAGAIN;
    tuples->sender.send(tuple, request_of(peer, a, bytes));
    return 0;
}

// What the report of the operation will have.
std::uint8_t EndpointImpl::told_of(const SendArguments& a) const noexcept {
    std::uint8_t what = a.flags & FI_TAGGED ? WrContext::kTagged : 0;
    if (a.flags & FI_COMPLETION) what |= WrContext::kEntry;
    if (bindings.send_counter != nullptr) what |= WrContext::kCount;
    return what;
}

SendRequest& EndpointImpl::request_of(Peer& peer, const SendArguments& a, std::size_t bytes) {
    SendRequest& transfer = requests.take(peer, *this);
    transfer.flags = a.flags;
    transfer.report.context = a.context;
    transfer.tag = a.tag;
    transfer.data = a.data;
    transfer.bytes = bytes;
    transfer.report.what = told_of(a);
    transfer.report.counter = bindings.send_counter;
    transfer.set_buffers(a.iov, a.iov_count, a.descriptors);
    if (a.flags & FI_INJECT) transfer.copy_buffers();
    return transfer;
}

ssize_t EndpointImpl::send_by_software(Peer& peer, const SendArguments& a, std::size_t bytes) {
    const std::uint8_t what = told_of(a);
    const bool tells = what & (WrContext::kEntry | WrContext::kCount);
    if (can_send(peer) && !(a.flags & FI_MATCH_COMPLETE)) [[likely]] {
        // What was copied is the application's again: the report may be made now if it wants no
        // more.
        const bool early = tells && a.flags & FI_INJECT_COMPLETE;
        WrContext sent;
        if (tells && !early) {
            sent.user = this;
            sent.context = a.context;
            sent.what = what;
        }
        const Outgoing out = outgoing(peer, a, bytes);
        if (may_be_eager(peer, bytes)) [[likely]] {
            // What was injected is the application's again when this returns: it is copied.
            const bool may_stay = tells && !(a.flags & (FI_INJECT_COMPLETE | FI_INJECT));
            const post::Posted posted = send_eager(peer, out, sent, may_stay);
            if (posted == post::Posted::kOk) [[likely]] {
                if (early) entry(what, false, a.context, 0, 0, 0, bindings.send_counter);
                return 0;
            }
            if (posted == post::Posted::kInvalid) return -FI_EINVAL;
        }
    }
    if (peer.failed != 0 && a.flags & FI_INJECT) return -peer.failed;
    if (peer.waiting.size() >= kMostWaiting) return -FI_EAGAIN;
    SendRequest& transfer = request_of(peer, a, bytes);
    requests.start(transfer);
    return 0;
}

bool EndpointImpl::start(SendRequest& t) {
    if (t.step == SendRequest::Step::kRts) return send_rts(t);
    Peer& peer = *t.peer;
    if (t.flags & FI_MATCH_COMPLETE || t.by_tuple.later || !may_be_eager(peer, t.bytes)) {
        // By RPUT this side writes: the receiver has nothing to read.
        const int access = options.rendezvous == Rendezvous::kPut ? 0 : IBV_ACCESS_REMOTE_READ;
        if (!t.bulk.local.use(domain->body(), t.iov.data(), t.iov_count, t.descriptors.data(),
                              t.bytes, access)) {
            requests.finish(t, errno, 0);
            return true;
        }
        t.step = SendRequest::Step::kRts;
        ++counts.rendezvous;
        return send_rts(t);
    }
    WrContext sent;
    if (t.report.what & (WrContext::kEntry | WrContext::kCount)) {
        sent.user = this;
        sent.context = t.report.context;
        sent.what = t.report.what;
    }
    const Outgoing out = outgoing(peer, t, t.bytes);
    const post::Posted posted = send_eager(peer, out, sent, false);
    if (posted == post::Posted::kFull) return false;
    if (posted == post::Posted::kInvalid) {
        requests.finish(t, EINVAL, 0);
        return true;
    }
    requests.end(t);
    return true;
}

}  // namespace heddle::protocol
