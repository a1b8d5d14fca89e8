// SPDX-License-Identifier: BSD-2-Clause
// Messages out. Small ones are copied into the work queue entry, larger ones into a registered
// buffer; above the eager limit, or where the peer has as much ahead as it may, the peer is told
// of the message and fetches it (rendezvous.cc).
#include <rdma/fi_errno.h>

#include <cstring>

#include "protocol/small_send.h"

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

std::uint8_t tagged_flag(bool tagged) noexcept {
    return tagged ? std::uint8_t{Header::kTagged} : std::uint8_t{0};
}

// Header, and behind it data that does not fit into the immediate. Returns its end.
std::byte* put_header(std::byte* to, Header header, std::uint64_t data, bool has_data,
                      post::Work& work) noexcept {
    work.opcode = post::Opcode::kSend;
    bool wide = false;
    if (has_data) {
        wide = data > UINT32_MAX;
        if (wide) {
            header.flags |= Header::kWideData;
        } else {
            work.opcode = post::Opcode::kSendImm;
            work.immediate = static_cast<std::uint32_t>(data);
        }
    }
    std::memcpy(to, &header, sizeof header);
    to += sizeof header;
    if (wide) {
        std::memcpy(to, &data, sizeof data);
        to += sizeof data;
    }
    return to;
}

ibv_sge piece_of(const void* at, std::size_t bytes, std::uint32_t key = 0) noexcept {
    return {reinterpret_cast<std::uintptr_t>(at), static_cast<std::uint32_t>(bytes), key};
}

}  // namespace

post::Posted RdmEndpoint::Body::send_inline(Peer& peer, const Header& header, const iovec* iov,
                                            std::size_t count, std::size_t bytes,
                                            std::uint64_t data, bool has_data, const Sent& sent) {
    std::byte flat[sizeof(Header) + 8 + 512];
    post::Work work;
    std::byte* end = put_header(flat, header, data, has_data, work);
    ibv_sge pieces[2];
    std::size_t used = 1;
    if (count == 1 && bytes != 0) {
        pieces[1] = piece_of(iov[0].iov_base, bytes);
        used = 2;
    } else {
        end = gather(end, iov, count);
    }
    pieces[0] = piece_of(flat, static_cast<std::size_t>(end - flat));
    work.pieces = {pieces, used};
    work.flags = post::kInline;
    work.remote_srq = peer.name.srqn;
    return channel->post(*peer.connection, work, sent);
}

post::Posted RdmEndpoint::Body::send_copied(Peer& peer, const Header& header, const iovec* iov,
                                            std::size_t count, std::uint64_t data, bool has_data,
                                            const Sent& wanted) {
    memory::Pool& buffers = channel->send_buffers();
    std::byte* const buffer = buffers.take();
    if (buffer == nullptr) return post::Posted::kFull;
    post::Work work;
    std::byte* end = put_header(buffer, header, data, has_data, work);
    end = gather(end, iov, count);
    const ibv_sge piece = piece_of(buffer, static_cast<std::size_t>(end - buffer), buffers.key());
    work.pieces = {&piece, 1};
    work.remote_srq = peer.name.srqn;
    Sent sent = wanted;
    sent.buffer = buffer;
    const post::Posted posted = channel->post(*peer.connection, work, sent);
    if (posted != post::Posted::kOk) buffers.give_back(buffer);
    return posted;
}

ssize_t RdmEndpoint::Body::send(const SendArguments& a) {
    if (a.iov_count == 1 && !(a.flags & (FI_MATCH_COMPLETE | FI_INJECT_COMPLETE)) &&
        send_small(a.iov->iov_base, a.iov->iov_len, a.to, a.tag, a.data, a.flags,
                   a.flags & FI_COMPLETION, a.context))
        return 0;
    return send_any(a);
}

