// SPDX-License-Identifier: BSD-2-Clause
// Errors that the requester finds by itself (IBTA 10.10.2, 9.9.2): local protection (bad key, out
// of bounds, another PD, no local write) and local length. The work request fails with its status,
// the QP goes to ERR (RC, XRC) or SQE (UC, UD), later requests flush, and the peer learns nothing.

#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

using std::chrono::milliseconds;

class LocalErrors : public testing::TestWithParam<Transport> {
protected:
    static Endpoint::Options options() {
        Endpoint::Options options;
        options.transport = GetParam();
        return options;
    }
    static bool reliable() { return GetParam() == Transport::kRc || GetParam() == Transport::kXrc; }

    // The state of the sender after its own error, that the peer is untouched, and that what was
    // posted behind the failed request is flushed.
    static void expect_only_the_sender_failed(Pair& pair) {
        EXPECT_EQ(state_of(pair.a.qp.get()), reliable() ? IBV_QPS_ERR : IBV_QPS_SQE);
        EXPECT_EQ(state_of(pair.b.receiver()),
                  GetParam() == Transport::kXrc ? IBV_QPS_RTR : IBV_QPS_RTS);
        EXPECT_FALSE(poll_for(pair.b.receive_cq.get(), milliseconds(20)))
            << "the peer must not notice an error that was found before anything was sent";
        Work work;
        work.id = 99;
        work.sges = {pair.a.memory->sge(0, 8)};
        ASSERT_EQ(pair.a.post(work), 0);
        const ibv_wc wc = pair.a.wait_send();
        EXPECT_TRUE(has_status(wc, IBV_WC_WR_FLUSH_ERR, kVendorFlush));
        EXPECT_EQ(wc.wr_id, 99u);
    }

    static void expect_local_protection(Pair& pair, const ibv_sge& sge) {
        ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 4096)}), 0);
        Work work;
        work.id = 5;
        work.sges = {sge};
        work.flags = 0;  // an error completes whether signalled or not
        ASSERT_EQ(pair.a.post(work), 0);
        const ibv_wc wc = pair.a.wait_send();
        EXPECT_TRUE(has_status(wc, IBV_WC_LOC_PROT_ERR, kVendorLocalProtection));
        EXPECT_EQ(wc.wr_id, 5u);
        EXPECT_EQ(wc.qp_num, pair.a.qp->qp_num);
        expect_only_the_sender_failed(pair);
    }
};

TEST_P(LocalErrors, UnknownKey) {
    Pair pair(options());
    ibv_sge sge = pair.a.memory->sge(0, 16);
    sge.lkey ^= 0x5a00;
    expect_local_protection(pair, sge);
}

TEST_P(LocalErrors, KeyWithAWrongVariant) {
    Pair pair(options());
    ibv_sge sge = pair.a.memory->sge(0, 16);
    sge.lkey ^= 1;  // the low byte is the variant of the memory key
    expect_local_protection(pair, sge);
}

TEST_P(LocalErrors, OneByteBeyondTheRegion) {
    Pair pair(options());
    expect_local_protection(pair, pair.a.memory->sge(pair.a.memory->size() - 15, 16));
}

TEST_P(LocalErrors, OneByteBeforeTheRegion) {
    Pair pair(options());
    ibv_sge sge = pair.a.memory->sge(0, 16);
    --sge.addr;
    expect_local_protection(pair, sge);
}

TEST_P(LocalErrors, AddressThatWrapsAround) {
    Pair pair(options());
    ibv_sge sge = pair.a.memory->sge(0, 4096);
    sge.addr = ~0ULL - 100;
    expect_local_protection(pair, sge);
}

TEST_P(LocalErrors, RegionOfAnotherProtectionDomain) {
    Pair pair(options());
    const Owned<ibv_pd> other(check(ibv_alloc_pd(pair.a.context.get()), "ibv_alloc_pd"));
    const Memory memory(other.get(), 4096);
    expect_local_protection(pair, memory.sge(0, 16));
}

TEST_P(LocalErrors, DeregisteredRegion) {
    Pair pair(options());
    Memory memory(pair.a.pd.get(), 4096);
    const ibv_sge sge = memory.sge(0, 16);
    memory.deregister();
    expect_local_protection(pair, sge);
}

