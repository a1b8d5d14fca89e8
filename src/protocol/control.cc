// SPDX-License-Identifier: BSD-2-Clause
// Peers, connections to them when something is sent for the first time, what waits for these, and
// the small messages of the protocol's own.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "protocol/tuples.h"
#include "protocol/wire/message_writer.h"

namespace heddle::protocol {
namespace {

// A message of the protocol's own that waits for room.
class PendingMessage final : public PendingOp {
public:
    PendingMessage(EndpointImpl& endpoint, Peer& peer, std::vector<std::byte> bytes) noexcept
        : endpoint_(endpoint), peer_(peer), bytes_(std::move(bytes)) {}
    bool try_post() override { return endpoint_.send_control(peer_, bytes_); }
    void fail(int) override {}

private:
    EndpointImpl& endpoint_;
    Peer& peer_;
    const std::vector<std::byte> bytes_;
};

}  // namespace

Peer* EndpointImpl::peer_at(std::uint64_t address) {
    if (addresses.removals() != removals_seen) [[unlikely]] {
        removals_seen = addresses.removals();
        std::fill_n(peer_by_address.get(), addresses_known, &nobody);
        for (const auto& peer : peers)
            peer->address = AddressVector::kNone;
    }
    if (address < addresses_known && peer_by_address[address] != &nobody) [[likely]]
        return peer_by_address[address];
    const EndpointAddress* const found = addresses.find(address);
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

Peer& EndpointImpl::peer_of(const EndpointAddress& wanted) {
    Peer*& known = peer_by_name[wanted];
    if (known == nullptr) {
        peers.push_back(std::make_unique<Peer>());
        known = peers.back().get();
        known->name = wanted;
        known->number = static_cast<std::uint32_t>(peers.size() - 1);
        known->srq = htobe32(wanted.srqn);
        known->incoming.expected =
            start_of({Kind::kEager, 0, wanted.endpoint, name.endpoint, 0, 0});
        known->outgoing.next_start =
            start_of({Kind::kEager, 0, name.endpoint, wanted.endpoint, 0, 0});
    }
    if (known->address == AddressVector::kNone) known->address = addresses.find(wanted);
    return *known;
}

// Who sent to that target QP. The number of a QP that is gone may be another's later.
[[gnu::noinline]] Peer* EndpointImpl::source(std::uint32_t qpn, std::uint16_t endpoint) {
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
        const std::optional<EndpointAddress> asker = connector.asker(qpn);
        if (!asker) {
            sources.erase(key);
            return nullptr;
        }
        EndpointAddress name_there = *asker;
        name_there.endpoint = endpoint;
        known = &peer_of(name_there);
    }
    last_source_qpn = qpn;
    return last_source = known;
}

void EndpointImpl::connect(Peer& peer) {
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

void EndpointImpl::wait(Peer& peer, PendingPtr op) {
    peer.waiting_sequenced += op->is_sequenced();
    peer.waiting.push_back(std::move(op));
    shut(peer);
    if (peer.failed != 0) {
        fail_peer(peer, peer.failed);
        return;
    }
    if (peer.waiting.size() == 1) blocked.push_back(&peer);
    connect(peer);
}

void EndpointImpl::flush(Peer& peer) {
    while (!peer.waiting.empty() && peer.connection != nullptr && peer.connection->ready()) {
        const PendingOp* const first = peer.waiting.front().get();
        const bool sequenced = first->is_sequenced();
        if (!peer.waiting.front()->try_post()) return;
        HEDDLE_ASSERT(!peer.waiting.empty() && peer.waiting.front().get() == first,
                      "an operation that waited has changed the list of its peer");
        peer.waiting.pop_front();
        peer.waiting_sequenced -= sequenced;
    }
    look_if_open(peer);
}

void EndpointImpl::fail_peer(Peer& peer, int error) {
    peer.failed = error;
    shut(peer);
    PendingList waiting;
    waiting.swap(peer.waiting);
    peer.waiting_sequenced = 0;
    for (const PendingPtr& op : waiting)
        op->fail(error);
    if (tuples) {
        tuples->sender.fail(peer, error);
        tuples->receiver.fail(peer);
    }
    // What it had written before is in its ring, in front of the receives.
    if (peer.receive_ring != nullptr) take_from_ring(peer, ~0u);
    fail_receives(peer);
    if (peer.outstanding_replies == 0) return;
    send_requests.for_each_in_use([&](SendRequest& transfer) {
        if (transfer.peer == &peer && transfer.step == SendRequest::Step::kAnswer)
            finish(transfer, error, 0);
    });
    receives.for_each_in_use([&](Receive& receive) {
        if (receive.peer == &peer && receive.by_put && !receive.queued)
            rendezvous_done(receive, error, 0);
    });
}

bool EndpointImpl::send_control(Peer& peer, std::span<const std::byte> bytes) {
    post::WorkRequest work;
    work.opcode = post::Opcode::kSend;
    work.remote_srq = peer.name.srqn;
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(bytes.data()),
                static_cast<std::uint32_t>(bytes.size()), 0};
    work.sges = {&sge, 1};
    WrContext sent;
    sent.what = WrContext::kOwn;
    if (bytes.size() <= channel->max_inline()) {
        work.flags = post::kInline;
        return channel->post(*peer.connection, work, sent) == post::Posted::kOk;
    }
    memory::Pool& buffers = channel->send_buffers();
    sent.buffer = buffers.take();
    if (sent.buffer == nullptr) return false;
    std::memcpy(sent.buffer, bytes.data(), bytes.size());
    sge.addr = reinterpret_cast<std::uintptr_t>(sent.buffer);
    sge.lkey = buffers.key();
    if (channel->post(*peer.connection, work, sent) == post::Posted::kOk) return true;
    buffers.give_back(sent.buffer);
    return false;
}

void EndpointImpl::control(Peer& peer, Kind kind, std::span<const std::byte> contents,
                           std::span<const std::byte> more, std::uint64_t tag) {
    if (peer.failed != 0) return;  // nobody is there to hear it
    const Header header{kind, 0, name.endpoint, peer.name.endpoint, 0, tag};
    std::vector<std::byte> bytes(sizeof header + contents.size() + more.size());
    MessageWriter(bytes, header).add_bytes(contents).add_bytes(more);
    control_message(peer, std::move(bytes));
}

void EndpointImpl::control_message(Peer& peer, std::vector<std::byte>&& bytes) {
    if (can_send(peer) && send_control(peer, bytes)) return;
    wait(peer, PendingPtr(new PendingMessage(*this, peer, std::move(bytes))));
}

}  // namespace heddle::protocol
