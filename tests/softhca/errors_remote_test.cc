// SPDX-License-Identifier: BSD-2-Clause
// Errors that the responder finds (IBTA 9.7.5.2, table 60 of NAK codes): remote access, remote
// invalid request, remote operational. Status and vendor syndrome at the requester, what the
// responder's completions say, the state of both QPs, the asynchronous event, and that not a byte
// was moved.

#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

class RemoteErrors : public testing::TestWithParam<Transport> {
protected:
    static Endpoint::Options options() {
        Endpoint::Options options;
        options.transport = GetParam();
        return options;
    }

    // Posts `work` at a, expects the error there, and that b's QP went to ERR, flushing a receive.
    static void expect_error(Pair& pair, Work work, ibv_wc_status status, std::uint32_t vendor) {
        std::memset(pair.b.memory->data(), 0xee, pair.b.memory->size());
        work.id = 3;
        ASSERT_EQ(pair.a.post(work), 0);
        Work behind;
        behind.id = 4;
        behind.flags = 0;
        behind.sges = {pair.a.memory->sge(0, 8)};
        EXPECT_EQ(pair.a.post(behind), 0);
        const ibv_wc wc = pair.a.wait_send();
        EXPECT_TRUE(has_status(wc, status, vendor));
        EXPECT_EQ(wc.wr_id, 3u);
        const ibv_wc flushed = pair.a.wait_send();
        EXPECT_TRUE(has_status(flushed, IBV_WC_WR_FLUSH_ERR, kVendorFlush));
        EXPECT_EQ(flushed.wr_id, 4u);
        EXPECT_EQ(state_of(pair.a.qp.get()), IBV_QPS_ERR);
        EXPECT_EQ(state_of(pair.b.receiver()), IBV_QPS_ERR);
        EXPECT_TRUE(pair.b.memory->untouched(0, pair.b.memory->size(), 0xee));
        if (!pair.b.srq) {
            ASSERT_EQ(pair.b.post_receive(8, {pair.b.memory->sge(0, 64)}), 0);
            EXPECT_TRUE(has_status(pair.b.wait_receive(), IBV_WC_WR_FLUSH_ERR, kVendorFlush));
        }
    }

    static Work work_of(Pair& pair, ibv_wr_opcode opcode, std::size_t length = 8) {
        Work work;
        work.opcode = opcode;
        work.sges = {pair.a.memory->sge(0, length)};
        return work;
    }

    static constexpr ibv_wr_opcode kRemote[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                IBV_WR_ATOMIC_CMP_AND_SWP,
                                                IBV_WR_ATOMIC_FETCH_AND_ADD};
};

TEST_P(RemoteErrors, AccessWithAnUnknownKey) {
    for (const ibv_wr_opcode opcode : kRemote) {
        SCOPED_TRACE(testing::Message() << "opcode " << opcode);
        Pair pair(options());
        Work work = work_of(pair, opcode);
        work.rkey = pair.b.memory->mr()->rkey ^ 0x5a00;
        expect_error(pair, work, IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess);
        // IBTA 11.6.3.2: the responder gets an event, though it made no call.
        EXPECT_TRUE(got_qp_event(pair.b.context.get(), IBV_EVENT_QP_ACCESS_ERR, pair.b.receiver()));
    }
}

TEST_P(RemoteErrors, AccessOutOfBounds) {
    for (const ibv_wr_opcode opcode : kRemote) {
        SCOPED_TRACE(testing::Message() << "opcode " << opcode);
        {
            Pair pair(options());
            Work work = work_of(pair, opcode);
            work.remote = pair.b.memory->address(pair.b.memory->size());
            expect_error(pair, work, IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess);
        }
        Pair pair(options());
        Work work = work_of(pair, opcode);
        work.remote = ~0ULL - 7;
        expect_error(pair, work, IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess);
    }
    Pair pair(options());
    Work work = work_of(pair, IBV_WR_RDMA_WRITE, 4096);
    work.remote = pair.b.memory->address(pair.b.memory->size() - 4095);
    expect_error(pair, work, IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess);
}

TEST_P(RemoteErrors, AccessThatTheRegionDoesNotGrant) {
    for (const ibv_wr_opcode opcode : kRemote) {
        SCOPED_TRACE(testing::Message() << "opcode " << opcode);
        Pair pair(options());
        const int missing = opcode == IBV_WR_RDMA_WRITE  ? IBV_ACCESS_REMOTE_WRITE
                            : opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
                                                         : IBV_ACCESS_REMOTE_ATOMIC;
        const Memory memory(pair.b.pd.get(), 4096, kAllAccess & ~missing);
        std::memset(memory.data(), 0xee, 4096);
        Work work = work_of(pair, opcode);
        work.remote = memory.address();
        work.rkey = memory.mr()->rkey;
        expect_error(pair, work, IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess);
        EXPECT_TRUE(memory.untouched(0, 4096, 0xee));
    }
}

