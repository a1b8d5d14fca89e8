// SPDX-License-Identifier: BSD-2-Clause
// The ways of messages out: to a tuple's queue, at once with their payload (eager/), in one SEND or
// in fragments, or, above these limits or where the peer has no credit left for such payload, by
// rendezvous (rndv/).
#include <rdma/fi_errno.h>

#include "protocol/send_fast_path.h"

namespace heddle::protocol {
namespace {

constexpr std::size_t kMostWaiting = 256;  // operations of a peer; then -FI_EAGAIN

std::size_t bytes_of(const iovec* iov, std::size_t count) noexcept {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i)
        bytes += iov[i].iov_len;
    return bytes;
}

// Not one that must meet its receive, or of whose end nothing is said. What was injected has to be
// copied.
bool can_be_plain(std::uint64_t flags) noexcept {
    return (flags & (FI_COMPLETION | FI_MATCH_COMPLETE | FI_INJECT | FI_INJECT_COMPLETE)) ==
           FI_COMPLETION;
}

}  // namespace

ssize_t EndpointImpl::send(const SendArguments& a) {
    if (a.iov_count != 1 || a.iov->iov_len > options.eager_bytes ||
        (a.flags & FI_INJECT && a.iov->iov_len > options.inject_bytes))
        return send_any(a);
    const bool wants_entry = a.flags & FI_COMPLETION && bindings.transmit != nullptr;
    const bool is_early = may_report_early(a.flags);
    if (!is_early && !(wants_entry && can_be_plain(a.flags))) return send_any(a);
    const EntryOfSend wanted = !wants_entry ? EntryOfSend::kNone
                               : is_early   ? EntryOfSend::kWhenCopied
                                            : EntryOfSend::kWhenDone;
    return send_small(a.iov->iov_base, a.iov->iov_len, a.to, a.tag, a.data, a.flags, wanted,
                      a.context)
               ? 0
               : send_any(a);
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
    if (sent == 0 && bytes >= tuples->least_bytes()) tuples->sender.note(*peer, a);
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

EagerReport EndpointImpl::report_of(std::uint64_t flags, std::uint8_t what,
                                    void* context) noexcept {
    EagerReport report;
    if (what & (WrContext::kEntry | WrContext::kCount)) {
        report.sent.user = this;
        report.sent.context = context;
        report.sent.what = what;
        report.may_be_early = may_report_early(flags);
        if (bindings.transmit != nullptr) bindings.transmit->make_room();
    }
    return report;
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
    // Others wait already: for room or credit, which a program that only sends does not see come.
    if (!peer.waiting.empty() && !tuples) [[unlikely]]
        progress(kPolledAtOnce);
    if (can_send(peer) && !(a.flags & FI_MATCH_COMPLETE)) [[likely]] {
        if (flow_.may_send(peer, bytes)) [[likely]] {
            EagerReport report = report_of(a.flags, what, a.context);
            // What was injected is the application's again when this returns: it is copied.
            report.may_stay = tells && !(a.flags & (FI_INJECT_COMPLETE | FI_INJECT));
            EagerSender::Result result = eager_.send(peer, a, bytes, report);
            // A program that only sends makes no progress, and messages may have left meanwhile. To
            // see that costs less than a request that waits. With tuple queues a tuple could begin
            // to use its queue then: this message would be behind those that come by it.
            if (result == EagerSender::Result::kFull && !tuples) [[unlikely]] {
                progress(kPolledAtOnce);
                if (can_send(peer)) result = eager_.send(peer, a, bytes, report);
            }
            if (result == EagerSender::Result::kCopied) [[likely]]
                entry(what, false, a.context, 0, 0, 0, bindings.send_counter);
            if (result == EagerSender::Result::kInvalid) return -FI_EINVAL;
            if (result != EagerSender::Result::kFull) return 0;
        }
    }
    if (peer.failed != 0 && a.flags & FI_INJECT) return -peer.failed;
    if (peer.waiting.size() >= kMostWaiting) return -FI_EAGAIN;
    SendRequest& transfer = request_of(peer, a, bytes);
    requests.start(transfer);
    return 0;
}

bool EndpointImpl::start(SendRequest& t) {
    Peer& peer = *t.peer;
    const bool must_meet = t.flags & FI_MATCH_COMPLETE || t.late.is_late;
    if (must_meet || !flow_.may_send(peer, t.bytes)) {
        // One copy by the receiver's processor costs less than two, and no registration.
        const bool is_read =
            peer.shm != nullptr && peer.shm->is_memory_read() && !(t.flags & FI_INJECT_COMPLETE);
        return !must_meet && !is_read && flow_.may_send_fragments(peer, t.bytes)
                   ? fragment_sender_.start(t)
                   : rendezvous_.start(t);
    }
    switch (eager_.send(peer, t, t.bytes, report_of(t.flags, t.report.what, t.report.context))) {
        case EagerSender::Result::kFull:
            return false;
        case EagerSender::Result::kInvalid:
            requests.finish(t, EINVAL, 0);
            break;
        case EagerSender::Result::kCopied:
            requests.finish(t, 0, 0);
            break;
        case EagerSender::Result::kLater:
            requests.end(t);
    }
    return true;
}

}  // namespace heddle::protocol
