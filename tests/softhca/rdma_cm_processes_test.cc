// SPDX-License-Identifier: BSD-2-Clause
// Connections by rdma_cm between processes, of which one is killed in each state. The other gets
// what the kernel's messages would have caused: it destroys the ids of a dead process.
#include <signal.h>

#include "connection_manager.h"

namespace softhca::test {
namespace {

constexpr int kSoon = 5000;  // ms; the fabric looks for dead processes ten times a second

enum class Stage { kListening, kRequested, kReplied, kConnected };

// A server that goes as far as `stage`, says so, and waits for its end.
void serve(Channel& channel, Stage stage) {
    Manager manager;
    std::uint16_t port = 0;
    manager.listener(1, &port);
    channel.send(port);
    if (stage != Stage::kListening) {
        const std::uint32_t id = manager.expect(kConnectRequest).id;
        if (stage != Stage::kRequested)
            require(manager.accept(id, 2, Manager::parameters(5)), "ACCEPT");
        if (stage == Stage::kConnected) manager.expect(kEstablished);
    }
    channel.send('s');
    channel.receive<char>();
}

TEST(RdmaCmProcesses, ClientsLearnOfAKilledServer) {
    for (const Stage stage : {Stage::kRequested, Stage::kReplied, Stage::kConnected}) {
        SCOPED_TRACE(static_cast<int>(stage));
        Child server([stage](Channel& channel) { serve(channel, stage); });
        const auto port = server.channel().receive<std::uint16_t>();
        Manager client;
        const std::uint32_t id = client.routed(7, port);
        require(client.connect(id, Manager::parameters(4)), "CONNECT");
        if (stage != Stage::kRequested) client.expect(kConnectResponse);
        if (stage == Stage::kConnected) require(client.confirm(id), "ACCEPT");
        EXPECT_EQ(server.channel().receive<char>(), 's');
        EXPECT_TRUE(client.is_silent());
        server.kill(SIGKILL);
        server.wait();
        if (stage == Stage::kConnected) {
            EXPECT_EQ(client.expect(kDisconnected, kSoon).uid, 7U);
        } else {
            EXPECT_EQ(client.expect(kRejected, kSoon).status, 28U);
        }
    }
}

TEST(RdmaCmProcesses, NobodyListensForAKilledServer) {
    Child server([](Channel& channel) { serve(channel, Stage::kListening); });
    const auto port = server.channel().receive<std::uint16_t>();
    EXPECT_EQ(server.channel().receive<char>(), 's');
    Manager client;  // it is there, so that the fabric stays
    server.kill(SIGKILL);
    server.wait();
    const auto end = Clock::now() + std::chrono::milliseconds(kSoon);
    for (;;) {
        const std::uint32_t id = client.routed(7, port);
        require(client.connect(id, Manager::parameters(4)), "CONNECT");
        if (client.readable(200)) {
            const std::uint32_t reason = client.expect(kRejected).status;
            if (reason == 8) break;
            EXPECT_EQ(reason, 28U) << "the request came before the listener was gone";
        }
        ASSERT_LT(Clock::now(), end);
    }
}

TEST(RdmaCmProcesses, ServersLearnOfAKilledClient) {
    for (const Stage stage : {Stage::kRequested, Stage::kReplied, Stage::kConnected}) {
        SCOPED_TRACE(static_cast<int>(stage));
        Manager server;
        std::uint16_t port = 0;
        server.listener(1, &port);
        Child client([port, stage](Channel& channel) {
            Manager manager;
            const std::uint32_t id = manager.routed(7, port);
            require(manager.connect(id, Manager::parameters(4)), "CONNECT");
            if (stage != Stage::kRequested) manager.expect(kConnectResponse);
            if (stage == Stage::kConnected) require(manager.confirm(id), "ACCEPT");
            channel.send('s');
            channel.receive<char>();
        });
        const std::uint32_t id = server.expect(kConnectRequest).id;
        if (stage != Stage::kRequested)
            require(server.accept(id, 2, Manager::parameters(5)), "ACCEPT");
        if (stage == Stage::kConnected) server.expect(kEstablished);
        EXPECT_EQ(client.channel().receive<char>(), 's');
        client.kill(SIGKILL);
        client.wait();
        if (stage == Stage::kConnected) {
            EXPECT_EQ(server.expect(kDisconnected, kSoon).id, id);
        } else if (stage == Stage::kReplied) {
            EXPECT_EQ(server.expect(kRejected, kSoon).id, id);
        } else {
            EXPECT_TRUE(server.is_silent(400)) << "the program does not know the id yet";
            EXPECT_EQ(server.accept(id, 2, Manager::parameters(5)), EINVAL);
        }
    }
}

TEST(RdmaCmProcesses, AForkedChildHasChannelsOfItsOwn) {
    Manager parents;
    std::uint16_t port = 0;
    parents.listener(1, &port);
    Child child([&parents, port](Channel&) {
        EXPECT_EQ(write(parents.fd(), "x", 1), -1) << "its parent's is not the child's";
        Manager own;
        const std::uint32_t id = own.routed(7, port);
        require(own.connect(id, Manager::parameters(4)), "CONNECT");
        own.expect(kConnectResponse);
        require(own.confirm(id), "ACCEPT");
        own.expect(kDisconnected);
    });
    const std::uint32_t id = parents.expect(kConnectRequest).id;
    require(parents.accept(id, 2, Manager::parameters(5)), "ACCEPT");
    parents.expect(kEstablished);
    require(parents.disconnect(id), "DISCONNECT");
    child.expect_success();
}

}  // namespace
}  // namespace softhca::test
