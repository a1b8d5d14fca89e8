// SPDX-License-Identifier: BSD-2-Clause
// Connections when something is sent for the first time, what waits for them, control messages, and
// the ends of operations and of peers: see core.h.
#include "protocol/core/core.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/copy.h"
#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "protocol/shm/shm_ring.h"
#include "protocol/transport/channel_post.h"
#include "protocol/wireup/connector_report.h"

namespace heddle::protocol {
namespace {

// A message of the protocol's own that waits for room.
class PendingMessage final : public PendingOp {
public:
    PendingMessage(Core& core, Peer& peer, std::vector<std::byte> bytes) noexcept
        : core_(core), peer_(peer), bytes_(std::move(bytes)) {}
    bool try_post() override { return core_.send_control(peer_, bytes_); }
    void fail(int) override {}

private:
    Core& core_;
    Peer& peer_;
    const std::vector<std::byte> bytes_;
};

}  // namespace

Core::Core(std::shared_ptr<Domain> its_domain, const AddressVector& addresses,
           const Bindings& its_bindings)
    : CoreServices(its_domain->body().process->options, addresses, its_bindings),
      domain(std::move(its_domain)),
      process(domain->body().process),
      channel(process->channel(domain->body().context)),
      connector(process->connector(domain->body().context)) {
    peers.set_target_owners(connector);
    name = connector.self();
    if (channel->xrc()) name.flags |= EndpointAddress::kXrc;
    if (options.transport == Transport::kDc) name.flags |= EndpointAddress::kDc;
    name.endpoint = process->new_endpoint();
    name.context = domain->body().context->index;
    name.srqn = channel->objects().srqn();
    name.channel = channel->number();
    if (bindings.send_counter != nullptr) may_send_small = false;
}

void Core::connect(Peer& peer) {
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
        if (peer.connection->ready()) on_connected(peer);
    } catch (const VerbsError& error) {
        fail_peer(peer, error.error());
    }
}

void Core::wait(Peer& peer, PendingPtr op) { wait_at(peer, peer.waiting.end(), std::move(op)); }

void Core::wait_at(Peer& peer, PendingList::const_iterator before, PendingPtr op) {
    peer.waiting_sequenced += op->is_sequenced();
    peer.waiting.insert(before, std::move(op));
    shut(peer);
    if (peer.failed != 0) {
        fail_peer(peer, peer.failed);
        return;
    }
    if (peer.waiting.size() == 1) {
        blocked_.push_back(&peer);
        channel->users().set_waits(*this, true);
    }
    connect(peer);
}

