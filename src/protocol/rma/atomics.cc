// SPDX-License-Identifier: BSD-2-Clause
// Atomics: the target's endpoint does them when it makes progress, and answers. An HCA's own
// atomics are atomic among themselves only, so a mixture of both would not be; and most types and
// operations of libfabric an HCA does not know.
#include "protocol/rma/atomics.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>

#include <cstring>

#include "heddle/detail/assert.h"
#include "protocol/common/atomic_ops.h"
#include "protocol/wire/message_writer.h"

namespace heddle::protocol {

ssize_t Atomics::post(const AtomicArguments& a) {
    const std::size_t bytes = a.count * atomic_size(a.datatype);
    HEDDLE_ASSERT(bytes != 0, "the provider knows the datatype, and refuses no elements");
    HEDDLE_ASSERT((a.compare != nullptr) == (atomic_operands(a.op) == 2),
                  "the provider knows which operations compare");
    AtomicBody request;
    request.address = a.address;
    request.key = static_cast<std::uint32_t>(a.key);
    request.count = a.count;
    request.datatype = a.datatype;
    request.op = a.op;
    if (a.results != nullptr) request.flags |= AtomicBody::kFetch;
    if (a.compare != nullptr) request.flags |= AtomicBody::kCompare;
    const std::size_t operands = a.op == FI_ATOMIC_READ ? 0 : bytes;
    const std::size_t compares = a.compare != nullptr ? bytes : 0;
    if (a.results == nullptr && (a.op == FI_ATOMIC_READ || a.result_count != 0)) return -FI_EINVAL;
    const std::size_t most = requests_.send_buffers().bytes();
    if (sizeof(Header) + sizeof request + operands + compares > most ||
        sizeof(Header) + sizeof(AtomicReplyBody) + bytes > most)
        return -FI_EMSGSIZE;
    Peer* const peer = core_.peers.at(a.to);
    if (peer == nullptr || a.result_count > kMaxSegments) return -FI_EINVAL;
    if (peer->failed != 0 && a.flags & FI_INJECT) return -peer->failed;
    SendRequest& t = requests_.take(*peer, *this);
    t.report.read = a.results != nullptr;
    t.flags = (a.flags & ~(FI_RMA | FI_TAGGED)) | FI_ATOMIC;
    t.report.context = a.context;
    t.bytes = bytes;
    t.report.counter = t.report.read ? core_.bindings.read_counter : core_.bindings.write_counter;
    if (a.flags & FI_COMPLETION) t.report.what |= WrContext::kEntry;
    if (t.report.counter != nullptr) t.report.what |= WrContext::kCount;
    t.results.count = a.result_count;
    for (std::size_t i = 0; i < a.result_count; ++i)
        t.results.iov[i] = a.results[i];
    request.operation = SlotPool<SendRequest>::id(t);
    const std::size_t whole = sizeof(Header) + sizeof request + operands + compares;
    const auto write = [&](std::span<std::byte> room) {
        return MessageWriter(room, header_to(*peer))
            .add(request)
            .add_bytes({static_cast<const std::byte*>(a.operand), operands})
            .add_bytes({static_cast<const std::byte*>(a.compare), compares})
            .written();
    };
    ++core_.counts.atomics;
    if (std::byte room[kMostControlBytes]; whole <= sizeof room && CoreServices::can_send(*peer))
        if (send(t, write(room))) return 0;
    t.copy.resize(whole);
    [[maybe_unused]] const std::size_t written = write(t.copy).size();
    HEDDLE_ASSERT(written == whole, "the message has its whole length");
    requests_.start(t);
    return 0;
}

// With the sequence number of the moment.
Header Atomics::header_to(const Peer& peer) const noexcept {
    return {Kind::kAtomic,
            0,
            core_.name.endpoint,
            peer.name.endpoint,
            peer.outgoing.send_sequence(),
            0};
}

// False: no room.
bool Atomics::start(SendRequest& t) {
    HEDDLE_ASSERT(t.step == SendRequest::Step::kMessage && !t.reply.is_open(),
                  "an atomic is sent once");
    HEDDLE_ASSERT(t.copy.size() >= sizeof(Header) + sizeof(AtomicBody), "post() has written it");
    MessageWriter(t.copy, header_to(*t.peer));
    return send(t, t.copy);
}

bool Atomics::send(SendRequest& t, std::span<const std::byte> message) {
    if (!core_.send_control(*t.peer, message)) return false;
    t.peer->outgoing.count_sequenced();
    t.step = SendRequest::Step::kAnswer;
    t.reply = OutstandingReply(*t.peer);
    return true;
}

void Atomics::on_request(Peer& peer, const Message& message) {
    const AtomicBody& a = message.atomic;
    const std::size_t bytes = a.count * atomic_size(a.datatype);
    const bool fetch = a.flags & AtomicBody::kFetch, compare = a.flags & AtomicBody::kCompare;
    HEDDLE_ASSERT(message.header.kind == Kind::kAtomic, "the caller has looked at the kind");
    HEDDLE_ASSERT(message.payload.size() == bytes * atomic_operands(a.op),
                  "parse() refuses a request with more or fewer operands");
    AtomicReplyBody reply;
    reply.operation = a.operation;
    std::vector<std::byte> values;
    const std::uint64_t needed =
        (a.op != FI_ATOMIC_READ ? FI_REMOTE_WRITE : 0) | (fetch || compare ? FI_REMOTE_READ : 0);
    const auto apply = [&] {
        if (fetch) values.resize(bytes);
        const std::byte* const operand = a.op == FI_ATOMIC_READ ? nullptr : message.payload.data();
        const std::byte* const compares =
            compare ? message.payload.data() + (operand != nullptr ? bytes : 0) : nullptr;
        atomic_apply(a.datatype, a.op,
                     reinterpret_cast<void*>(static_cast<std::uintptr_t>(a.address)), operand,
                     compares, fetch ? values.data() : nullptr, a.count);
    };
    if (fetch && sizeof(Header) + sizeof reply + bytes > requests_.send_buffers().bytes())
        reply.status = EMSGSIZE;  // the initiator has larger buffers than we
    else if (a.address % std::min<std::size_t>(atomic_size(a.datatype), 8) != 0 ||
             !regions_.with(a.key, a.address, bytes, needed, apply))
        reply.status = EACCES;
    reply.bytes = static_cast<std::uint32_t>(values.size());
    Counter* const counter = a.op == FI_ATOMIC_READ ? core_.bindings.remote_read_counter
                                                    : core_.bindings.remote_write_counter;
    if (counter != nullptr && reply.status == 0) counter->add(true);
    core_.control(peer, Kind::kAtomicReply, reply, values);
}

void Atomics::on_reply(Peer& peer, const Message& message) {
    SendRequest* const t = requests_.find_awaiting(message.atomic_reply.operation, peer);
    if (t == nullptr || !(t->flags & FI_ATOMIC) ||
        message.payload.size() !=
            (t->report.read && message.atomic_reply.status == 0 ? t->bytes : 0))
        return core_.protocol_error(peer);
    t->reply.reset();
    t->step = SendRequest::Step::kFin;
    std::span<const std::byte> values = message.payload;
    for (std::size_t i = 0; i < t->results.count; ++i) {
        const std::size_t bytes = std::min(values.size(), t->results.iov[i].iov_len);
        if (bytes != 0) std::memcpy(t->results.iov[i].iov_base, values.data(), bytes);
        values = values.subspan(bytes);
    }
    HEDDLE_ASSERT(values.empty(), "the provider has as many results as operands");
    requests_.finish(*t, errno_of(message.atomic_reply.status), 0);
}

}  // namespace heddle::protocol
