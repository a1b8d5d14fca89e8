// SPDX-License-Identifier: BSD-2-Clause
// The forms of an eager message: see eager_sender.h.
#include "protocol/eager/eager_sender.h"

#include <cstring>

#include "heddle/detail/assert.h"
#include "protocol/common/iov.h"
#include "protocol/shm/shm_ring.h"
#include "protocol/wire/message_writer.h"

namespace heddle::protocol {
namespace {

// What a message has before its payload, at most.
constexpr std::size_t kMostAround = sizeof(Header) + sizeof EagerMessage::data;

// Remote CQ data that does not fit into 32 bits travels behind the header.
bool is_wide(const EagerMessage& out) noexcept { return out.has_data && out.data > UINT32_MAX; }

// What comes before the payload. Returns its end.
std::byte* put_header(std::byte* to, const EagerMessage& out) noexcept {
    Header header = out.header;
    if (is_wide(out)) header.flags |= Header::kWideData;
    MessageWriter message({to, sizeof header + sizeof out.data}, header);
    if (is_wide(out)) message.add(out.data);
    return to + message.written().size();
}

std::byte* put_payload(std::byte* to, const EagerMessage& out) noexcept {
    return gather({out.iov, out.count}, 0, {to, out.bytes});
}

ibv_sge sge_of(const void* at, std::size_t bytes, std::uint32_t key = 0) noexcept {
    return {reinterpret_cast<std::uintptr_t>(at), static_cast<std::uint32_t>(bytes), key};
}

// To the receive queue of all that send to that endpoint.
void address_send(post::WorkRequest& work, const Peer& peer, const EagerMessage& out) noexcept {
    const bool immediate = out.has_data && !is_wide(out);
    work.opcode = immediate ? post::Opcode::kSendImm : post::Opcode::kSend;
    work.immediate = static_cast<std::uint32_t>(out.data);
    work.remote_srq = peer.name.srqn;
}

// Into the ring that the peer has for this endpoint, so many bytes with its header; the tail, which
// is put there, goes behind them. Returns the tail's end.
std::byte* address_ring(post::WorkRequest& work, const Peer& peer, const SendRing& to,
                        const EagerMessage& out, std::size_t bytes, std::byte* tail_at) noexcept {
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
bool takes(const SendRing& ring, const Peer& peer, const EagerMessage& out) noexcept {
    const std::size_t bytes = kMostAround + out.bytes;
    return ring.takes(bytes) && bytes + sizeof(RingTail) <= peer.connection->packet_bytes();
}

}  // namespace

EagerSender::Result EagerSender::post(Peer& peer, const EagerMessage& out,
                                      const EagerReport& report) {
    HEDDLE_DEBUG_ASSERT(peer.connection != nullptr, "a message goes to a peer that is connected");
    if (peer.shm != nullptr) [[unlikely]] {
        if (!peer.has_writes && peer.shm->takes(kMostAround + out.bytes))
            return put_into_shm(peer, out);
        const Result result = post_to_device(peer, out, report);
        if (result == Result::kLater || result == Result::kCopied) peer.has_writes = false;
        return result;
    }
    return post_to_device(peer, out, report);
}

EagerSender::Result EagerSender::put_into_shm(Peer& peer, const EagerMessage& out) {
    const std::size_t bytes = sizeof(Header) + (is_wide(out) ? sizeof out.data : 0) + out.bytes;
    std::byte* const to = peer.shm->reserve(bytes);
    if (to == nullptr) return Result::kFull;
    [[maybe_unused]] const std::byte* const end = put_payload(put_header(to, out), out);
    HEDDLE_DEBUG_ASSERT(end == to + bytes, "the message has the length that was reserved");
    const bool sleeps = peer.shm->publish(bytes, out.has_data && !is_wide(out),
                                          static_cast<std::uint32_t>(out.data));
    peer.outgoing.count_sequenced();
    flow_.count_sent(peer, out.bytes);
    ++core_.counts.shm.sent;
    if (sleeps) [[unlikely]]
        core_.wake(peer);
    return Result::kCopied;
}

[[gnu::always_inline]] inline EagerSender::Result EagerSender::post_to_device(
    Peer& peer, const EagerMessage& out, const EagerReport& report) {
    SendRing* ring = rings_.ring_at(peer);
    if (ring != nullptr && !takes(*ring, peer, out)) ring = nullptr;
    const bool is_inline = limits_.fits_inline(out.bytes);
    Reuse::Buffer* const reused =
        !is_inline && report.may_stay && out.count == 1
            ? reuse_.source(out.iov[0], ring != nullptr ? ReuseCosts::kRing : ReuseCosts::kSend)
            : nullptr;
    const bool is_early = report.may_be_early && reused == nullptr;
    WrContext sent;
    if (!is_early)
        sent = report.sent;
    else
        sent.what = WrContext::kOwn;  // it has been reported, and cannot be a second time
    const post::Posted posted = is_inline           ? post_inline(peer, out, ring, sent)
                                : reused != nullptr ? post_gathered(peer, out, ring, sent, *reused)
                                                    : post_copied(peer, out, ring, sent);
    if (posted != post::Posted::kOk) [[unlikely]]
        return posted == post::Posted::kFull ? Result::kFull : Result::kInvalid;
    count(peer, out, ring);
    return is_early ? Result::kCopied : Result::kLater;
}

void EagerSender::count(Peer& peer, const EagerMessage& out, SendRing* ring) noexcept {
    peer.outgoing.count_sequenced();
    if (ring != nullptr) {
        ring->count_sent();
        ++core_.counts.by_ring;
    }
    flow_.count_sent(peer, out.bytes);
    flow_.count_posted(peer, out.bytes);
    ++(limits_.fits_inline(out.bytes) ? core_.counts.inlined : core_.counts.eager);
}

EagerSender::Result EagerSender::send_reused(Peer& peer, const SendArguments& what,
                                             std::size_t bytes, Reuse::Buffer& reused) noexcept {
    const EagerMessage out = message_of(peer, what, bytes);
    WrContext sent;
    sent.context = what.context;
    sent.what = WrContext::kEntry;
    if (what.flags & FI_TAGGED) sent.what |= WrContext::kTagged;
    const post::Posted posted = post_gathered(peer, out, nullptr, sent, reused);
    if (posted != post::Posted::kOk)
        return posted == post::Posted::kFull ? Result::kFull : Result::kInvalid;
    count(peer, out, nullptr);
    return Result::kLater;
}

post::Posted EagerSender::post_inline(Peer& peer, const EagerMessage& out, SendRing* ring,
                                      const WrContext& sent) {
    std::byte flat[sizeof(Header) + sizeof out.data + kMostInline + sizeof(RingTail)];
    post::WorkRequest work;
    std::byte* end = put_header(flat, out);
    ibv_sge sges[2];
    std::size_t used = 1;
    if (ring != nullptr) {
        end = put_payload(end, out);
        end = address_ring(work, peer, *ring, out, static_cast<std::size_t>(end - flat), end);
    } else {
        address_send(work, peer, out);
        if (out.count == 1 && out.bytes != 0) {
            sges[1] = sge_of(out.iov[0].iov_base, out.bytes);
            used = 2;
        } else {
            end = put_payload(end, out);
        }
    }
    HEDDLE_DEBUG_ASSERT(end <= flat + sizeof flat, "what is inline fits into an entry");
    sges[0] = sge_of(flat, static_cast<std::size_t>(end - flat));
    work.sges = {sges, used};
    work.flags = post::kInline;
    WrContext context = sent;
    return core_.post(peer, work, context);
}

post::Posted EagerSender::post_copied(Peer& peer, const EagerMessage& out, SendRing* ring,
                                      const WrContext& wanted) {
    memory::Pool& buffers = requests_.send_buffers();
    std::byte* const buffer = buffers.take();
    if (buffer == nullptr) return post::Posted::kFull;
    post::WorkRequest work;
    std::byte* end = put_payload(put_header(buffer, out), out);
    if (ring != nullptr)
        end = address_ring(work, peer, *ring, out, static_cast<std::size_t>(end - buffer), end);
    else
        address_send(work, peer, out);
    HEDDLE_DEBUG_ASSERT(end <= buffer + buffers.bytes(), "a buffer holds any eager message");
    const ibv_sge sge = sge_of(buffer, static_cast<std::size_t>(end - buffer), buffers.key());
    work.sges = {&sge, 1};
    WrContext sent = wanted;
    sent.buffer = buffer;
    const post::Posted posted = core_.post(peer, work, sent);
    if (posted != post::Posted::kOk) [[unlikely]] {
        buffers.give_back(buffer);
        return posted;
    }
    ++core_.counts.copied_by_size[EndpointCounts::size_index(out.bytes)];
    return posted;
}

// From where it stands, behind a header of ours: two SGEs, and with a ring's tail three
// ("Exploiting application buffer reuse", section 3.2).
post::Posted EagerSender::post_gathered(Peer& peer, const EagerMessage& out, SendRing* ring,
                                        const WrContext& wanted, Reuse::Buffer& reused) {
    memory::Pool& buffers = requests_.send_buffers();
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
    ZcopyRequest& direct =
        requests_.take_zcopy(wanted.what, wanted.context, core_.bindings.send_counter);
    direct.reused = &reused;
    WrContext sent;
    sent.handler = &direct;
    sent.buffer = buffer;
    const post::Posted posted = core_.post(peer, work, sent);
    if (posted == post::Posted::kOk) [[likely]] {
        ++reused.in_flight;
        ++core_.counts.gathered;
        ++core_.counts.gathered_by_size[EndpointCounts::size_index(out.bytes)];
    } else {
        requests_.give_back(direct);
        buffers.give_back(buffer);
    }
    return posted;
}

}  // namespace heddle::protocol