ssize_t RdmEndpoint::Body::send_any(const SendArguments& a) {
    if (a.iov_count > kMaxSegments) return -FI_EINVAL;
    Peer* const peer = peer_at(a.to);
    if (peer == nullptr) [[unlikely]]
        return -FI_EINVAL;
    const std::size_t bytes = a.iov_count == 1 ? a.iov->iov_len : bytes_of(a.iov, a.iov_count);
    const bool is_tagged = a.flags & FI_TAGGED, has_data = a.flags & FI_REMOTE_CQ_DATA;
    std::uint8_t what = is_tagged ? Sent::kTagged : 0;
    if (a.flags & FI_COMPLETION) what |= Sent::kEntry;
    if (bindings.send_counter != nullptr) what |= Sent::kCount;
    const bool tells = what & (Sent::kEntry | Sent::kCount);

    if (can_send(*peer) && !(a.flags & FI_MATCH_COMPLETE)) [[likely]] {
        // What was copied is the application's again; it may be told so if that is all it asked.
        const bool early = tells && a.flags & FI_INJECT_COMPLETE;
        Sent sent;
        if (tells && !early) {
            sent.user = this;
            sent.context = a.context;
            sent.what = what;
        }
        const Header header{Kind::kEager,        tagged_flag(is_tagged), name.endpoint,
                            peer->name.endpoint, peer->send_sequence(),  a.tag};
        if (a.flags & FI_INJECT && bytes > options.inject_bytes) return -FI_EMSGSIZE;
        if (may_be_eager(*peer, bytes)) [[likely]] {
            const post::Posted posted =
                bytes <= options.inject_bytes
                    ? send_inline(*peer, header, a.iov, a.iov_count, bytes, a.data, has_data, sent)
                    : send_copied(*peer, header, a.iov, a.iov_count, a.data, has_data, sent);
            if (posted == post::Posted::kOk) [[likely]] {
                went(*peer, bytes);
                if (early) entry(what, false, a.context, 0, 0, 0, bindings.send_counter);
                return 0;
            }
            if (posted == post::Posted::kInvalid) return -FI_EINVAL;
        }
    }

    if (a.flags & FI_INJECT && bytes > options.inject_bytes) return -FI_EMSGSIZE;
    if (peer->failed != 0 && a.flags & FI_INJECT) return -peer->failed;
    if (peer->waiting.size() >= kMostWaiting) return -FI_EAGAIN;
    Transfer& transfer = transfers.take();
    transfer.body = this;
    transfer.peer = peer;
    transfer.step = Transfer::Step::kMessage;
    transfer.flags = a.flags;
    transfer.context = a.context;
    transfer.tag = a.tag;
    transfer.data = a.data;
    transfer.bytes = bytes;
    transfer.what = what;
    transfer.read = false;
    transfer.counter = bindings.send_counter;
    transfer.iov_count = a.iov_count;
    for (std::size_t i = 0; i < a.iov_count; ++i) {
        transfer.iov[i] = a.iov[i];
        transfer.descriptors[i] = a.descriptors != nullptr ? a.descriptors[i] : nullptr;
    }
    if (a.flags & FI_INJECT) {
        transfer.copy.resize(bytes);
        gather(transfer.copy.data(), a.iov, a.iov_count);
        transfer.iov[0] = {transfer.copy.data(), bytes};
        transfer.iov_count = 1;
    }
    if (!can_send(*peer) || !start(transfer)) wait(*peer, transfer);
    return 0;
}

bool RdmEndpoint::Body::start(Transfer& t) {
    if (t.flags & FI_RMA) return start_rma(t);
    if (t.flags & FI_ATOMIC) return start_atomic(t);
    Peer& peer = *t.peer;
    const bool is_tagged = t.flags & FI_TAGGED, has_data = t.flags & FI_REMOTE_CQ_DATA;
    const Header header{Kind::kEager,       tagged_flag(is_tagged), name.endpoint,
                        peer.name.endpoint, peer.send_sequence(),   t.tag};
    if (t.flags & FI_MATCH_COMPLETE || !may_be_eager(peer, t.bytes)) {
        if (!t.bulk.local.use(*domain->body().cache, t.iov.data(), t.iov_count,
                              t.descriptors.data(), t.bytes, IBV_ACCESS_REMOTE_READ)) {
            finish(t, errno, 0);
            return true;
        }
        t.step = Transfer::Step::kRts;
        ++counts.rendezvous;
        return send_rts(t);
    }
    Sent sent;
    if (t.what & (Sent::kEntry | Sent::kCount)) {
        sent.user = this;
        sent.context = t.context;
        sent.what = t.what;
    }
    const post::Posted posted =
        t.bytes <= options.inject_bytes
            ? send_inline(peer, header, t.iov.data(), t.iov_count, t.bytes, t.data, has_data, sent)
            : send_copied(peer, header, t.iov.data(), t.iov_count, t.data, has_data, sent);
    if (posted == post::Posted::kFull) return false;
    if (posted == post::Posted::kInvalid) {
        finish(t, EINVAL, 0);
        return true;
    }
    went(peer, t.bytes);
    transfers.give_back(t);
    return true;
}

bool Transfer::go() {
    switch (step) {
        case Step::kMessage:
            return body->start(*this);
        case Step::kRts:
            return body->send_rts(*this);
        case Step::kBulk:
            return bulk.post();
        case Step::kAnswer:
        case Step::kFin:
            return true;
    }
    return true;
}

void Transfer::fail(int error) {
    if (step == Step::kBulk)
        bulk.post();  // it sees that the connection has failed, and ends when all works have
    else
        body->finish(*this, error, 0);
}

}  // namespace heddle::protocol