// The last of several SGEs is bad: nothing of the message may arrive.
TEST_P(LocalErrors, LastPieceOfAList) {
    Pair pair(options());
    std::memset(pair.b.memory->data(), 0xee, 8192);
    ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 4096)}), 0);
    ibv_sge bad = pair.a.memory->sge(64, 16);
    bad.lkey ^= 0x5a00;
    Work work;
    work.sges = {pair.a.memory->sge(0, 16), pair.a.memory->sge(32, 16), bad};
    ASSERT_EQ(pair.a.post(work), 0);
    EXPECT_TRUE(has_status(pair.a.wait_send(), IBV_WC_LOC_PROT_ERR, kVendorLocalProtection));
    EXPECT_FALSE(poll_for(pair.b.receive_cq.get(), milliseconds(20)));
}

TEST_P(LocalErrors, ReadOnlyRegionMaySend) {
    Pair pair(options());
    const Memory memory(pair.a.pd.get(), 4096, 0);
    ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 4096)}), 0);
    Work work;
    work.sges = {memory.sge(0, 16)};
    EXPECT_TRUE(pair.a.run(work)) << "sending needs no local write";
}

TEST_P(LocalErrors, ReadAndAtomicIntoARegionWithoutLocalWrite) {
    if (!reliable()) GTEST_SKIP() << "no RDMA READ";
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
        SCOPED_TRACE(testing::Message() << "opcode " << opcode);
        Pair pair(options());
        const Memory memory(pair.a.pd.get(), 4096, IBV_ACCESS_REMOTE_READ);
        std::memset(memory.data(), 0xee, 4096);
        Work work;
        work.opcode = opcode;
        work.sges = {memory.sge(0, 8)};
        ASSERT_EQ(pair.a.post(work), 0);
        const ibv_wc wc = pair.a.wait_send();
        EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR) << describe(wc);
        EXPECT_TRUE(memory.untouched(0, 4096, 0xee));
        EXPECT_EQ(state_of(pair.a.qp.get()), IBV_QPS_ERR);
    }
}

// port_attr.max_msg_sz is 2^30 on ConnectX: thirty SGEs of one region make more than that.
TEST_P(LocalErrors, MessageLongerThanThePortAllows) {
    Endpoint::Options long_options = options();
    long_options.send_sges = 30;
    long_options.memory = 40u << 20;
    if (GetParam() == Transport::kUd) {
        long_options.memory = 1 << 16;
        long_options.mtu = IBV_MTU_4096;
    }
    Pair pair(long_options);
    Work work;
    if (GetParam() == Transport::kUd) {
        work.sges = {pair.a.memory->sge(0, 4097)};  // one byte more than the MTU
    } else {
        ASSERT_LE(port_attributes(pair.a.context.get()).max_msg_sz, 1u << 30);
        work.sges.assign(30, pair.a.memory->sge(0, 40u << 20));
    }
    ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 8192)}), 0);
    ASSERT_EQ(pair.a.post(work), 0);
    const ibv_wc wc = pair.a.wait_send();
    EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR) << describe(wc);
    expect_only_the_sender_failed(pair);
}

// IBTA 10.3.1.6: in SQE the receive queue works on, and a modify to RTS repairs the send queue.
TEST_P(LocalErrors, UnreliableQueuePairRecoversFromSqe) {
    if (reliable()) GTEST_SKIP() << "RC and XRC go to ERR";
    Pair pair(options());
    ibv_sge bad = pair.a.memory->sge(0, 16);
    bad.lkey ^= 0x5a00;
    Work work;
    work.sges = {bad};
    ASSERT_EQ(pair.a.post(work), 0);
    EXPECT_EQ(pair.a.wait_send().status, IBV_WC_LOC_PROT_ERR);
    ASSERT_EQ(state_of(pair.a.qp.get()), IBV_QPS_SQE);

    ASSERT_EQ(pair.a.post_receive(3, {pair.a.memory->sge(8192, 4096)}), 0);
    work.sges = {pair.b.memory->sge(0, 16)};
    ASSERT_TRUE(pair.b.run(work));
    EXPECT_TRUE(succeeded(pair.a.wait_receive()));

    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(ibv_modify_qp(pair.a.qp.get(), &attributes, IBV_QP_STATE), 0);
    ASSERT_EQ(pair.b.post_receive(4, {pair.b.memory->sge(8192, 4096)}), 0);
    pair.a.memory->fill(0, 16, 4);
    work.sges = {pair.a.memory->sge(0, 16)};
    EXPECT_TRUE(pair.a.run(work));
    EXPECT_TRUE(succeeded(pair.b.wait_receive()));
    EXPECT_TRUE(pair.b.memory->holds(8192 + pair.b.grh(), 16, 4));
}

INSTANTIATE_TEST_SUITE_P(Each, LocalErrors,
                         testing::Values(Transport::kRc, Transport::kUc, Transport::kUd,
                                         Transport::kXrc),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace softhca::test
