// SPDX-License-Identifier: BSD-2-Clause
// The core of an endpoint without a device: what a part does to it is recorded.
#pragma once

#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "memory/pool.h"
#include "memory/registration_cache.h"
#include "protocol/core/core_services.h"
#include "protocol/wire/message_writer.h"

namespace heddle::protocol::test {

struct SentControl {
    const Peer* peer = nullptr;
    Kind kind{};
    std::vector<std::byte> contents;  // behind the header
    Header header;

    template <class Body>
    Body body() const {
        Body body;
        if (contents.size() == sizeof body) std::memcpy(&body, contents.data(), sizeof body);
        return body;
    }
    // As its receiver reads it.
    Message message() const {
        std::vector<std::byte> bytes(sizeof header + contents.size());
        MessageWriter(bytes, header).add_bytes(contents);
        Message message;
        EXPECT_TRUE(parse(bytes, false, 0, message));
        message.payload = {};  // of bytes that are gone
        return message;
    }
};

// Base of FakeCore, so that these are there before CoreServices keeps them.
struct FakeParts {
    Options options;
    AddressVector addresses;
    Completions transmitted, received;
};

class FakeCore final : public FakeParts, public CoreServices {
public:
    explicit FakeCore(const Options& with = {}, Bindings counters = {})
        : FakeParts{with, {}, {}, {}},
          CoreServices(FakeParts::options, FakeParts::addresses, bind(counters)) {}

    // The next peer.
    Peer& add_peer() {
        EndpointAddress name;
        name.endpoint = static_cast<std::uint16_t>(peers.size() + 1);
        name.process.nonce = 1000 + peers.size();
        return *peers.at(addresses.insert(name));
    }

    // The peer has a connection with room.
    void connect(Peer& peer) { peer.connection = peer.open = &connection_; }
    // As Core's. What waits is tried again.
    void flush(Peer& peer) {
        while (!peer.waiting.empty()) {
            if (!peer.waiting.front()->try_post()) return;
            peer.waiting.pop_front();
        }
        connect(peer);
    }
    void fail_peer(Peer& peer, int error) {
        peer.failed = error;
        peer.open = nullptr;
        PendingList waiting;
        waiting.swap(peer.waiting);
        for (const PendingPtr& op : waiting)
            op->fail(error);
    }
    // The first transfer that was begun has ended.
    void end_transfer(int error = 0) {
        ASSERT_FALSE(transfers.empty());
        const BegunBulk ended = transfers.front();
        transfers.pop_front();
        ended.done(ended.argument, error, 0);
    }

    // The first WR that was posted has ended, as Channel and EndpointImpl end it. buffers: the pool
    // that WrContext::buffer is of.
    void end_wr(memory::Pool& buffers, int error = 0) {
        ASSERT_FALSE(posted.empty());
        const WrContext ended = posted.front().sent;
        posted.pop_front();
        if (ended.buffer != nullptr) buffers.give_back(ended.buffer);
        if (ended.handler != nullptr) return ended.handler->done(error, 0);
        Counter* const counter = !(ended.what & WrContext::kCount) ? nullptr
                                 : ended.what & WrContext::kRma    ? bindings.write_counter
                                                                   : bindings.send_counter;
        entry(ended.what, false, ended.context, 0, error, 0, counter);
    }

    void control_message(Peer& peer, std::vector<std::byte>&& bytes) override {
        if (peer.failed == 0) note_sent(peer, bytes);
    }
    void control_message_first(Peer& peer, std::vector<std::byte>&& bytes) override {
        control_message(peer, std::move(bytes));
    }
    void wait(Peer& peer, PendingPtr op) override {
        peer.waiting.push_back(std::move(op));
        peer.open = nullptr;
        if (peer.failed != 0) fail_peer(peer, peer.failed);
    }
    void wake(Peer& peer) override { woken.push_back(&peer); }
    bool send_control(Peer& peer, std::span<const std::byte> bytes) override {
        if (!has_room) return false;
        note_sent(peer, bytes);
        return true;
    }
    post::Posted post(Peer& peer, post::WorkRequest& work, WrContext& context) noexcept override {
        if (post_answer != post::Posted::kOk) return post_answer;
        PostedWr& wr = posted.emplace_back(PostedWr{&peer, work, {}, {}, context});
        for (const ibv_sge& sge : work.sges) {
            wr.sges.push_back(sge);
            const auto* const at = reinterpret_cast<const std::byte*>(sge.addr);
            if (work.opcode != post::Opcode::kRead)
                wr.bytes.insert(wr.bytes.end(), at, at + sge.length);
        }
        wr.work.sges = {};
        return post::Posted::kOk;
    }
    bool use_memory(LocalBuffers& buffers, const iovec* iov, std::size_t count,
                    void* const* descriptors, std::size_t bytes, int access) noexcept override {
        return buffers.use(cache_, iov, count, descriptors, bytes, access);
    }
    // Only noted: Bulk::post() has nothing to post then.
    void begin_bulk(Bulk& bulk, Peer& peer, post::Opcode opcode, const Bulk::Range& range,
                    Bulk::Done done, void* argument) noexcept override {
        transfers.push_back({&bulk, &peer, opcode, range.bytes, done, argument, range.offset});
    }
    void look_if_open(Peer& peer) const noexcept override { looked_at.push_back(&peer); }
    void refuse(Peer& peer, int error) override {
        peer.failed = error;
        refused.emplace_back(&peer, error);
    }
    void complain_of(const Peer&, const std::string& text) const override {
        complaints.push_back(text);
    }

    struct BegunBulk {
        const Bulk* bulk;
        const Peer* peer;
        post::Opcode opcode;
        std::size_t bytes;
        Bulk::Done done;
        void* argument;
        std::size_t offset;
    };
    struct PostedWr {
        const Peer* peer;
        post::WorkRequest work;  // without its SGEs
        std::vector<ibv_sge> sges;
        std::vector<std::byte> bytes;  // that go out, as they are when it is posted
        WrContext sent;
    };
    bool has_room = true;  // for messages of send_control()
    post::Posted post_answer = post::Posted::kOk;
    std::deque<PostedWr> posted;
    std::deque<BegunBulk> transfers;
    std::vector<SentControl> sent;
    std::vector<const Peer*> woken;
    std::vector<std::pair<const Peer*, int>> refused;
    mutable std::vector<std::string> complaints;
    mutable std::vector<const Peer*> looked_at;

private:
    Bindings bind(Bindings counters) {
        counters.transmit = &transmitted;
        counters.receive = &received;
        return counters;
    }
    void note_sent(const Peer& peer, std::span<const std::byte> bytes) {
        Header header;
        std::memcpy(&header, bytes.data(), sizeof header);
        sent.push_back({&peer, header.kind, {bytes.begin() + sizeof header, bytes.end()}, header});
    }

    Connection connection_;
    // With protocol_fake_verbs.cc beneath it. It keeps nothing.
    memory::RegistrationCache cache_{std::make_shared<memory::AddressMonitor>(), nullptr, 0};
};

}  // namespace heddle::protocol::test
