// SPDX-License-Identifier: BSD-2-Clause
// A process as the connector sees one: a device, a connector, an endpoint with its SRQ that can be
// sent to, and channels that send. Several of them may be in one process of a test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "protocol/wireup/connector.h"
#include "tests/softhca/verbs_fixture.h"
#include "verbs/connection.h"

namespace heddle::protocol::test {

using softhca::test::check;
using softhca::test::Owned;

// Waits for a request's end.
class Waiter {
public:
    void watch(ConnectionRequest& request) {
        request.argument = this;
        request.changed = [](void* self) { static_cast<Waiter*>(self)->wake(); };
    }
    testing::AssertionResult wait(const ConnectionRequest& request, int error = 0) {
        std::unique_lock lock(mutex_);
        const bool ended = changed_.wait_for(lock, softhca::test::kDeadline, [&] {
            return request.state.load(std::memory_order_acquire) != ConnectionRequest::kConnecting;
        });
        if (!ended) return testing::AssertionFailure() << "still connecting";
        const int got =
            request.state.load(std::memory_order_acquire) == ConnectionRequest::kConnected
                ? 0
                : request.error;
        if (got == error) return testing::AssertionSuccess();
        return testing::AssertionFailure() << "ended with errno " << got << ", not " << error;
    }
    unsigned calls() {
        const std::lock_guard lock(mutex_);
        return calls_;
    }

private:
    void wake() {
        {
            const std::lock_guard lock(mutex_);
            ++calls_;
        }
        changed_.notify_all();
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    unsigned calls_ = 0;
};

// Its endpoints have an SRQ and a CQ each; XRC ones share the domain.
class Peer {
public:
    struct Local {
        EndpointAddress name;
        Owned<ibv_cq> cq;
        Owned<ibv_srq> srq;
        std::unique_ptr<softhca::test::Memory> memory;
    };
    // A QP that sends, in INIT, and its request. Destroy it before its Peer.
    struct Channel {
        Peer* peer = nullptr;
        Owned<ibv_cq> cq;
        Owned<ibv_qp> qp;
        ConnectionRequest request;
        ~Channel() { peer->connector->disconnect(request); }
    };

