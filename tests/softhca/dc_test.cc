// SPDX-License-Identifier: BSD-2-Clause
// Dynamically connected transport: initiators (DCI) whose requests each name a target (DCT) and its
// key, by mlx5dv_create_qp and mlx5dv_wr_set_dc_addr.
#include <cstring>
#include <thread>

#include "dc_fixture.h"

namespace softhca::test {
namespace {

TEST(Dc, TargetsGetTheirNumberWithTheStateRtr) {
    Objects objects;
    const Owned<ibv_qp> fresh = objects.make(MLX5DV_DCTYPE_DCT, kDcKey);
    EXPECT_EQ(fresh->qp_num, 0U);
    const Target target;
    EXPECT_NE(target.qp->qp_num, 0U);
    EXPECT_EQ(state_of(target.qp.get()), IBV_QPS_RTR);
}

TEST(Dc, MovesMessagesOfAllKinds) {
    Target target;
    Initiator initiator;
    const Dct to = target.name();
    initiator.memory.fill(0, 4096, 1);
    target.post_receive(1, 0, 4096);
    initiator.send(to, 0, 4096);
    EXPECT_TRUE(succeeded(initiator.wait()));
    const ibv_wc received = target.wait();
    EXPECT_TRUE(succeeded(received));
    EXPECT_EQ(received.byte_len, 4096U);
    EXPECT_EQ(received.qp_num, to.number);
    EXPECT_TRUE(target.memory.holds(0, 4096, 1));

    const std::uint32_t rkey = target.memory.mr()->rkey;
    initiator.memory.fill(8192, 3000, 2);
    initiator.post(to, 8192, 3000, [&](ibv_qp_ex* extended) {
        ibv_wr_rdma_write(extended, rkey, target.memory.address(8192));
    });
    EXPECT_TRUE(succeeded(initiator.wait()));
    EXPECT_TRUE(target.memory.holds(8192, 3000, 2));

    target.post_receive(2, 0, 0);
    initiator.post(to, 8192, 16, [&](ibv_qp_ex* extended) {
        ibv_wr_rdma_write_imm(extended, rkey, target.memory.address(16384), htobe32(77));
    });
    EXPECT_TRUE(succeeded(initiator.wait()));
    const ibv_wc immediate = target.wait();
    EXPECT_EQ(immediate.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(be32toh(immediate.imm_data), 77U);

    target.memory.fill(20000, 500, 3);
    initiator.post(to, 30000, 500, [&](ibv_qp_ex* extended) {
        ibv_wr_rdma_read(extended, rkey, target.memory.address(20000));
    });
    EXPECT_TRUE(succeeded(initiator.wait()));
    EXPECT_TRUE(initiator.memory.holds(30000, 500, 3));

    const std::uint64_t before = 40;
    std::memcpy(target.memory.data() + 4096, &before, sizeof before);
    initiator.post(to, 40000, 8, [&](ibv_qp_ex* extended) {
        ibv_wr_atomic_fetch_add(extended, rkey, target.memory.address(4096), 2);
    });
    EXPECT_TRUE(succeeded(initiator.wait()));
    std::uint64_t old = 0, now = 0;
    std::memcpy(&old, initiator.memory.data() + 40000, sizeof old);
    std::memcpy(&now, target.memory.data() + 4096, sizeof now);
    EXPECT_EQ(old, 40U);
    EXPECT_EQ(now, 42U);
}

TEST(Dc, OneInitiatorReachesManyTargets) {
    Target first(1), second(2), third(3);
    Initiator initiator;
    Target* const all[] = {&first, &second, &third};
    for (unsigned i = 0; i < 30; ++i) {
        Target& target = *all[i % 3];
        initiator.memory.fill(0, 100, i);
        target.post_receive(i, 0, 100);
        initiator.send(target.name(), 0, 100);
        EXPECT_TRUE(succeeded(initiator.wait()));
        EXPECT_EQ(target.wait().wr_id, i);
        EXPECT_TRUE(target.memory.holds(0, 100, i));
    }
}

TEST(Dc, ManyInitiatorsReachOneTargetAtATime) {
    constexpr unsigned kThreads = 4, kMessages = 400, kBytes = 256;
    Target target;
    std::vector<std::thread> threads;
    std::atomic<unsigned> failed{0};
    for (unsigned thread = 0; thread < kThreads; ++thread)
        threads.emplace_back([&, thread] {
            Initiator initiator;
            for (unsigned i = 0; i < kMessages; ++i) {
                initiator.memory.fill(0, kBytes, thread * kMessages + i);
                std::memcpy(initiator.memory.data(), &thread, sizeof thread);
                std::memcpy(initiator.memory.data() + 4, &i, sizeof i);
                initiator.send(target.name(), 0, kBytes);
                if (initiator.wait().status != IBV_WC_SUCCESS) ++failed;
            }
        });
    unsigned posted = 0, next[kThreads] = {};
    for (; posted < 64; ++posted)
        target.post_receive(posted, posted * kBytes, kBytes);
    for (unsigned seen = 0; seen < kThreads * kMessages; ++seen) {
        const ibv_wc wc = target.wait();
        ASSERT_TRUE(succeeded(wc));
        const std::size_t at = wc.wr_id * kBytes;
        unsigned thread, i;
        std::memcpy(&thread, target.memory.data() + at, sizeof thread);
        std::memcpy(&i, target.memory.data() + at + 4, sizeof i);
        ASSERT_LT(thread, kThreads);
        ASSERT_EQ(i, next[thread]++) << "the messages of one initiator are in order";
        for (std::size_t byte = 8; byte < kBytes; ++byte)
            ASSERT_EQ(target.memory.data()[at + byte], pattern(thread * kMessages + i, byte));
        target.post_receive(wc.wr_id, at, kBytes);
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(failed.load(), 0U);
}

TEST(Dc, AWrongKeyFailsTheInitiatorAlone) {
    Target target;
    Initiator initiator, other;
    Dct wrong = target.name();
    ++wrong.key;
    target.post_receive(1, 0, 64);
    initiator.send(wrong, 0, 64);
    EXPECT_EQ(initiator.wait().status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(state_of(initiator.qp.get()), IBV_QPS_ERR);
    EXPECT_EQ(state_of(target.qp.get()), IBV_QPS_RTR);
    other.send(target.name(), 0, 64);
    EXPECT_TRUE(succeeded(other.wait()));
    EXPECT_EQ(target.wait().wr_id, 1U) << "the refused message took no receive";

    ibv_qp_attr reset{};
    reset.qp_state = IBV_QPS_RESET;
    require(ibv_modify_qp(initiator.qp.get(), &reset, IBV_QP_STATE), "DCI to RESET");
    initiator.to_ready();
    target.post_receive(2, 0, 64);
    initiator.send(target.name(), 0, 64);
    EXPECT_TRUE(succeeded(initiator.wait()));
    EXPECT_EQ(target.wait().wr_id, 2U);
}

TEST(Dc, ErrorsOfARequestFailTheInitiatorAlone) {
    Target target;
    Initiator initiator;
    initiator.post(target.name(), 0, 64, [&](ibv_qp_ex* extended) {
        ibv_wr_rdma_write(extended, target.memory.mr()->rkey + 1, target.memory.address(0));
    });
    EXPECT_EQ(initiator.wait().status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(state_of(target.qp.get()), IBV_QPS_RTR);
    Target closed(kDcKey, IBV_ACCESS_REMOTE_READ);
    Initiator another;
    another.post(closed.name(), 0, 64, [&](ibv_qp_ex* extended) {
        ibv_wr_rdma_write(extended, closed.memory.mr()->rkey, closed.memory.address(0));
    });
    EXPECT_EQ(another.wait().status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(state_of(closed.qp.get()), IBV_QPS_RTR);
}

TEST(Dc, WaitsForAReceive) {
    Target target;
    Initiator initiator;
    initiator.memory.fill(0, 64, 9);
    initiator.send(target.name(), 0, 64);
    EXPECT_FALSE(poll_for(initiator.cq.get(), std::chrono::milliseconds(20)));
    target.post_receive(1, 0, 64);
    EXPECT_TRUE(succeeded(initiator.wait()));
    target.wait();
    EXPECT_TRUE(target.memory.holds(0, 64, 9));
}

TEST(Dc, ATargetThatIsGoneDoesNotAnswer) {
    auto target = std::make_unique<Target>();
    const Dct gone = target->name();
    target.reset();
    Initiator initiator;
    initiator.send(gone, 0, 64);
    EXPECT_EQ(initiator.wait().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(Dc, RefusesWhatIsWrong) {
    Objects objects;
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = IBV_QPT_DRIVER;
    attributes.send_cq = attributes.recv_cq = objects.cq.get();
    attributes.pd = objects.pd.get();
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    mlx5dv_qp_init_attr driver{};
    driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    errno = 0;
    EXPECT_EQ(mlx5dv_create_qp(objects.context.get(), &attributes, &driver), nullptr)
        << "a target needs an SRQ";
    EXPECT_EQ(errno, EINVAL);
    const Owned<ibv_qp> target = objects.make(MLX5DV_DCTYPE_DCT);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    EXPECT_EQ(ibv_modify_qp(target.get(), &attr, IBV_QP_STATE), EINVAL);
    attr.qp_state = IBV_QPS_RTS;
    EXPECT_EQ(ibv_modify_qp(target.get(), &attr, IBV_QP_STATE), EINVAL);
}

TEST(Dc, BetweenProcesses) {
    run_sides(
        Placement::kProcesses,
        [](Channel& channel) {
            Target target;
            target.post_receive(1, 0, 8192);
            channel.send(target.name());
            EXPECT_TRUE(succeeded(target.wait()));
            EXPECT_TRUE(target.memory.holds(0, 8192, 4));
            channel.meet();
        },
        [](Channel& channel) {
            Initiator initiator;
            const Dct to = channel.receive<Dct>();
            initiator.memory.fill(0, 8192, 4);
            initiator.send(to, 0, 8192);
            EXPECT_TRUE(succeeded(initiator.wait()));
            channel.meet();
        });
}

}  // namespace
}  // namespace softhca::test
