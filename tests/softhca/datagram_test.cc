// SPDX-License-Identifier: BSD-2-Clause
// Rules of unreliable datagrams (IBTA 9.8.3, 10.2.5): the 40 bytes of GRH room before the payload
// and when it is filled, the Q_Key check and the privileged Q_Key, silent drops (wrong Q_Key, no
// receive, receive too small for UC and UD, unknown QP), one QP talking to many, and that an
// unreliable sender never waits.

#include <arpa/inet.h>

#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

using std::chrono::milliseconds;

Endpoint::Options datagram() {
    Endpoint::Options options;
    options.transport = Transport::kUd;
    return options;
}

TEST(Datagram, WithoutGlobalRouteLeavesTheGrhRoomOutOfTheMessage) {
    Pair pair(datagram());
    pair.a.memory->fill(0, 100, 1);
    std::memset(pair.b.memory->data(), 0xee, 512);
    ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 256)}), 0);
    ASSERT_TRUE(pair.a.run(send_of(pair.a, 100)));
    const ibv_wc wc = pair.b.wait_receive();
    ASSERT_TRUE(succeeded(wc));
    EXPECT_EQ(wc.byte_len, 140u);
    EXPECT_EQ(wc.wc_flags & IBV_WC_GRH, 0u);
    EXPECT_TRUE(pair.b.memory->holds(40, 100, 1));
    EXPECT_TRUE(pair.b.memory->untouched(140, 256, 0xee));
}

TEST(Datagram, WithGlobalRouteCarriesAGrh) {
    Pair pair(datagram());
    ibv_ah_attr route = {};
    route.dlid = pair.a.peer.lid;
    route.port_num = 1;
    route.is_global = 1;
    route.grh.dgid = pair.a.peer.gid;
    route.grh.sgid_index = 0;
    route.grh.hop_limit = 64;
    route.grh.traffic_class = 0x2c;
    route.grh.flow_label = 0x12345;
    pair.a.ah.reset(check(ibv_create_ah(pair.a.pd.get(), &route), "ibv_create_ah"));
    pair.a.memory->fill(0, 64, 2);
    ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 256)}), 0);
    ASSERT_TRUE(pair.a.run(send_of(pair.a, 64)));
    const ibv_wc wc = pair.b.wait_receive();
    ASSERT_TRUE(succeeded(wc));
    EXPECT_EQ(wc.byte_len, 104u);
    EXPECT_NE(wc.wc_flags & IBV_WC_GRH, 0u);
    EXPECT_TRUE(pair.b.memory->holds(40, 64, 2));
    ibv_grh grh;
    std::memcpy(&grh, pair.b.memory->data(), sizeof grh);
    EXPECT_EQ(ntohl(grh.version_tclass_flow), 0x62c12345u);
    EXPECT_EQ(grh.next_hdr, 0x1b) << "IBTA 8.3: the next header is a BTH";
    EXPECT_EQ(grh.hop_limit, 64);
    // BTH, DETH, payload, ICRC; the payload is a multiple of 4 here.
    EXPECT_EQ(ntohs(grh.paylen), 12 + 8 + 64 + 4);
    EXPECT_EQ(std::memcmp(&grh.sgid, &pair.b.peer.gid, 16), 0);
    EXPECT_EQ(std::memcmp(&grh.dgid, &pair.a.peer.gid, 16), 0);
    ASSERT_NO_FATAL_FAILURE(expect_answer(pair, wc, grh));
}

TEST(Datagram, WithAWrongQkeyIsDroppedAndTheReceiveKept) {
    Pair pair(datagram());
    ASSERT_EQ(pair.b.post_receive(9, {pair.b.memory->sge(0, 256)}), 0);
    pair.a.peer.qkey = 0x22222222;
    EXPECT_TRUE(pair.a.run(send_of(pair.a, 16))) << "the sender of a datagram does not learn of it";
    EXPECT_FALSE(poll_for(pair.b.receive_cq.get(), milliseconds(50)));
    EXPECT_EQ(state_of(pair.b.qp.get()), IBV_QPS_RTS);
    pair.a.peer.qkey = 0x11111111;
    EXPECT_TRUE(pair.a.run(send_of(pair.a, 17)));
    const ibv_wc wc = pair.b.wait_receive();
    EXPECT_TRUE(succeeded(wc));
    EXPECT_EQ(wc.wr_id, 9u);
    EXPECT_EQ(wc.byte_len, 57u);
}

