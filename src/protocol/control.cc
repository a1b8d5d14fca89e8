// SPDX-License-Identifier: BSD-2-Clause
// Peers, connections to them when something is sent for the first time, what waits for these, and
// the small messages of the protocol's own.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>

#include "heddle/error.h"
#include "protocol/tuples.h"

namespace heddle::protocol {

Peer* RdmEndpoint::Body::peer_at(std::uint64_t address) {
    if (addresses.removals() != removals_seen) [[unlikely]] {
        removals_seen = addresses.removals();
        std::fill_n(peer_by_address.get(), addresses_known, &nobody);
        for (const auto& peer : peers)
            peer->address = AddressVector::kNone;
    }
    if (address < addresses_known && peer_by_address[address] != &nobody) [[likely]]
        return peer_by_address[address];
    const Name* const found = addresses.find(address);
    if (found == nullptr) return nullptr;
    Peer& peer = peer_of(*found);
    if (addresses_known <= address) {
        auto more = std::make_unique<Peer*[]>(addresses.size());
        std::fill_n(std::copy_n(peer_by_address.get(), addresses_known, more.get()),
                    addresses.size() - addresses_known, &nobody);
        peer_by_address = std::move(more);
        addresses_known = addresses.size();
    }
    return peer_by_address[address] = &peer;
}

Peer& RdmEndpoint::Body::peer_of(const Name& wanted) {
    Peer*& known = peer_by_name[wanted];
    if (known == nullptr) {
        peers.push_back(std::make_unique<Peer>());
        known = peers.back().get();
        known->name = wanted;
        known->number = static_cast<std::uint32_t>(peers.size() - 1);
        known->srq = htobe32(wanted.srqn);
        known->expected = start_of({Kind::kEager, 0, wanted.endpoint, name.endpoint, 0, 0});
        known->next_start = start_of({Kind::kEager, 0, name.endpoint, wanted.endpoint, 0, 0});
    }
    if (known->address == AddressVector::kNone) known->address = addresses.find(wanted);
    return *known;
}

// Who sent to that target QP. The number of a QP that is gone may be another's later.
[[gnu::noinline]] Peer* RdmEndpoint::Body::source(std::uint32_t qpn, std::uint16_t endpoint) {
    const std::uint64_t key = std::uint64_t{qpn} << 16 | endpoint;
    if (connector.removals() != source_removals) [[unlikely]] {
        source_removals = connector.removals();
        sources.clear();
        last_source = &nobody;
    }
    if (last_source != &nobody && last_source_qpn == qpn && last_source->name.endpoint == endpoint)
        return last_source;
    Peer*& known = sources[key];
    if (known == nullptr) {
        const std::optional<Name> asker = connector.asker(qpn);
        if (!asker) {
            sources.erase(key);
            return nullptr;
        }
        Name name_there = *asker;
        name_there.endpoint = endpoint;
        known = &peer_of(name_there);
    }
    last_source_qpn = qpn;
    return last_source = known;
}

void RdmEndpoint::Body::connect(Peer& peer) {
    if (peer.connection != nullptr || peer.failed != 0) return;
    const auto make = [&] {
        try {
            return &channel->connection(name, peer.name);
        } catch (const VerbsError& error) {
            if (error.error() != ENOMEM) throw;
            domain->body().give_up_held();  // its queue counts against RLIMIT_MEMLOCK
            return &channel->connection(name, peer.name);
        }
    };
    try {
        peer.connection = make();
        ++counts.connections;
        look_if_open(peer);
        if (peer.connection->failed()) fail_peer(peer, peer.connection->error());
    } catch (const VerbsError& error) {
        fail_peer(peer, error.error());
    }
}

void RdmEndpoint::Body::wait(Peer& peer, Waiting& waiting) {
    peer.waiting.push_back(&waiting);
    peer.to_number += waiting.is_numbered();
    shut(peer);
    if (peer.failed != 0) {
        fail_peer(peer, peer.failed);
        return;
    }
    if (peer.waiting.size() == 1) blocked.push_back(&peer);
    connect(peer);
}

void RdmEndpoint::Body::flush(Peer& peer) {
    while (!peer.waiting.empty() && peer.connection != nullptr && peer.connection->ready()) {
        const bool numbered = peer.waiting.front()->is_numbered();
        if (!peer.waiting.front()->go()) return;
        peer.waiting.pop_front();
        peer.to_number -= numbered;
    }
    look_if_open(peer);
}

void RdmEndpoint::Body::fail_peer(Peer& peer, int error) {
    peer.failed = error;
    shut(peer);
    std::list<Waiting*> waiting;
    waiting.swap(peer.waiting);
    peer.to_number = 0;
    for (Waiting* const each : waiting)
        each->fail(error);
    if (tuples) {
        tuples->sender.fail(peer, error);
        tuples->receiver.fail(peer);
    }
    // What it had written before is in its ring, in front of the receives.
    if (peer.receive_ring != nullptr) take_from_ring(peer, ~0u);
    fail_receives(peer);
    if (peer.answers == 0) return;
    transfers.for_each_in_use([&](Transfer& transfer) {
        if (transfer.peer == &peer && transfer.step == Transfer::Step::kAnswer)
            finish(transfer, error, 0);
    });
    receives.for_each_in_use([&](Receive& receive) {
        if (receive.peer == &peer && receive.by_put && !receive.queued)
            rendezvous_done(receive, error, 0);
    });
}

bool RdmEndpoint::Body::send_control(Peer& peer, std::span<const std::byte> bytes) {
    post::WorkRequest work;
    work.opcode = post::Opcode::kSend;
    work.remote_srq = peer.name.srqn;
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(bytes.data()),
                  static_cast<std::uint32_t>(bytes.size()), 0};
    work.sges = {&piece, 1};
    Sent sent;
    sent.what = Sent::kOwn;
    if (bytes.size() <= channel->max_inline()) {
        work.flags = post::kInline;
        return channel->post(*peer.connection, work, sent) == post::Posted::kOk;
    }
    memory::Pool& buffers = channel->send_buffers();
    sent.buffer = buffers.take();
    if (sent.buffer == nullptr) return false;
    std::memcpy(sent.buffer, bytes.data(), bytes.size());
    piece.addr = reinterpret_cast<std::uintptr_t>(sent.buffer);
    piece.lkey = buffers.key();
    if (channel->post(*peer.connection, work, sent) == post::Posted::kOk) return true;
    buffers.give_back(sent.buffer);
    return false;
}

void RdmEndpoint::Body::control(Peer& peer, Kind kind, std::span<const std::byte> contents,
                                std::span<const std::byte> more, std::uint64_t tag) {
    if (peer.failed != 0) return;  // nobody is there to hear it
    const Header header{kind, 0, name.endpoint, peer.name.endpoint, 0, tag};
    std::vector<std::byte> bytes(sizeof header + contents.size() + more.size());
    std::memcpy(bytes.data(), &header, sizeof header);
    if (!contents.empty())
        std::memcpy(bytes.data() + sizeof header, contents.data(), contents.size());
    if (!more.empty())
        std::memcpy(bytes.data() + sizeof header + contents.size(), more.data(), more.size());
    control_message(peer, std::move(bytes));
}

void RdmEndpoint::Body::control_message(Peer& peer, std::vector<std::byte>&& bytes) {
    if (can_send(peer) && send_control(peer, bytes)) return;
    auto* const waiting = new Control;
    waiting->body = this;
    waiting->peer = &peer;
    waiting->bytes = std::move(bytes);
    wait(peer, *waiting);
}

bool Control::go() {
    if (!body->send_control(*peer, bytes)) return false;
    delete this;
    return true;
}

void Control::fail(int) { delete this; }

}  // namespace heddle::protocol