    explicit Peer(bool xrc, const Connector::Options& options = {})
        : xrc(xrc), context(softhca::test::open_device()) {
        pd.reset(check(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
        if (xrc) {
            ibv_xrcd_init_attr wanted{};
            wanted.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
            wanted.fd = -1;
            wanted.oflags = O_CREAT;
            xrcd.reset(check(ibv_open_xrcd(context.get(), &wanted), "ibv_open_xrcd"));
        }
        connector = std::make_unique<Connector>(context.get(), pd.get(),
                                                verbs::local_port(context.get()), options);
        add();
    }

    Local& add(std::uint16_t in_context = 0) {
        auto local = std::make_unique<Local>();
        local->cq = softhca::test::create_cq(context.get(), 64);
        if (xrc) {
            ibv_srq_init_attr_ex wanted{};
            wanted.attr.max_wr = 64;
            wanted.attr.max_sge = 1;
            wanted.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
                               IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD;
            wanted.srq_type = IBV_SRQT_XRC;
            wanted.pd = pd.get();
            wanted.xrcd = xrcd.get();
            wanted.cq = local->cq.get();
            local->srq.reset(check(ibv_create_srq_ex(context.get(), &wanted), "XRC SRQ"));
            ibv_get_srq_num(local->srq.get(), &local->name.srqn);
        } else {
            local->srq = softhca::test::create_srq(pd.get(), 64);
        }
        local->memory = std::make_unique<softhca::test::Memory>(pd.get(), 4096);
        EndpointAddress& name = local->name;
        name.flags = static_cast<std::uint8_t>(
            (xrc ? EndpointAddress::kXrc : 0) |
            (connector->self().ethernet() ? EndpointAddress::kEthernet : 0));
        name.endpoint = static_cast<std::uint16_t>(locals.size());
        name.context = in_context;
        name.process = connector->process();
        connector->add(
            {name, context.get(), pd.get(), xrcd.get(), local->srq.get(), local->cq.get()});
        locals.push_back(std::move(local));
        return *locals.back();
    }

    std::unique_ptr<Channel> channel(const EndpointAddress& to) {
        auto channel = std::make_unique<Channel>();
        channel->peer = this;
        channel->cq = softhca::test::create_cq(context.get(), 16);
        ibv_qp_init_attr_ex wanted{};
        wanted.qp_type = xrc ? IBV_QPT_XRC_SEND : IBV_QPT_RC;
        wanted.send_cq = wanted.recv_cq = channel->cq.get();
        wanted.cap.max_send_wr = 8;
        wanted.cap.max_send_sge = 1;
        wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
        wanted.pd = pd.get();
        channel->qp.reset(check(ibv_create_qp_ex(context.get(), &wanted), "ibv_create_qp_ex"));
        EXPECT_EQ(verbs::to_init(channel->qp.get(), verbs::local_port(context.get()), false), 0);
        ConnectionRequest& request = channel->request;
        request.qp = channel->qp.get();
        request.from = name();
        request.to = to;
        waiter.watch(request);
        return channel;
    }
    std::unique_ptr<Channel> connect(const EndpointAddress& to) {
        auto made = channel(to);
        connector->connect(made->request);
        return made;
    }
    testing::AssertionResult wait(const Channel& channel, int error = 0) {
        return waiter.wait(channel.request, error);
    }

    const EndpointAddress& name(std::size_t k = 0) const { return locals[k]->name; }

    // A message of one pattern; receive() checks the message and its sender.
    void post_receive(std::size_t k = 0) {
        Local& local = *locals[k];
        ibv_sge piece = local.memory->sge(0, 2048);
        ibv_recv_wr work{};
        work.sg_list = &piece;
        work.num_sge = 1;
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_srq_recv(local.srq.get(), &work, &bad), 0);
    }
    testing::AssertionResult send(Channel& channel, std::uint32_t seed) {
        softhca::test::Memory memory(pd.get(), 4096);
        memory.fill(0, 1000, seed);
        ibv_sge piece = memory.sge(0, 1000);
        ibv_send_wr work{};
        work.sg_list = &piece;
        work.num_sge = 1;
        work.opcode = IBV_WR_SEND;
        work.send_flags = IBV_SEND_SIGNALED;
        work.qp_type.xrc.remote_srqn = channel.request.to.srqn;
        ibv_send_wr* bad = nullptr;
        if (const int error = ibv_post_send(channel.qp.get(), &work, &bad))
            return testing::AssertionFailure() << "ibv_post_send: " << std::strerror(error);
        const auto done = softhca::test::poll_for(channel.cq.get(), softhca::test::kDeadline);
        if (!done) return testing::AssertionFailure() << "no completion of the send";
        return softhca::test::succeeded(*done);
    }
    testing::AssertionResult receive(std::uint32_t seed, const EndpointAddress& from,
                                     std::size_t k = 0) {
        Local& local = *locals[k];
        const auto done = softhca::test::poll_for(local.cq.get(), softhca::test::kDeadline);
        if (!done) return testing::AssertionFailure() << "nothing came";
        if (done->status != IBV_WC_SUCCESS) return softhca::test::succeeded(*done);
        if (const auto ok = local.memory->holds(0, 1000, seed); !ok) return ok;
        const auto asker = connector->asker(done->qp_num);
        if (!asker) return testing::AssertionFailure() << "nobody asked for QP " << done->qp_num;
        if (*asker != from) return testing::AssertionFailure() << "another one asked for the QP";
        return testing::AssertionSuccess();
    }
    // Counts are the thread's: they come a moment later.
    template <class Holds>
    testing::AssertionResult soon(Holds holds) {
        const auto end = softhca::test::Clock::now() + softhca::test::kDeadline;
        while (!holds(connector->counts())) {
            if (softhca::test::Clock::now() > end)
                return testing::AssertionFailure() << "it does not become so";
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return testing::AssertionSuccess();
    }

    bool xrc;
    Owned<ibv_context> context;
    Owned<ibv_pd> pd;
    Owned<ibv_xrcd> xrcd;
    Waiter waiter;
    std::vector<std::unique_ptr<Local>> locals;
    std::unique_ptr<Connector> connector;  // goes first
};

}  // namespace heddle::protocol::test