// A work request whose Q_Key has the high bit set sends the Q_Key of its own QP (IBTA 10.2.5).
TEST(Datagram, WithTheHighBitSetUsesTheQkeyOfTheQueuePair) {
    Pair pair(datagram());
    ASSERT_EQ(pair.b.post_receive(9, {pair.b.memory->sge(0, 256)}), 0);
    pair.a.peer.qkey = 0x80000000;
    ASSERT_TRUE(pair.a.run(send_of(pair.a, 16)));
    EXPECT_TRUE(succeeded(pair.b.wait_receive()));
}

// A burst of more than the receiver has posted: it gets a moment for the rest
// (docs/reference/softhca.md, "The engine"), or any program would lose messages to the scheduler.
TEST(Datagram, ForWhichAReceiveComesInTimeArrives) {
    Pair pair(datagram());
    for (std::uint64_t id = 0; id < 4; ++id)
        ASSERT_EQ(pair.b.post_receive(id, {pair.b.memory->sge(0, 256)}), 0);
    for (int i = 0; i < 8; ++i)
        ASSERT_EQ(pair.a.post(send_of(pair.a, 16)), 0);
    for (std::uint64_t id = 0; id < 8; ++id) {
        const ibv_wc wc = pair.b.wait_receive();
        ASSERT_TRUE(succeeded(wc));
        EXPECT_EQ(wc.wr_id, id);
        ASSERT_EQ(pair.b.post_receive(id + 4, {pair.b.memory->sge(0, 256)}), 0);
    }
    for (int i = 0; i < 8; ++i)
        EXPECT_TRUE(succeeded(pair.a.wait_send()));
}

// Once, then its sender goes on at full speed: a hundred would take five seconds.
TEST(Datagram, WithoutAReceiveIsDropped) {
    Pair pair(datagram());
    for (int i = 0; i < 100; ++i)
        ASSERT_TRUE(pair.a.run(send_of(pair.a, 16)));
    ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 256)}), 0);
    EXPECT_FALSE(poll_for(pair.b.receive_cq.get(), milliseconds(50))) << "a late delivery";
    ASSERT_TRUE(pair.a.run(send_of(pair.a, 16)));
    EXPECT_TRUE(succeeded(pair.b.wait_receive()));
}

// A message without a receiver is held for a moment. What is posted behind it goes out, too, if the
// program destroys the QP meanwhile: an adapter would have sent it.
TEST(Datagram, BehindOneThatIsHeldArrivesIfTheSenderIsDestroyed) {
    Endpoint idle(datagram()), receiver(datagram());
    receiver.connect(receiver.address());
    idle.connect(idle.address());
    for (std::uint64_t id = 0; id < 10; ++id)
        ASSERT_EQ(receiver.post_receive(id, {receiver.memory->sge(0, 256)}), 0);
    {
        Endpoint sender(datagram());
        sender.connect(idle.address());
        ASSERT_EQ(sender.post(send_of(sender, 16)), 0);
        sender.peer = receiver.address();
        for (int i = 0; i < 10; ++i)
            ASSERT_EQ(sender.post(send_of(sender, 16)), 0);
    }
    for (std::uint64_t id = 0; id < 10; ++id)
        EXPECT_TRUE(succeeded(receiver.wait_receive()));
}

TEST(Datagram, ToAMissingQueuePairIsDropped) {
    Pair pair(datagram());
    pair.a.peer.target_qpn = 0xfffff0;
    EXPECT_TRUE(pair.a.run(send_of(pair.a, 16)));
    EXPECT_EQ(state_of(pair.a.qp.get()), IBV_QPS_RTS);
}

