// SPDX-License-Identifier: BSD-2-Clause
// Connections by rdma_cm: how many there may be, their addresses and ports, datagrams, and what is
// refused.
#include <atomic>
#include <thread>
#include <vector>

#include "connection_manager.h"

namespace softhca::test {
namespace {

// Nothing is left of ten thousand connections, and many clients at once are each served.
TEST(RdmaCmRules, ThousandsOfConnectionsLeaveNothing) {
    CmSides sides;
    const std::uint32_t lowest = sides.active;
    ASSERT_EQ(sides.client.destroy(sides.active), 0);
    for (unsigned i = 0; i < 10000; ++i) {
        sides.active = sides.client.routed(kClientUid, sides.port);
        ASSERT_LE(sides.active, lowest + 2) << "ids are used again";
        sides.establish();
        ASSERT_EQ(sides.client.disconnect(sides.active), 0);
        ASSERT_EQ(sides.client.destroy(sides.active), 0);
        ASSERT_EQ(sides.server.expect(kDisconnected).id, sides.passive);
        ASSERT_EQ(sides.server.destroy(sides.passive), 0);
    }
    EXPECT_TRUE(sides.server.is_silent());
    EXPECT_TRUE(sides.client.is_silent());
}

TEST(RdmaCmRules, ServesManyClientsAtOnce) {
    constexpr unsigned kClients = 64, kEach = 10;
    Manager server;
    std::uint16_t port = 0;
    server.listener(kServerUid, &port);
    std::vector<std::thread> threads;
    std::atomic<unsigned> established{0};
    for (unsigned n = 0; n < kClients; ++n)
        threads.emplace_back([&, n] {
            Manager client;
            for (unsigned i = 0; i < kEach; ++i) {
                const std::uint32_t id = client.routed(n + 1, port);
                require(client.connect(id, Manager::parameters(n + 1)), "CONNECT");
                const rdma_ucm_event_resp reply = client.expect(kConnectResponse);
                EXPECT_EQ(reply.param.conn.qp_num, 1000 + n + 1) << "the answer to this client";
                require(client.confirm(id), "ACCEPT");
                ++established;
                require(client.destroy(id), "DESTROY_ID");
            }
        });
    unsigned requests = 0, connected = 0, ended = 0;
    while (ended < kClients * kEach) {
        rdma_ucm_event_resp event{};
        ASSERT_TRUE(server.readable(30000));
        require(server.get_event(event), "GET_EVENT");
        if (event.event == kConnectRequest) {
            ++requests;
            require(server.accept(event.id, kAcceptedUid,
                                  Manager::parameters(1000 + event.param.conn.qp_num)),
                    "ACCEPT");
        } else if (event.event == kEstablished) {
            ++connected;
        } else {
            ASSERT_EQ(event.event, kDisconnected);
            ++ended;
            require(server.destroy(event.id), "DESTROY_ID");
        }
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(requests, kClients * kEach);
    EXPECT_EQ(connected, kClients * kEach);
    EXPECT_EQ(established.load(), kClients * kEach);
}

TEST(RdmaCmRules, BindsAsTheKernelDoes) {
    Manager manager;
    std::uint16_t port = 0;
    const std::uint32_t listener = manager.listener(kServerUid, &port);
    const std::uint32_t second = manager.create(2);
    EXPECT_EQ(manager.bind(second, address_of("127.0.0.1", port)), EADDRNOTAVAIL);
    EXPECT_EQ(manager.bind(second, address_of("0.0.0.0", port)), EADDRNOTAVAIL);
    EXPECT_EQ(manager.bind(second, address_of("203.0.113.9", 0)), EADDRNOTAVAIL);
    const std::uint32_t datagrams = manager.create(3, RDMA_PS_UDP);
    EXPECT_EQ(manager.bind(datagrams, address_of("127.0.0.1", port)), 0)
        << "ports of another space";
    EXPECT_EQ(manager.bind(datagrams, address_of("127.0.0.1", port)), EINVAL) << "bound already";
    ASSERT_EQ(manager.destroy(listener), 0);
    EXPECT_EQ(manager.bind(second, address_of("::", port)), 0);
    EXPECT_EQ(manager.route(second).node_guid, 0U) << "a wildcard is of no device";
    EXPECT_EQ(manager.listen(second), 0);
    // A wildcard of IPv6 takes IPv4 as well.
    const std::uint32_t client = manager.routed(kClientUid, port);
    ASSERT_EQ(manager.connect(client, Manager::parameters(1)), 0);
    manager.expect(kConnectRequest);

    const std::uint32_t reuser = manager.create(4), another = manager.create(5);
    ASSERT_EQ(manager.set_option(reuser, RDMA_OPTION_ID_REUSEADDR, 1), 0);
    ASSERT_EQ(manager.set_option(another, RDMA_OPTION_ID_REUSEADDR, 1), 0);
    ASSERT_EQ(manager.bind(reuser, address_of("127.0.0.1")), 0);
    const std::uint16_t shared = port_of(manager.route(reuser).src_addr);
    ASSERT_EQ(manager.bind(another, address_of("127.0.0.1", shared)), 0);
    EXPECT_EQ(manager.listen(reuser), EADDRNOTAVAIL) << "the other has the port, too";
    ASSERT_EQ(manager.destroy(another), 0);
    EXPECT_EQ(manager.listen(reuser), 0);
}

TEST(RdmaCmRules, ResolvesWhatIsOfThisHost) {
    Manager manager;
    const std::uint32_t id = manager.create(kClientUid);
    ASSERT_EQ(manager.resolve(id, address_of("203.0.113.9", 5)), 0);
    EXPECT_EQ(static_cast<int>(manager.expect(kAddressError).status), -EHOSTUNREACH);
    const std::uint32_t six = manager.create(kClientUid);
    ASSERT_EQ(manager.resolve(six, address_of("::1", 5)), 0);
    manager.expect(kAddressResolved);
    EXPECT_NE(manager.route(six).node_guid, 0U);
}

TEST(RdmaCmRules, AnswersDatagramsByAddressAndKey) {
    CmSides sides(RDMA_PS_UDP);
    const rdma_ucm_event_resp request = sides.request("hello");
    EXPECT_EQ(request.param.ud.private_data_len, 180);
    EXPECT_EQ(std::memcmp(request.param.ud.private_data, "hello", 6), 0);
    rdma_ucm_conn_param answer = Manager::parameters(0x333, "there");
    ASSERT_EQ(sides.server.accept(sides.passive, kAcceptedUid, answer), 0);
    const rdma_ucm_event_resp established = sides.client.expect(kEstablished);
    EXPECT_EQ(established.param.ud.qp_num, 0x333U);
    EXPECT_EQ(established.param.ud.qkey, 0x01234567U);
    EXPECT_EQ(established.param.ud.ah_attr.port_num, 1);
    EXPECT_EQ(established.param.ud.private_data_len, 136);
    EXPECT_EQ(std::memcmp(established.param.ud.private_data, "there", 6), 0);
    EXPECT_TRUE(sides.server.is_silent());

    CmSides refused(RDMA_PS_UDP);
    refused.request();
    ASSERT_EQ(refused.server.reject(refused.passive), 0);
    EXPECT_EQ(refused.client.expect(kUnreachable).status, 2U);
}

TEST(RdmaCmRules, NoticesACommunicationThatIsEstablished) {
    CmSides sides;
    sides.request();
    sides.reply();
    const rdma_ucm_notify notify{sides.passive, IBV_EVENT_COMM_EST};
    EXPECT_EQ(sides.server.run(RDMA_USER_CM_CMD_NOTIFY, notify), 0);
    sides.server.expect(kEstablished);
    EXPECT_EQ(sides.client.confirm(sides.active), 0);
    EXPECT_TRUE(sides.server.is_silent()) << "once";
}

// As librdmacm's rdma_resolve_addrinfo() of version 61 and newer does.
TEST(RdmaCmRules, QueuesAnEventOfTheProgram) {
    constexpr std::uint32_t kUser = 18, kWriteEvent = 24;
    struct {
        std::uint32_t id, reserved, event, status;
        std::uint64_t argument;
        std::byte rest[sizeof(rdma_ucm_ud_param) - sizeof(std::uint64_t)];
    } wanted{};
    Manager manager;
    wanted.id = manager.create(kClientUid);
    wanted.event = kUser;
    wanted.status = 5;
    wanted.argument = 0x1234'5678'9abc'def0;
    ASSERT_EQ(manager.run(kWriteEvent, wanted), 0);
    const rdma_ucm_event_resp event = manager.expect(static_cast<CmEvent>(kUser));
    EXPECT_EQ(event.event, kUser);
    EXPECT_EQ(event.status, 5u);
    EXPECT_EQ(event.uid, kClientUid);
    EXPECT_EQ(std::memcmp(&event.param, &wanted.argument, sizeof wanted.argument), 0);
    wanted.event = kEstablished;
    EXPECT_EQ(manager.run(kWriteEvent, wanted), EINVAL) << "not the program's";
    wanted.event = kUser;
    wanted.id = 60000;
    EXPECT_EQ(manager.run(kWriteEvent, wanted), ENOENT);
    constexpr std::uint32_t kResolveService = 23;
    EXPECT_EQ(manager.run(kResolveService, wanted), EOPNOTSUPP);
    EXPECT_TRUE(manager.is_silent());
}

TEST(RdmaCmRules, RefusesWhatIsWrong) {
    Manager manager;
    const std::uint32_t id = manager.create(kClientUid);
    EXPECT_EQ(manager.run(99, rdma_ucm_disconnect{id}), EINVAL);
    EXPECT_EQ(manager.run(RDMA_USER_CM_CMD_CONNECT, rdma_ucm_disconnect{id}), EINVAL) << "short";
    EXPECT_EQ(write(manager.fd(), "abc", 3), -1);
    EXPECT_EQ(errno, EINVAL);
    volatile std::uintptr_t nothing = 8;
    EXPECT_EQ(write(manager.fd(), reinterpret_cast<void*>(nothing), 64), -1);
    EXPECT_EQ(errno, EFAULT);
    rdma_ucm_create_id nowhere{};
    nowhere.ps = RDMA_PS_TCP;
    nowhere.response = 8;
    EXPECT_EQ(manager.run(RDMA_USER_CM_CMD_CREATE_ID, nowhere, 4), EFAULT);
    EXPECT_EQ(manager.run(RDMA_USER_CM_CMD_CREATE_ID, nowhere, 2), ENOSPC);
    nowhere.ps = 0x1234;
    EXPECT_EQ(manager.run(RDMA_USER_CM_CMD_CREATE_ID, nowhere, 4), EINVAL);
    EXPECT_EQ(manager.disconnect(60000), ENOENT);
    EXPECT_EQ(manager.disconnect(1U << 30), ENOENT);
    EXPECT_EQ(manager.disconnect(id), EINVAL);
    EXPECT_EQ(manager.connect(id, Manager::parameters(1)), EINVAL);
    EXPECT_EQ(manager.accept(id, 1, Manager::parameters(1)), EINVAL);
    EXPECT_EQ(manager.confirm(id), EINVAL);
    EXPECT_EQ(manager.resolve_route(id), EINVAL);
    sockaddr_in6 other{};
    other.sin6_family = 27;  // AF_IB
    EXPECT_EQ(manager.bind(id, other), EINVAL) << "BIND_IP has no room for it";
    CmSides sides;
    EXPECT_EQ(sides.client.connect(sides.active, Manager::parameters(1, std::string(57, 'x'))),
              EINVAL)
        << "a request has room for 56 bytes";
    const Manager stranger;
    EXPECT_EQ(stranger.disconnect(id), EINVAL) << "of another channel";
    const int null = open("/dev/null", O_RDONLY);
    std::uint32_t reported;
    const rdma_ucm_migrate_id wanted{reinterpret_cast<std::uintptr_t>(&reported), id,
                                     static_cast<std::uint32_t>(null)};
    EXPECT_EQ(manager.run(RDMA_USER_CM_CMD_MIGRATE_ID, wanted, sizeof reported), EINVAL);
    close(null);
}

}  // namespace
}  // namespace softhca::test
