// SPDX-License-Identifier: BSD-2-Clause
// Both sides of an endpoint's tuple queues, as the endpoint calls them: see tuples.h.
#include "protocol/tupleq/tuples.h"

#include "heddle/detail/assert.h"

namespace heddle::protocol {

Tuples::Tuples(Core& core, RequestPool& requests, Receives& receives, Delivery& delivery)
    : device(core),
      receiver(core, receives, delivery, device, counts_),
      sender(core, requests, device, counts_),
      least_bytes_(core.options.rendezvous == Rendezvous::kTuple ? 0
                                                                 : core.options.most_copied() + 1) {
}

bool Tuples::are_possible(const Core& core) noexcept {
    const bool wanted = core.options.rendezvous == Rendezvous::kTuple ||
                        core.options.rendezvous == Rendezvous::kAuto;
    return wanted && core.channel->xrc() && core.options.tuples.queues != 0;
}

void Tuples::decline(Core& core, Peer& peer, const Message& message) {
    if (message.header.kind != Kind::kTupleOpen) return core.protocol_error(peer);
    TupleAnswerBody answer;
    answer.tuple = message.tuple_open.sender;
    answer.declined = static_cast<std::uint32_t>(TupleReason::kOther);
    core.control(peer, Kind::kTupleAnswer, answer);
}

void Tuples::on_message(Peer& peer, const Message& m) {
    switch (m.header.kind) {
        case Kind::kTupleOpen:
            return receiver.got_open(peer, m.header.tag, m.tuple_open);
        case Kind::kTupleBegin:
            return receiver.got_begin(peer, m.tuple_begin);
        case Kind::kTupleEnd:
            return receiver.got_end(peer, m.tuple_begin);
        case Kind::kTupleDrained:
            return receiver.got_drained(peer, m.tuple_drained);
        case Kind::kTupleAnswer:
            return sender.got_answer(peer, m.tuple_answer);
        case Kind::kTupleRevoke:
            return sender.got_revoke(peer, m.tuple_revoke);
        case Kind::kTupleClosed:
            return sender.got_closed(peer, m.tuple_closed);
        default:
            HEDDLE_ASSERT(false, "the endpoint gives each kind to its part");
    }
}

void Tuples::on_peer_failed(Peer& peer, int error) {
    sender.fail(peer, error);
    receiver.fail(peer);
}

void Tuples::progress() {
    device.poll();
    sender.progress();
    receiver.progress();
}

void Tuples::drain() {
    while (device.poll() != 0) {
    }
}

bool Tuples::close_all() {
    const bool all_sent = sender.close_all();
    return receiver.close_all() && all_sent;
}

}  // namespace heddle::protocol