// To a QP of another transport: dropped, and the other QP is not disturbed.
TEST(Datagram, ToAQueuePairOfAnotherTransportIsDropped) {
    Pair datagrams(datagram());
    Pair reliable;
    ASSERT_EQ(reliable.b.post_receive(1, {reliable.b.memory->sge(0, 256)}), 0);
    datagrams.a.peer.target_qpn = reliable.b.qp->qp_num;
    EXPECT_TRUE(datagrams.a.run(send_of(datagrams.a, 16)));
    EXPECT_FALSE(poll_for(reliable.b.receive_cq.get(), milliseconds(50)));
    reliable.a.memory->fill(0, 16, 3);
    EXPECT_TRUE(reliable.a.run(send_of(reliable.a, 16)));
    EXPECT_TRUE(succeeded(reliable.b.wait_receive()));
    EXPECT_TRUE(reliable.b.memory->holds(0, 16, 3));
}

// One UD QP serves many: the completion tells them apart.
TEST(Datagram, FromManySendersTellsThemApart) {
    Endpoint receiver(datagram());
    receiver.connect(receiver.address());
    constexpr std::uint64_t kSenders = 8;
    std::vector<std::unique_ptr<Endpoint>> senders;
    for (std::uint64_t i = 0; i < kSenders; ++i) {
        ASSERT_EQ(receiver.post_receive(i, {receiver.memory->sge(i * 256, 256)}), 0);
        senders.push_back(std::make_unique<Endpoint>(datagram(), &receiver));
        senders.back()->connect(receiver.address());
    }
    for (std::uint32_t i = 0; i < kSenders; ++i) {
        senders[i]->memory->fill(0, 40 + i, i);
        ASSERT_TRUE(senders[i]->run(send_of(*senders[i], 40 + i)));
    }
    for (std::uint32_t i = 0; i < kSenders; ++i) {
        const ibv_wc wc = receiver.wait_receive();
        ASSERT_TRUE(succeeded(wc));
        EXPECT_EQ(wc.wr_id, i) << "in the order in which they were sent";
        EXPECT_EQ(wc.src_qp, senders[i]->qp->qp_num);
        EXPECT_TRUE(receiver.memory->holds(i * 256 + 40, 40 + i, i));
    }
}

// UC loses a message that finds no receive; the connection goes on.
TEST(UnreliableConnection, LosesASendWithoutAReceiveAndGoesOn) {
    Endpoint::Options options;
    options.transport = Transport::kUc;
    Pair pair(options);
    for (int i = 0; i < 20; ++i)
        ASSERT_TRUE(pair.a.run(send_of(pair.a, 9000)));
    ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 9000)}), 0);
    EXPECT_FALSE(poll_for(pair.b.receive_cq.get(), milliseconds(50)));
    pair.a.memory->fill(0, 9000, 4);
    ASSERT_TRUE(pair.a.run(send_of(pair.a, 9000)));
    EXPECT_TRUE(succeeded(pair.b.wait_receive()));
    EXPECT_TRUE(pair.b.memory->holds(0, 9000, 4));
    EXPECT_EQ(state_of(pair.b.qp.get()), IBV_QPS_RTS);
}

// A write that UC may not do is dropped; nobody goes to error (IBTA 9.8.2.2.7 drops the packet).
TEST(UnreliableConnection, DropsAWriteToABadKey) {
    Endpoint::Options options;
    options.transport = Transport::kUc;
    Pair pair(options);
    std::memset(pair.b.memory->data(), 0xee, 4096);
    Work work = send_of(pair.a, 64);
    work.opcode = IBV_WR_RDMA_WRITE;
    work.rkey = pair.b.memory->mr()->rkey ^ 0xff00;
    EXPECT_TRUE(pair.a.run(work));
    EXPECT_EQ(state_of(pair.a.qp.get()), IBV_QPS_RTS);
    work.rkey = 0;
    work.remote = pair.b.memory->address(2048);
    pair.a.memory->fill(0, 64, 5);
    EXPECT_TRUE(pair.a.run(work));
    EXPECT_TRUE(pair.b.memory->untouched(0, 2048, 0xee));
    EXPECT_EQ(state_of(pair.a.qp.get()), IBV_QPS_RTS);
}

}  // namespace
}  // namespace softhca::test
