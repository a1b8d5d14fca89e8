// SPDX-License-Identifier: BSD-2-Clause
// Connections by rdma_cm: what each side gets from the first command to the last, as from the
// kernel's ucma.c, cma.c and cm.c.
#include <signal.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include "connection_manager.h"

namespace softhca::test {
namespace {

TEST(RdmaCm, IsFoundAsTheKernelsDevice) {
    struct stat status {};
    ASSERT_EQ(stat("/dev/infiniband/rdma_cm", &status), 0);
    EXPECT_TRUE(S_ISCHR(status.st_mode));
    const Manager manager;
    ASSERT_EQ(fstat(manager.fd(), &status), 0);
    EXPECT_TRUE(S_ISCHR(status.st_mode));
    std::ifstream version("/sys/class/infiniband_ucma/abi_version");
    int number = 0;
    EXPECT_TRUE(version >> number);
    EXPECT_EQ(number, 4);
}

TEST(RdmaCm, ConnectsTwoSides) {
    CmSides sides;
    const rdma_ucm_event_resp request = sides.request("from the client");
    EXPECT_EQ(request.uid, kServerUid) << "a request is the listener's";
    EXPECT_NE(request.id, sides.listener);
    EXPECT_EQ(request.param.conn.qp_num, 0x111U);
    EXPECT_EQ(request.param.conn.responder_resources, 2) << "what the client starts";
    EXPECT_EQ(request.param.conn.initiator_depth, 3);
    EXPECT_EQ(request.param.conn.retry_count, 5);
    EXPECT_EQ(data_of(request), padded("from the client", 56));

    const rdma_ucm_query_route_resp asked = sides.server.route(sides.passive);
    const rdma_ucm_query_route_resp asks = sides.client.route(sides.active);
    EXPECT_EQ(port_of(asked.src_addr), sides.port);
    EXPECT_EQ(port_of(asked.dst_addr), port_of(asks.src_addr));
    EXPECT_EQ(port_of(asks.dst_addr), sides.port);
    EXPECT_NE(asked.node_guid, 0U);
    EXPECT_EQ(asked.num_paths, 1U);
    EXPECT_EQ(asked.port_num, 1);

    const rdma_ucm_event_resp reply = sides.reply("from the server");
    EXPECT_EQ(reply.uid, kClientUid);
    EXPECT_EQ(reply.id, sides.active);
    EXPECT_EQ(reply.param.conn.qp_num, 0x222U);
    EXPECT_EQ(data_of(reply), padded("from the server", 196));
    EXPECT_TRUE(sides.server.is_silent()) << "the client has not confirmed";

    EXPECT_EQ(sides.client.confirm(sides.active), 0);
    const rdma_ucm_event_resp established = sides.server.expect(kEstablished);
    EXPECT_EQ(established.uid, kAcceptedUid);
    EXPECT_EQ(established.id, sides.passive);
    EXPECT_TRUE(sides.client.is_silent());
}

TEST(RdmaCm, GivesAttributesThatConnectTheQps) {
    Endpoint server, client;
    CmSides sides;
    const auto to = [](Manager& manager, std::uint32_t id, Endpoint& endpoint, ibv_qp_state state) {
        ib_uverbs_qp_attr given{};
        require(manager.qp_attributes(id, state, given), "INIT_QP_ATTR");
        ibv_qp_attr wanted{};
        wanted.qp_state = state;
        wanted.path_mtu = static_cast<ibv_mtu>(given.path_mtu);
        wanted.rq_psn = given.rq_psn;
        wanted.sq_psn = given.sq_psn;
        wanted.dest_qp_num = given.dest_qp_num;
        wanted.qp_access_flags = given.qp_access_flags;
        wanted.pkey_index = given.pkey_index;
        wanted.port_num = given.port_num;
        wanted.max_rd_atomic = given.max_rd_atomic;
        wanted.max_dest_rd_atomic = given.max_dest_rd_atomic;
        wanted.timeout = given.timeout;
        wanted.retry_cnt = given.retry_cnt;
        wanted.rnr_retry = given.rnr_retry;
        wanted.ah_attr.dlid = given.ah_attr.dlid;
        wanted.ah_attr.port_num = given.ah_attr.port_num;
        wanted.ah_attr.is_global = given.ah_attr.is_global;
        std::memcpy(&wanted.ah_attr.grh.dgid, given.ah_attr.grh.dgid, 16);
        wanted.ah_attr.grh.sgid_index = given.ah_attr.grh.sgid_index;
        wanted.ah_attr.grh.hop_limit = given.ah_attr.grh.hop_limit;
        require(ibv_modify_qp(endpoint.qp.get(), &wanted, static_cast<int>(given.qp_attr_mask)),
                "the change to state " + std::to_string(state));
    };
    require(sides.client.connect(sides.active, Manager::parameters(client.qp->qp_num)), "CONNECT");
    sides.passive = sides.server.expect(kConnectRequest).id;
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
        to(sides.server, sides.passive, server, state);
    require(
        sides.server.accept(sides.passive, kAcceptedUid, Manager::parameters(server.qp->qp_num)),
        "ACCEPT");
    sides.client.expect(kConnectResponse);
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
        to(sides.client, sides.active, client, state);
    require(sides.client.confirm(sides.active), "ACCEPT as a confirmation");
    sides.server.expect(kEstablished);

    client.memory->fill(0, 64, 7);
    require(server.post_receive(1, {server.memory->sge(0, 64)}), "posting a receive");
    EXPECT_TRUE(client.run(send_of(client)));
    EXPECT_TRUE(succeeded(server.wait_receive()));
    EXPECT_TRUE(server.memory->holds(0, 64, 7));
}

TEST(RdmaCm, GivesAttributesOnlyWhenTheConnectionIsSoFar) {
    CmSides sides;
    ib_uverbs_qp_attr given{};
    EXPECT_EQ(sides.client.qp_attributes(sides.active, IBV_QPS_INIT, given), 0);
    EXPECT_EQ(given.qp_access_flags, 0U);
    EXPECT_EQ(sides.client.qp_attributes(sides.active, IBV_QPS_RTR, given), EINVAL);
    sides.request();
    EXPECT_EQ(sides.client.qp_attributes(sides.active, IBV_QPS_RTR, given), EINVAL);
    EXPECT_EQ(sides.server.qp_attributes(sides.passive, IBV_QPS_RTR, given), 0);
    EXPECT_EQ(given.dest_qp_num, 0x111U);
    EXPECT_EQ(sides.server.qp_attributes(sides.passive, IBV_QPS_SQD, given), EINVAL);
}

TEST(RdmaCm, RejectsWithDataAndReason) {
    CmSides sides;
    sides.request();
    ASSERT_EQ(sides.server.reject(sides.passive, "no"), 0);
    const rdma_ucm_event_resp rejected = sides.client.expect(kRejected);
    EXPECT_EQ(rejected.status, 28U);
    EXPECT_EQ(data_of(rejected), padded("no", 148));
    EXPECT_EQ(sides.server.accept(sides.passive, 1, Manager::parameters(1)), EINVAL);
    EXPECT_EQ(sides.server.reject(sides.passive), EINVAL) << "once";

    CmSides others;
    others.request();
    EXPECT_EQ(others.server.reject(others.passive, {}, 9), EINVAL) << "no reason of a program's";
    ASSERT_EQ(others.server.reject(others.passive, {}, 35), 0);
    EXPECT_EQ(others.client.expect(kRejected).status, 35U);
}

TEST(RdmaCm, RejectsWhereNobodyListens) {
    Manager manager;
    std::uint16_t port = 0;
    const std::uint32_t listener = manager.listener(kServerUid, &port);
    ASSERT_EQ(manager.destroy(listener), 0);
    const std::uint32_t id = manager.routed(kClientUid, port);
    ASSERT_EQ(manager.connect(id, Manager::parameters(1)), 0);
    EXPECT_EQ(manager.expect(kRejected).status, 8U);

    const std::uint32_t datagrams = manager.routed(kClientUid, port, RDMA_PS_UDP);
    ASSERT_EQ(manager.connect(datagrams, Manager::parameters(1)), 0);
    EXPECT_EQ(manager.expect(kUnreachable).status, 1U);
}

TEST(RdmaCm, BacklogBoundsWhatIsQueued) {
    Manager server, client;
    std::uint16_t port = 0;
    server.listener(kServerUid, &port, RDMA_PS_TCP, 2);
    const auto ask = [&] {
        const std::uint32_t id = client.routed(kClientUid, port);
        require(client.connect(id, Manager::parameters(1)), "CONNECT");
    };
    ask();
    ask();
    EXPECT_TRUE(client.is_silent());
    ask();
    EXPECT_EQ(client.expect(kRejected).status, 28U);
    server.expect(kConnectRequest);
    ask();
    EXPECT_TRUE(client.is_silent()) << "a request was taken, so there is room for one";
}

TEST(RdmaCm, DisconnectsBothSides) {
    for (const bool by_client : {true, false}) {
        CmSides sides;
        sides.establish();
        ASSERT_EQ(by_client ? sides.client.disconnect(sides.active)
                            : sides.server.disconnect(sides.passive),
                  0);
        EXPECT_EQ(sides.client.expect(kDisconnected).id, sides.active);
        EXPECT_EQ(sides.server.expect(kDisconnected).id, sides.passive);
        EXPECT_EQ(sides.server.disconnect(sides.passive), 0) << "the other side's answer";
        EXPECT_EQ(sides.client.expect(kTimeWaitExit).id, sides.active);
        EXPECT_EQ(sides.server.expect(kTimeWaitExit).id, sides.passive);
        EXPECT_TRUE(sides.client.is_silent());
    }
}

TEST(RdmaCm, DestroyingTellsThePeer) {
    CmSides requested;
    requested.request();
    ASSERT_EQ(requested.server.destroy(requested.passive), 0);
    EXPECT_EQ(requested.client.expect(kRejected).status, 28U);

    CmSides withdrawn;
    withdrawn.request();
    ASSERT_EQ(withdrawn.client.destroy(withdrawn.active), 0);
    EXPECT_TRUE(withdrawn.server.is_silent()) << "the program does not know the id yet";
    EXPECT_EQ(withdrawn.server.accept(withdrawn.passive, 1, Manager::parameters(1)), EINVAL);

    CmSides replied;
    replied.request();
    replied.reply();
    ASSERT_EQ(replied.client.destroy(replied.active), 0);
    EXPECT_EQ(replied.server.expect(kRejected).id, replied.passive);

    CmSides established;
    established.establish();
    established.client.close();
    EXPECT_EQ(established.server.expect(kDisconnected).id, established.passive);
}

TEST(RdmaCm, DestroyingAListenerEndsItsQueuedRequests) {
    CmSides sides;
    ASSERT_EQ(sides.client.connect(sides.active, Manager::parameters(1)), 0);
    ASSERT_TRUE(sides.server.readable(1000));
    std::uint32_t reported = 1;
    ASSERT_EQ(sides.server.destroy(sides.listener, &reported), 0);
    EXPECT_EQ(reported, 0U);
    EXPECT_EQ(sides.client.expect(kRejected).status, 28U);
    EXPECT_TRUE(sides.server.is_silent()) << "an event of an id that is gone";
}

TEST(RdmaCm, CountsTheEventsThatItGaveOut) {
    CmSides sides;
    sides.request();
    sides.reply();
    std::uint32_t reported = 0;
    ASSERT_EQ(sides.client.disconnect(sides.active), 0);
    // DISCONNECTED waits, and goes with the id.
    EXPECT_TRUE(sides.client.readable());
    ASSERT_EQ(sides.client.destroy(sides.active, &reported), 0);
    EXPECT_EQ(reported, 3U) << "address, route, response";
    EXPECT_TRUE(sides.client.is_silent());
    ASSERT_EQ(sides.server.destroy(sides.listener, &reported), 0);
    EXPECT_EQ(reported, 1U) << "a request counts for the listener";
    sides.server.expect(kDisconnected);
    ASSERT_EQ(sides.server.destroy(sides.passive, &reported), 0);
    EXPECT_EQ(reported, 1U);
}

TEST(RdmaCm, MovesAnIdWithItsEvents) {
    CmSides sides;
    sides.establish();
    ASSERT_EQ(sides.server.disconnect(sides.passive), 0);
    ASSERT_TRUE(sides.client.readable(1000));
    const Manager other;
    std::uint32_t reported = 0;
    ASSERT_EQ(other.migrate(sides.active, sides.client, &reported), 0);
    EXPECT_EQ(reported, 3U);
    EXPECT_EQ(sides.client.disconnect(sides.active), EINVAL) << "of another channel";
    EXPECT_TRUE(sides.client.is_silent());
    EXPECT_EQ(other.expect(kDisconnected).uid, kClientUid);
    EXPECT_EQ(other.migrate(sides.active, sides.client, &reported), EINVAL);
}

TEST(RdmaCm, MovingToItsOwnChannelChangesNothing) {
    CmSides sides;
    sides.establish();
    ASSERT_EQ(sides.server.disconnect(sides.passive), 0);
    ASSERT_TRUE(sides.client.readable(1000));
    std::uint32_t reported = 0;
    ASSERT_EQ(sides.client.migrate(sides.active, sides.client, &reported), 0);
    EXPECT_EQ(reported, 3U);
    EXPECT_EQ(sides.client.expect(kDisconnected).uid, kClientUid);
}

TEST(RdmaCm, WaitsOnlyIfItMay) {
    const Manager impatient(O_NONBLOCK);
    rdma_ucm_event_resp event;
    EXPECT_EQ(impatient.get_event(event), EAGAIN);

    Manager patient;
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        const std::uint32_t id = patient.create(kClientUid);
        require(patient.resolve(id, address_of("127.0.0.1", 7)), "RESOLVE_IP");
        require(patient.resolve_route(id), "RESOLVE_ROUTE");
    });
    EXPECT_EQ(patient.get_event(event), 0);
    EXPECT_EQ(event.event, kAddressResolved);
    later.join();
    EXPECT_TRUE(patient.readable()) << "there is a second event";
    patient.expect(kRouteResolved);
    EXPECT_TRUE(patient.is_silent());
}

