// SPDX-License-Identifier: BSD-2-Clause
// Messages out in fragments: see fragment_sender.h.
#include "protocol/eager/fragment_sender.h"

#include <rdma/fabric.h>

#include <algorithm>
#include <cerrno>

#include "heddle/detail/assert.h"
#include "protocol/common/iov.h"
#include "protocol/wire/message_writer.h"

namespace heddle::protocol {

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
    if (may_report_early(t.flags))
        requests_.finish(t, 0, 0);
    else
        requests_.end(t);
    return true;
}

// All fragments of a message have its sequence number: what follows it has the next, and so does
// not overtake it by way of a ring.
post::Posted FragmentSender::post_next(SendRequest& t) {
    memory::Pool& buffers = requests_.send_buffers();
    std::byte* const buffer = flow_.has_window(*t.peer) ? buffers.take() : nullptr;
    if (buffer == nullptr) return post::Posted::kFull;
    const std::size_t bytes = std::min(t.bytes - t.fragments_sent, core_.options.eager_bytes);
    const bool is_last = t.fragments_sent + bytes == t.bytes;
    const bool has_data = t.flags & FI_REMOTE_CQ_DATA;
    Header header{Kind::kFragment,
                  0,
                  core_.name.endpoint,
                  t.peer->name.endpoint,
                  t.peer->outgoing.send_sequence(),
                  t.tag};
    if (t.flags & FI_TAGGED) header.flags |= Header::kTagged;
    if (has_data) header.flags |= Header::kWideData;
    MessageWriter message({buffer, buffers.bytes()}, header);
    if (has_data) message.add(t.data);
    message.add(FragmentBody{t.bytes, t.fragments_sent});
    const std::size_t before = message.written().size();
    HEDDLE_ASSERT(before + bytes <= buffers.bytes(), "a buffer holds any fragment");
    gather({t.iov.data(), t.iov_count}, t.fragments_sent, {buffer + before, bytes});

    const ibv_sge sge{reinterpret_cast<std::uintptr_t>(buffer),
                      static_cast<std::uint32_t>(before + bytes), buffers.key()};
    post::WorkRequest work;
    work.opcode = post::Opcode::kSend;
    work.remote_srq = t.peer->name.srqn;
    work.sges = {&sge, 1};
    WrContext sent;  // if one fragment fails, the last one does, too, and tells
    if (!is_last) {
        sent.what = WrContext::kOwn;
    } else if (!may_report_early(t.flags)) {
        sent.what = t.report.what;
        sent.context = t.report.context;
    }
    sent.buffer = buffer;
    const post::Posted posted = core_.post(*t.peer, work, sent);
    if (posted != post::Posted::kOk) {
        buffers.give_back(buffer);
        return posted;
    }
    if (t.fragments_sent == 0) {
        t.owner = this;  // now there is no other way for it
        flow_.count_sent(*t.peer, t.bytes);
        ++core_.counts.eager;
        ++core_.counts.copied_by_size[EndpointCounts::size_index(t.bytes)];
    }
    t.fragments_sent += bytes;
    flow_.count_posted(*t.peer);
    if (is_last) t.peer->outgoing.count_sequenced();
    return posted;
}

}  // namespace heddle::protocol
