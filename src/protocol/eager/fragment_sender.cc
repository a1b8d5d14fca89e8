// SPDX-License-Identifier: BSD-2-Clause
// Messages out in fragments: see fragment_sender.h.
#include "protocol/eager/fragment_sender.h"

#include <rdma/fabric.h>

#include <algorithm>
#include <cerrno>

#include "heddle/detail/assert.h"
#include "protocol/common/iov.h"
#include "protocol/shm/shm_ring.h"
#include "protocol/wire/message_writer.h"

namespace heddle::protocol {
namespace {

std::size_t bytes_before(const SendRequest& t) noexcept {
    return sizeof(Header) + (t.flags & FI_REMOTE_CQ_DATA ? sizeof t.data : 0) +
           sizeof(FragmentBody);
}

}  // namespace

bool FragmentSender::start(SendRequest& t) {
    HEDDLE_ASSERT(t.step == SendRequest::Step::kMessage && t.bytes != 0);
    while (t.fragments_sent < t.bytes) {
        const post::Posted posted = post_next(t);
        if (posted == post::Posted::kFull) return false;
        if (posted == post::Posted::kInvalid) {
            HEDDLE_ASSERT(t.fragments_sent == 0, "the fragments of a message are alike");
            requests_.finish(t, EINVAL, 0);
            return true;
        }
    }
    if (t.by_shm || may_report_early(t.flags))
        requests_.finish(t, 0, 0);
    else
        requests_.end(t);
    return true;
}

// All fragments of a message have its sequence number: what follows it has the next, and so does
// not overtake it by way of a ring. So all go the same way.
post::Posted FragmentSender::post_next(SendRequest& t) {
    Peer& peer = *t.peer;
    if (t.fragments_sent == 0)
        t.by_shm = peer.shm != nullptr && !peer.has_writes &&
                   peer.shm->takes(requests_.send_buffers().bytes());
    const std::size_t bytes = std::min(t.bytes - t.fragments_sent, core_.options.eager_bytes);
    const bool is_last = t.fragments_sent + bytes == t.bytes;
    const post::Posted posted =
        t.by_shm ? put_into_shm(t, bytes, is_last) : post_by_buffer(t, bytes, is_last);
    if (posted != post::Posted::kOk) return posted;
    if (t.fragments_sent == 0) {
        t.owner = this;  // now there is no other way for it
        flow_.count_sent(peer, t.bytes);
        if (!t.by_shm) {
            ++core_.counts.eager;
            ++core_.counts.copied_by_size[EndpointCounts::size_index(t.bytes)];
            peer.has_writes = false;
        }
    }
    t.fragments_sent += bytes;
    if (is_last) peer.outgoing.count_sequenced();
    return posted;
}

// Writes the next fragment, of so many bytes, with what comes before it. Returns its end.
std::byte* FragmentSender::write(const SendRequest& t, std::size_t bytes,
                                 std::span<std::byte> room) const noexcept {
    const bool has_data = t.flags & FI_REMOTE_CQ_DATA;
    Header header{Kind::kFragment,
                  0,
                  core_.name.endpoint,
                  t.peer->name.endpoint,
                  t.peer->outgoing.send_sequence(),
                  t.tag};
    if (t.flags & FI_TAGGED) header.flags |= Header::kTagged;
    if (has_data) header.flags |= Header::kWideData;
    MessageWriter message(room, header);
    if (has_data) message.add(t.data);
    message.add(FragmentBody{t.bytes, t.fragments_sent});
    const std::size_t before = message.written().size();
    HEDDLE_ASSERT(before + bytes <= room.size(), "a buffer holds any fragment");
    return gather({t.iov.data(), t.iov_count}, t.fragments_sent, room.subspan(before, bytes));
}

post::Posted FragmentSender::put_into_shm(const SendRequest& t, std::size_t bytes, bool is_last) {
    const std::size_t whole = bytes_before(t) + bytes;
    ShmSender& ring = *t.peer->shm;
    std::byte* const at = ring.reserve(whole);
    if (at == nullptr) return post::Posted::kFull;
    [[maybe_unused]] const std::byte* const end = write(t, bytes, {at, whole});
    HEDDLE_DEBUG_ASSERT(end == at + whole, "a fragment has the length that was reserved");
    if (ring.publish(whole, false, 0)) core_.wake(*t.peer);
    if (is_last) ++core_.counts.shm.sent;
    return post::Posted::kOk;
}

post::Posted FragmentSender::post_by_buffer(const SendRequest& t, std::size_t bytes, bool is_last) {
    memory::Pool& buffers = requests_.send_buffers();
    std::byte* const buffer = flow_.has_window(*t.peer) ? buffers.take() : nullptr;
    if (buffer == nullptr) return post::Posted::kFull;
    const std::byte* const end = write(t, bytes, {buffer, buffers.bytes()});
    const ibv_sge sge{reinterpret_cast<std::uintptr_t>(buffer),
                      static_cast<std::uint32_t>(end - buffer), buffers.key()};
    post::WorkRequest work;
    work.opcode = post::Opcode::kSend;
    work.remote_srq = t.peer->name.srqn;
    work.sges = {&sge, 1};
    WrContext sent;  // if one fragment fails, the last one does, too, and tells
    const bool tells = t.report.what & (WrContext::kEntry | WrContext::kCount);
    if (!is_last || (tells && may_report_early(t.flags))) {
        sent.what = WrContext::kOwn;
    } else if (tells) {
        sent.what = t.report.what;
        sent.context = t.report.context;
    }
    sent.buffer = buffer;
    const post::Posted posted = core_.post(*t.peer, work, sent);
    if (posted == post::Posted::kOk)
        flow_.count_fragment_posted(*t.peer, bytes);
    else
        buffers.give_back(buffer);
    return posted;
}

}  // namespace heddle::protocol