// The kernel keeps a channel open for a thread that waits there, so closing it wakes nobody.
TEST(RdmaCm, AThreadThatWaitsOutlivesItsChannel) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "it closes a descriptor that another thread uses, which is a race by design";
#endif
    struct sigaction action {};
    action.sa_handler = [](int) {};
    ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
    Manager manager;
    std::atomic<int> error{-1};
    const int fd = manager.fd();
    std::thread waiting([&error, fd] {
        rdma_ucm_event_resp event{};
        struct {
            rdma_ucm_cmd_hdr header;
            rdma_ucm_get_event body;
        } message{{RDMA_USER_CM_CMD_GET_EVENT, sizeof message.body, sizeof event},
                  {reinterpret_cast<std::uintptr_t>(&event)}};
        error = write(fd, &message, sizeof message) < 0 ? errno : 0;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    manager.close();
    std::vector<int> others;  // with the channel's number among them
    for (int i = 0; i < 4; ++i)
        others.push_back(open("/", O_RDONLY | O_DIRECTORY));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(error.load(), -1) << "it still waits";
    while (error.load() == -1) {
        pthread_kill(waiting.native_handle(), SIGUSR1);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    waiting.join();
    EXPECT_EQ(error.load(), EINTR);
    for (const int other : others)
        close(other);
}

}  // namespace
}  // namespace softhca::test
