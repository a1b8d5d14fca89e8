// SPDX-License-Identifier: BSD-2-Clause
// Connections on demand: what they carry, that they come about whatever the network loses or
// repeats, and how they fail.
#include "protocol/wireup/connector.h"

#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/protocol/connector_support.h"

namespace heddle::protocol::test {
namespace {

using softhca::test::Child;
using std::chrono::milliseconds;

class Transports : public testing::TestWithParam<bool> {
protected:
    bool xrc() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Connector, Transports, testing::Bool(),
                         [](const auto& info) { return info.param ? "Xrc" : "Rc"; });

TEST_P(Transports, ConnectWithinAProcess) {
    Peer a(xrc()), b(xrc());
    b.post_receive();
    const auto channel = a.connect(b.name());
    ASSERT_TRUE(a.wait(*channel));
    ASSERT_TRUE(a.send(*channel, 1));
    EXPECT_TRUE(b.receive(1, a.name()));
    EXPECT_EQ(b.connector->counts().targets, 1u);
    EXPECT_EQ(b.connector->counts().malformed, 0u);
    EXPECT_FALSE(b.connector->asker(0xffffff));
}

TEST_P(Transports, ConnectAcrossProcesses) {
    Child child([&](softhca::test::Channel& channel) {
        Peer b(xrc());
        b.post_receive();
        channel.send(b.name());
        const EndpointAddress a = channel.receive<EndpointAddress>();
        EXPECT_TRUE(b.receive(7, a));
        const auto back = b.connect(a);
        ASSERT_TRUE(b.wait(*back));
        EXPECT_TRUE(b.send(*back, 8));
        channel.meet();
    });
    Peer a(xrc());
    a.post_receive();
    const EndpointAddress b = child.channel().receive<EndpointAddress>();
    child.channel().send(a.name());
    const auto channel = a.connect(b);
    ASSERT_TRUE(a.wait(*channel));
    ASSERT_TRUE(a.send(*channel, 7));
    EXPECT_TRUE(a.receive(8, b));
    child.channel().meet();
    child.expect_success();
}

// The timeout and retry count of a connection are those of its connector's options. The default
// timeout outlasts a link that is down for a second or two.
TEST_P(Transports, WaitForAcknowledgementsAsTheyAreTold) {
    const auto timeout_of = [](Peer::Channel& channel) {
        ibv_qp_attr attributes{};
        ibv_qp_init_attr unused{};
        EXPECT_EQ(
            ibv_query_qp(channel.qp.get(), &attributes, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT, &unused),
            0);
        return std::pair<int, int>(attributes.timeout, attributes.retry_cnt);
    };
    Connector::Options options;
    options.ack_timeout = 20;
    options.retries = 3;
    Peer a(xrc()), b(xrc(), options);
    const auto usual = a.connect(b.name()), chosen = b.connect(a.name());
    ASSERT_TRUE(a.wait(*usual));
    ASSERT_TRUE(b.wait(*chosen));
    EXPECT_EQ(timeout_of(*usual), std::pair(18, 6));
    EXPECT_EQ(timeout_of(*chosen), std::pair(20, 3));
}

// Two connections, one each way; neither is in the other's way.
TEST_P(Transports, ConnectBothWaysAtOnce) {
    Peer a(xrc()), b(xrc());
    for (std::uint32_t round = 0; round < 10; ++round) {
        a.post_receive();
        b.post_receive();
        const auto there = a.connect(b.name());
        const auto back = b.connect(a.name());
        ASSERT_TRUE(a.wait(*there));
        ASSERT_TRUE(b.wait(*back));
        ASSERT_TRUE(a.send(*there, round));
        ASSERT_TRUE(b.send(*back, round + 100));
        EXPECT_TRUE(b.receive(round, a.name()));
        EXPECT_TRUE(a.receive(round + 100, b.name()));
    }
}

// The side that was asked says so when its end goes: nobody waits for it then.
TEST_P(Transports, LearnThatAPeerHasLeft) {
    Peer a(xrc()), b(xrc());
    b.add();
    const auto first = a.connect(b.name(0)), other = a.connect(b.name(1));
    ASSERT_TRUE(a.wait(*first));
    ASSERT_TRUE(a.wait(*other));
    const auto has_left = [](const Peer::Channel& channel) {
        return channel.request.peer_has_left.load();
    };
    b.connector->remove(b.name(1));
    // By XRC both end in one context, of which an endpoint is left.
    if (!xrc()) {
        EXPECT_TRUE(a.soon([&](const Connector::Counts&) { return has_left(*other); }));
    }
    const auto later = a.connect(b.name(0));
    ASSERT_TRUE(a.wait(*later));
    EXPECT_FALSE(has_left(*first));
    EXPECT_EQ(has_left(*other), !xrc());
    b.connector->remove(b.name(0));
    for (const auto* channel : {&first, &other, &later})
        EXPECT_TRUE(a.soon([&](const Connector::Counts&) { return has_left(**channel); }));
}

TEST_P(Transports, ConnectToThemselves) {
    Peer a(xrc());
    a.post_receive();
    const auto channel = a.connect(a.name());
    ASSERT_TRUE(a.wait(*channel));
    ASSERT_TRUE(a.send(*channel, 3));
    EXPECT_TRUE(a.receive(3, a.name()));
}

TEST_P(Transports, ConnectWhateverIsLostAndRepeated) {
    Connector::Options options;
    options.first_repeat_ms = 2;
    options.drop = options.repeat = 0.5;
    options.seed = 5;
    Peer a(xrc(), options), b(xrc(), options);
    constexpr std::uint32_t kConnections = 20;
    std::vector<std::unique_ptr<Peer::Channel>> channels;
    for (std::uint32_t k = 0; k < kConnections; ++k) {
        channels.push_back(a.connect(b.name()));
        b.post_receive();
    }
    for (std::uint32_t k = 0; k < kConnections; ++k) {
        ASSERT_TRUE(a.wait(*channels[k]));
        ASSERT_TRUE(a.send(*channels[k], k));
        ASSERT_TRUE(b.receive(k, a.name()));
    }
    EXPECT_EQ(b.connector->counts().targets, kConnections) << "one for each, however often asked";
    EXPECT_GT(a.connector->counts().repeated, 0u);
}

// A request that comes twice is answered twice, by one target.
TEST_P(Transports, AnswerARepeatedRequestAsBefore) {
    Connector::Options options;
    options.repeat = 1;
    Peer a(xrc(), options), b(xrc(), options);
    const auto channel = a.connect(b.name());
    ASSERT_TRUE(a.wait(*channel));
    EXPECT_TRUE(b.soon([](const auto& counts) { return counts.replies_sent >= 2; }));
    EXPECT_EQ(b.connector->counts().targets, 1u);
    b.post_receive();
    ASSERT_TRUE(a.send(*channel, 1));
    EXPECT_TRUE(b.receive(1, a.name()));
    a.connector->disconnect(channel->request);  // returns when its owner has been told
    EXPECT_EQ(a.waiter.calls(), 1u);
}

// Fewer receives than requests at once: what finds none is asked for again.
TEST_P(Transports, ConnectOftenerThanDatagramsFind) {
    Connector::Options options;
    options.receives = 4;
    options.first_repeat_ms = 5;
    Peer a(xrc(), options), b(xrc(), options);
    std::vector<std::unique_ptr<Peer::Channel>> channels;
    for (int k = 0; k < 200; ++k)
        channels.push_back(a.connect(b.name()));
    for (const auto& channel : channels)
        ASSERT_TRUE(a.wait(*channel));
    EXPECT_EQ(b.connector->counts().targets, 200u);
    for (std::uint32_t k = 0; k < 200; k += 37) {
        b.post_receive();
        ASSERT_TRUE(a.send(*channels[k], k));
        ASSERT_TRUE(b.receive(k, a.name()));
    }
    channels.clear();
    EXPECT_TRUE(b.soon([](const auto& counts) { return counts.targets < 200; }));
}

TEST_P(Transports, RefuseAnUnknownEndpoint) {
    Peer a(xrc()), b(xrc());
    EndpointAddress nobody = b.name();
    nobody.endpoint = 77;
    EXPECT_TRUE(a.wait(*a.connect(nobody), ECONNREFUSED));
    // A process that had the QP number before, and by chance the Q_Key.
    EndpointAddress stale = b.name();
    stale.process.nonce ^= 0x1'0000'0001;
    EXPECT_TRUE(a.wait(*a.connect(stale), ECONNREFUSED));
    // A request that is not answered in time is repeated, and refused again.
    EXPECT_GE(b.connector->counts().refused, 2u);
    EXPECT_LE(b.connector->counts().refused, 2u + a.connector->counts().repeated);
    EXPECT_EQ(b.connector->counts().targets, 0u);
    EXPECT_TRUE(a.wait(*a.connect(b.name())));
}

TEST_P(Transports, RefuseMoreThanTheirMost) {
    Connector::Options options;
    options.most_targets = 2;
    Peer a(xrc()), b(xrc(), options);
    const auto first = a.connect(b.name()), second = a.connect(b.name());
    ASSERT_TRUE(a.wait(*first));
    ASSERT_TRUE(a.wait(*second));
    EXPECT_TRUE(a.wait(*a.connect(b.name()), ENOBUFS));
    a.connector->disconnect(first->request);
    ASSERT_TRUE(b.soon([](const auto& counts) { return counts.targets == 1; }));
    EXPECT_TRUE(a.wait(*a.connect(b.name())));
}

TEST_P(Transports, RefuseMoreThanTheMostOfAPeer) {
    Connector::Options options;
    options.most_targets_of_peer = 2;
    Peer a(xrc()), b(xrc(), options), c(xrc());
    const auto first = a.connect(b.name()), second = a.connect(b.name());
    ASSERT_TRUE(a.wait(*first));
    ASSERT_TRUE(a.wait(*second));
    EXPECT_TRUE(a.wait(*a.connect(b.name()), ENOBUFS));
    EXPECT_TRUE(c.wait(*c.connect(b.name()))) << "another one";
    a.connector->disconnect(first->request);
    ASSERT_TRUE(b.soon([](const auto& counts) { return counts.targets == 1; }));
    EXPECT_TRUE(a.wait(*a.connect(b.name())));
}

// For each QP that ever was there would be an entry, whatever comes and goes.
TEST_P(Transports, ForgetWhoAskedForTargetsOfBefore) {
    Connector::Options options;
    options.most_gone = 2;
    Peer a(xrc()), b(xrc(), options);
    std::vector<std::uint32_t> numbers;
    const std::uint64_t removals = b.connector->removals();
    for (int k = 0; k < 4; ++k) {
        const auto channel = a.connect(b.name());
        ASSERT_TRUE(a.wait(*channel));
        ibv_qp_attr attributes{};
        ibv_qp_init_attr unused{};
        ASSERT_EQ(ibv_query_qp(channel->qp.get(), &attributes, IBV_QP_DEST_QPN, &unused), 0);
        numbers.push_back(attributes.dest_qp_num);
        EXPECT_TRUE(b.connector->asker(numbers.back()));
        a.connector->disconnect(channel->request);
        ASSERT_TRUE(b.soon([](const auto& counts) { return counts.targets == 0; }));
    }
    if (numbers[2] == numbers[0]) GTEST_SKIP() << "the device gives numbers again at once";
    EXPECT_FALSE(b.connector->asker(numbers[0]));
    EXPECT_FALSE(b.connector->asker(numbers[1]));
    EXPECT_EQ(b.connector->asker(numbers[2]), a.name());
    EXPECT_EQ(b.connector->asker(numbers[3]), a.name());
    EXPECT_EQ(b.connector->removals(), removals + 2) << "users know some of them by heart";
}

TEST_P(Transports, FailInTimeWhenThePeerIsDead) {
    EndpointAddress dead;
    Child child([&](softhca::test::Channel& channel) {
        Peer b(xrc());
        channel.send(b.name());
        channel.meet();
        pause();
    });
    dead = child.channel().receive<EndpointAddress>();
    Connector::Options options;
    options.give_up_ms = 300;
    Peer a(xrc(), options);  // before the other's UD QP number is free again
    child.channel().meet();
    child.kill(SIGKILL);
    child.wait();
    const auto start = softhca::test::Clock::now();
    EXPECT_TRUE(a.wait(*a.connect(dead), ETIMEDOUT));
    EXPECT_GE(softhca::test::Clock::now() - start, milliseconds(300));
    EXPECT_GT(a.connector->counts().repeated, 0u);
}

TEST_P(Transports, CancelWhatIsOnItsWay) {
    Connector::Options deaf;
    deaf.drop = 1;
    Peer a(xrc()), b(xrc(), deaf);
    auto channel = a.connect(b.name());
    ASSERT_TRUE(b.soon([](const auto& counts) { return counts.targets == 1; }));
    a.connector->disconnect(channel->request);
    EXPECT_EQ(channel->request.state.load(), ConnectionRequest::kConnecting);
    channel.reset();
    EXPECT_EQ(a.waiter.calls(), 0u);
    EXPECT_TRUE(b.soon([](const auto& counts) { return counts.targets == 0; })) << "the BYE";
    // At any moment: not yet sent, on its way, answered.
    Peer c(xrc());
    for (int k = 0; k < 100; ++k) {
        auto one = a.connect(c.name());
        std::this_thread::sleep_for(std::chrono::microseconds(k * 7));
        a.connector->disconnect(one->request);
    }
    EXPECT_TRUE(c.soon([](const auto& counts) { return counts.targets == 0; }));
    EXPECT_TRUE(a.wait(*a.connect(c.name())));
}

TEST_P(Transports, LoseTheirTargetByABye) {
    Peer b(xrc());
    {
        Peer a(xrc());
        const auto one = a.connect(b.name());
        auto other = a.connect(b.name());
        ASSERT_TRUE(a.wait(*one));
        ASSERT_TRUE(a.wait(*other));
        b.post_receive();
        ASSERT_TRUE(a.send(*one, 1));
        ASSERT_TRUE(b.receive(1, a.name()));
        a.connector->disconnect(other->request);
        EXPECT_TRUE(b.soon([](const auto& counts) { return counts.targets == 1; }));
        b.post_receive();
        ASSERT_TRUE(a.send(*one, 2));
        EXPECT_TRUE(b.receive(2, a.name()));
    }
    EXPECT_TRUE(b.soon([](const auto& counts) { return counts.targets == 0; }));
}

// A BYE that nobody asked for again still comes, and holds until there is another way.
TEST_P(Transports, SayThatTheyAreGoneWhateverIsLost) {
    Connector::Options lossy;
    lossy.drop = 0.4;  // a dozen are sent in its five seconds: one in 60000 times all are lost
    lossy.first_repeat_ms = 5;
    Peer a(xrc(), lossy), b(xrc());
    const auto gone = [&] { return b.connector->has_left(a.name(), b.name()); };
    EXPECT_FALSE(gone());
    for (int i = 0; i < 3; ++i) {
        const auto channel = a.connect(b.name());
        ASSERT_TRUE(a.wait(*channel));
        EXPECT_FALSE(gone());
        a.connector->abandon(channel->request);
        EXPECT_TRUE(b.soon([&](const auto&) { return gone(); }));
        EXPECT_FALSE(a.connector->has_left(b.name(), a.name()));
    }
}

// When a target is dropped, its asker does not count as gone. When the asker's last target is
// disconnected, the asker counts as gone.
TEST_P(Transports, SayThatTheyAreGoneWhateverWasDropped) {
    if (!xrc()) return;  // only those are ever dropped
    Peer b(xrc());
    {
        Peer a(xrc());
        const auto one = a.connect(b.name()), other = a.connect(b.name());
        ASSERT_TRUE(a.wait(*one));
        ASSERT_TRUE(a.wait(*other));
        b.connector->drop(a.name(), other->qp->qp_num);
        EXPECT_TRUE(b.soon([](const auto& counts) { return counts.targets == 1; }));
        EXPECT_FALSE(b.connector->has_left(a.name(), b.name()));
        a.connector->disconnect(one->request);
        EXPECT_TRUE(b.soon([&](const auto&) { return b.connector->has_left(a.name(), b.name()); }));
    }
}

// Requests that still wait when the connector is destroyed end with ECANCELED before that returns.
TEST_P(Transports, FailWhatWaitsWhenTheyEnd) {
    Connector::Options deaf;
    deaf.drop = 1;
    Peer b(xrc());
    auto a = std::make_unique<Peer>(xrc(), deaf);
    auto channel = a->channel(b.name());
    a->connector->connect(channel->request);
    a->connector.reset();
    EXPECT_TRUE(a->wait(*channel, ECANCELED));
    EXPECT_EQ(a->waiter.calls(), 1u);
    channel->peer = &b;  // the connector of b does not know this request
    channel.reset();
}

TEST_P(Transports, KeepTheirTargetsWhileAnEndpointIsThere) {
    Peer a(xrc()), b(xrc());
    b.add();  // in the same context
    b.add(1);
    const auto first = a.connect(b.name(0)), other = a.connect(b.name(2));
    ASSERT_TRUE(a.wait(*first));
    ASSERT_TRUE(a.wait(*other));
    if (xrc()) {
        // One connection reaches both endpoints of the context.
        b.post_receive(1);
        first->request.to = b.name(1);
        ASSERT_TRUE(a.send(*first, 4));
        EXPECT_TRUE(b.receive(4, a.name(), 1));
        b.connector->remove(b.name(0));
        EXPECT_EQ(b.connector->counts().targets, 2u);
        b.post_receive(1);
        ASSERT_TRUE(a.send(*first, 5));
        EXPECT_TRUE(b.receive(5, a.name(), 1));
        b.connector->remove(b.name(1));
    } else {
        b.connector->remove(b.name(0));
    }
    EXPECT_EQ(b.connector->counts().targets, 1u);
    EXPECT_TRUE(a.wait(*a.connect(b.name(0)), ECONNREFUSED));
    b.post_receive(2);
    ASSERT_TRUE(a.send(*other, 6));
    EXPECT_TRUE(b.receive(6, a.name(), 2));
}

// Threads that ask, cancel and look while the connector works.
TEST_P(Transports, ServeManyThreads) {
    Peer a(xrc()), b(xrc());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (int k = 0; k < 10; ++k) {
                const auto one = a.channel(b.name());
                Waiter mine;
                mine.watch(one->request);
                a.connector->connect(one->request);
                if ((k + t) % 3 == 0)
                    a.connector->disconnect(one->request);
                else
                    EXPECT_TRUE(mine.wait(one->request));
                b.connector->asker(one->qp->qp_num + 1);
                a.connector->disconnect(one->request);  // it may be telling `mine`
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_TRUE(b.soon([](const auto& counts) { return counts.targets == 0; }));
}

}  // namespace
}  // namespace heddle::protocol::test