void Core::flush(Peer& peer) {
    HEDDLE_ASSERT(peer.waiting_sequenced <= peer.waiting.size(), "each message is counted once");
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

void Core::flush_waiting() {
    std::erase_if(wakes_due_, [this](Peer* peer) { return send_wake(*peer); });
    for (std::size_t i = 0; i < blocked_.size();) {
        Peer& peer = *blocked_[i];
        flush(peer);
        if (!peer.waiting.empty()) {
            ++i;
            continue;
        }
        blocked_[i] = blocked_.back();
        blocked_.pop_back();
    }
    channel->users().set_waits(*this, !blocked_.empty() || !wakes_due_.empty());
}

bool Core::waits_for_shm() const noexcept {
    return std::any_of(blocked_.begin(), blocked_.end(),
                       [](const Peer* peer) { return peer->shm != nullptr; });
}

void Core::fail_peer(Peer& peer, int error) {
    HEDDLE_ASSERT(error != 0, "a failure has an errno");
    peer.failed = error;
    shut(peer);
    PendingList waiting;
    waiting.swap(peer.waiting);
    peer.waiting_sequenced = 0;
    for (const PendingPtr& op : waiting)
        op->fail(error);
    on_peer_failed(peer, error);
}

// What follows RDMA writes by the same QP, and what is too long for shared memory.
bool Core::must_go_by_device(const Peer& peer, std::span<const std::byte> bytes) noexcept {
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (is_sequenced(header.kind)) return peer.has_writes || !peer.shm->takes(bytes.size());
    if (header.kind == Kind::kFin) {
        HEDDLE_ASSERT(bytes.size() == sizeof header + sizeof(FinBody), "a FIN has one body");
        FinBody fin;
        std::memcpy(&fin, bytes.data() + sizeof header, sizeof fin);
        return fin.put != 0;
    }
    return header.kind == Kind::kData || !peer.shm->takes(bytes.size());
}

bool Core::send_by_shm(Peer& peer, std::span<const std::byte> bytes) {
    std::byte* const to = peer.shm->reserve(bytes.size());
    if (to == nullptr) return false;
    common::copy_payload(to, bytes.data(), bytes.size());
    if (peer.shm->publish(bytes.size(), false, 0)) wake(peer);
    return true;
}

bool Core::send_control(Peer& peer, std::span<const std::byte> bytes) {
    HEDDLE_ASSERT(bytes.size() >= sizeof(Header), "a message has a header");
    if (peer.shm == nullptr) [[likely]]
        return send_by_device(peer, bytes);
    if (!must_go_by_device(peer, bytes)) return send_by_shm(peer, bytes);
    if (!send_by_device(peer, bytes)) return false;
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (is_sequenced(header.kind)) peer.has_writes = false;
    return true;
}

// False: no room. It goes before all that waits, which may wait for the very receiver that sleeps.
bool Core::send_wake(Peer& peer) {
    // A connection that has failed is about to end the peer.
    if (peer.failed != 0 || !peer.connection->ready()) return true;
    const Header header{Kind::kShmWake, 0, name.endpoint, peer.name.endpoint, 0, 0};
    return send_by_device(peer, std::as_bytes(std::span(&header, 1)));
}

void Core::wake(Peer& peer) {
    HEDDLE_ASSERT(peer.connection != nullptr, "a peer with shared memory was connected to");
    if (send_wake(peer)) return;
    wakes_due_.push_back(&peer);
    channel->users().set_waits(*this, true);
}

bool Core::send_by_device(Peer& peer, std::span<const std::byte> bytes) {
    const bool is_inline = bytes.size() <= channel->limits().max_inline;
    if (is_inline && peer.connection->direct()) [[likely]] {
        const std::byte* const at = bytes.data();
        const post::Posted posted = channel->post_message<false, false>(
            *peer.connection, word_at(at), word_at(at + sizeof(std::uint64_t)), at + sizeof(Header),
            bytes.size() - sizeof(Header), 0, peer.srq, {.what = WrContext::kOwn});
        if (posted != post::Posted::kInvalid) return posted == post::Posted::kOk;
    }
    return send_by_work_request(peer, bytes, is_inline);
}

[[gnu::noinline]] bool Core::send_by_work_request(Peer& peer, std::span<const std::byte> bytes,
                                                  bool is_inline) {
    post::WorkRequest work;
    work.opcode = post::Opcode::kSend;
    work.remote_srq = peer.name.srqn;
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(bytes.data()),
                static_cast<std::uint32_t>(bytes.size()), 0};
    work.sges = {&sge, 1};
    WrContext sent;
    sent.what = WrContext::kOwn;
    if (is_inline) {
        work.flags = post::kInline;
        return channel->post(*peer.connection, work, sent) == post::Posted::kOk;
    }
    memory::Pool& buffers = channel->send_buffers();
    HEDDLE_ASSERT(bytes.size() <= buffers.bytes(), "a buffer holds any control message");
    sent.buffer = buffers.take();
    if (sent.buffer == nullptr) return false;
    std::memcpy(sent.buffer, bytes.data(), bytes.size());
    sge.addr = reinterpret_cast<std::uintptr_t>(sent.buffer);
    sge.lkey = buffers.key();
    if (channel->post(*peer.connection, work, sent) == post::Posted::kOk) return true;
    buffers.give_back(sent.buffer);
    return false;
}

void Core::control_message(Peer& peer, std::vector<std::byte>&& bytes) {
    if (peer.failed != 0) return;  // nobody is there to hear it
    if (can_send(peer) && send_control(peer, bytes)) return;
    wait(peer, PendingPtr(new PendingMessage(*this, peer, std::move(bytes))));
}

void Core::control_message_first(Peer& peer, std::vector<std::byte>&& bytes) {
    if (peer.connection != nullptr && peer.connection->ready() && send_control(peer, bytes)) return;
    wait_at(peer, peer.waiting.begin(),
            PendingPtr(new PendingMessage(*this, peer, std::move(bytes))));
}

bool Core::use_memory(LocalBuffers& buffers, const iovec* iov, std::size_t count,
                      void* const* descriptors, std::size_t bytes, int access) noexcept {
    return buffers.use(domain->body(), iov, count, descriptors, bytes, access);
}

void Core::begin_bulk(Bulk& bulk, Peer& peer, post::Opcode opcode, const Bulk::Range& range,
                      Bulk::Done done, void* argument) noexcept {
    bulk.begin(*channel, *this, *peer.connection, peer.name.srqn, opcode, range, done, argument);
}

void Core::refuse(Peer& peer, int error) {
    connector.refuse(peer.name, name);
    fail_peer(peer, error);
}

void Core::complain_of(const Peer& peer, const std::string& text) const {
    tell_user(options.complain, text + "; the peer is at " + peer_text(peer.name));
}

}  // namespace heddle::protocol