TEST_P(RemoteErrors, AccessToARegionOfAnotherProtectionDomain) {
    Pair pair(options());
    const Owned<ibv_pd> other(check(ibv_alloc_pd(pair.b.context.get()), "ibv_alloc_pd"));
    const Memory memory(other.get(), 4096);
    Work work = work_of(pair, IBV_WR_RDMA_WRITE);
    work.remote = memory.address();
    work.rkey = memory.mr()->rkey;
    expect_error(pair, work, IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess);
}

TEST_P(RemoteErrors, AccessToADeregisteredRegion) {
    Pair pair(options());
    Memory memory(pair.b.pd.get(), 4096);
    Work work = work_of(pair, IBV_WR_RDMA_WRITE);
    work.remote = memory.address();
    work.rkey = memory.mr()->rkey;
    ASSERT_TRUE(pair.a.run(work));
    memory.deregister();
    expect_error(pair, work, IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess);
}

// IBTA C9-88: the key of a request of no bytes is not looked at.
TEST_P(RemoteErrors, NoBytesNeedNoKey) {
    Pair pair(options());
    Work work;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.rkey = 0xdead00;
    work.remote = 0x10;
    EXPECT_TRUE(pair.a.run(work));
    work.opcode = IBV_WR_RDMA_READ;
    EXPECT_TRUE(pair.a.run(work));
}

// The QP, not the region, forbids the operation: NAK of an invalid request (IBTA 9.7.4.1.5).
TEST_P(RemoteErrors, OperationThatTheQueuePairDoesNotGrant) {
    for (const ibv_wr_opcode opcode : kRemote) {
        SCOPED_TRACE(testing::Message() << "opcode " << opcode);
        const int missing = opcode == IBV_WR_RDMA_WRITE  ? IBV_ACCESS_REMOTE_WRITE
                            : opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
                                                         : IBV_ACCESS_REMOTE_ATOMIC;
        Endpoint::Options closed = options();
        closed.qp_access &= ~missing;
        Pair pair(options(), closed);
        expect_error(pair, work_of(pair, opcode), IBV_WC_REM_INV_REQ_ERR,
                     kVendorRemoteInvalidRequest);
    }
}

TEST_P(RemoteErrors, UnalignedAtomic) {
    for (const ibv_wr_opcode opcode : {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
        SCOPED_TRACE(testing::Message() << "opcode " << opcode);
        Pair pair(options());
        Work work = work_of(pair, opcode);
        work.remote = pair.b.memory->address(4);
        expect_error(pair, work, IBV_WC_REM_INV_REQ_ERR, kVendorRemoteInvalidRequest);
    }
}

// A message longer than the receive: local length error there, invalid request here.
TEST_P(RemoteErrors, MessageLongerThanTheReceive) {
    Pair pair(options());
    std::memset(pair.b.memory->data(), 0xee, 8192);
    ASSERT_EQ(pair.b.post_receive(6, {pair.b.memory->sge(0, 99), pair.b.memory->sge(200, 900)}), 0);
    ASSERT_EQ(pair.a.post(work_of(pair, IBV_WR_SEND, 1000)), 0);
    EXPECT_TRUE(
        has_status(pair.a.wait_send(), IBV_WC_REM_INV_REQ_ERR, kVendorRemoteInvalidRequest));
    const ibv_wc wc = pair.b.wait_receive();
    EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR) << describe(wc);
    EXPECT_EQ(wc.wr_id, 6u);
    EXPECT_EQ(state_of(pair.a.qp.get()), IBV_QPS_ERR);
    EXPECT_EQ(state_of(pair.b.receiver()), IBV_QPS_ERR);
    EXPECT_TRUE(pair.b.memory->untouched(99, 101, 0xee));
    EXPECT_TRUE(pair.b.memory->untouched(1100, 4096, 0xee));
}

// The receive itself is bad: local protection error there, remote operational error here.
TEST_P(RemoteErrors, ReceiveWithABadKey) {
    for (int bad = 0; bad < 3; ++bad) {
        SCOPED_TRACE(testing::Message() << "bad SGE " << bad);
        Pair pair(options());
        std::vector<ibv_sge> sges = {pair.b.memory->sge(0, 16), pair.b.memory->sge(64, 16),
                                     pair.b.memory->sge(128, 16)};
        sges[static_cast<std::size_t>(bad)].lkey ^= 0x5a00;
        ASSERT_EQ(pair.b.post_receive(6, sges), 0);
        ASSERT_EQ(pair.a.post(work_of(pair, IBV_WR_SEND, 48)), 0);
        EXPECT_TRUE(has_status(pair.a.wait_send(), IBV_WC_REM_OP_ERR, kVendorRemoteOperation));
        const ibv_wc wc = pair.b.wait_receive();
        EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR) << describe(wc);
        EXPECT_EQ(wc.wr_id, 6u);
        EXPECT_EQ(state_of(pair.a.qp.get()), IBV_QPS_ERR);
        EXPECT_EQ(state_of(pair.b.receiver()), IBV_QPS_ERR);
    }
}

TEST_P(RemoteErrors, ReceiveIntoARegionWithoutLocalWrite) {
    Pair pair(options());
    const Memory memory(pair.b.pd.get(), 4096, 0);
    ASSERT_EQ(pair.b.post_receive(6, {memory.sge(0, 64)}), 0);
    ASSERT_EQ(pair.a.post(work_of(pair, IBV_WR_SEND, 48)), 0);
    EXPECT_TRUE(has_status(pair.a.wait_send(), IBV_WC_REM_OP_ERR, kVendorRemoteOperation));
    EXPECT_EQ(pair.b.wait_receive().status, IBV_WC_LOC_PROT_ERR);
}

// A write with immediate whose write part fails does not use up a receive successfully.
TEST_P(RemoteErrors, WriteWithImmediateToABadKey) {
    Pair pair(options());
    ASSERT_EQ(pair.b.post_receive(6, {pair.b.memory->sge(0, 64)}), 0);
    Work work = work_of(pair, IBV_WR_RDMA_WRITE_WITH_IMM);
    work.rkey = pair.b.memory->mr()->rkey ^ 0x5a00;
    ASSERT_EQ(pair.a.post(work), 0);
    EXPECT_TRUE(has_status(pair.a.wait_send(), IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess));
    if (!pair.b.srq) {
        EXPECT_NE(pair.b.wait_receive().status, IBV_WC_SUCCESS);
    }
}

// The error of one QP is its own: a neighbour with the same CQs, PD and memory goes on.
TEST_P(RemoteErrors, DoNotTouchOtherQueuePairs) {
    Pair good(options());
    Pair bad(options());
    Work work = work_of(bad, IBV_WR_RDMA_WRITE);
    work.rkey = bad.b.memory->mr()->rkey ^ 0x5a00;
    ASSERT_EQ(bad.a.post(work), 0);
    EXPECT_NE(bad.a.wait_send().status, IBV_WC_SUCCESS);
    good.a.memory->fill(0, 100, 9);
    EXPECT_TRUE(good.a.run(work_of(good, IBV_WR_RDMA_WRITE, 100)));
    EXPECT_TRUE(good.b.memory->holds(0, 100, 9));
}

// The same between two processes: the responder sees its event and flush though it made no call.
TEST_P(RemoteErrors, ReachTheOtherProcess) {
    run_sides(
        Placement::kProcesses,
        [&](Channel& channel) {
            Endpoint e(options());
            connect_over(channel, e);
            Work work;
            work.opcode = IBV_WR_RDMA_WRITE;
            work.sges = {e.memory->sge(0, 64)};
            work.rkey = e.peer.rkey ^ 0x5a00;
            ASSERT_EQ(e.post(work), 0);
            EXPECT_TRUE(has_status(e.wait_send(), IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess));
            channel.meet();
        },
        [&](Channel& channel) {
            Endpoint e(options());
            connect_over(channel, e);
            ASSERT_EQ(e.post_receive(2, {e.memory->sge(0, 64)}), 0);
            channel.meet();
            EXPECT_TRUE(got_qp_event(e.context.get(), IBV_EVENT_QP_ACCESS_ERR, e.receiver()));
            EXPECT_EQ(state_of(e.receiver()), IBV_QPS_ERR);
            if (!e.srq) {
                EXPECT_TRUE(has_status(e.wait_receive(), IBV_WC_WR_FLUSH_ERR, kVendorFlush));
            }
        });
}

INSTANTIATE_TEST_SUITE_P(Each, RemoteErrors, testing::Values(Transport::kRc, Transport::kXrc),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace softhca::test
