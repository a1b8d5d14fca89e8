// SPDX-License-Identifier: BSD-2-Clause
// The extended post interface (ibv_wr_start ... ibv_wr_complete) of each transport: every
// operation with single SGEs, lists, inline data and inline lists, batches of several, abort, and
// NOP, which only a raw WQE of mlx5dv can post. Contents are checked on the other side.

#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

std::uint64_t operations(Transport transport) {
    std::uint64_t flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    if (transport == Transport::kUd) return flags;
    flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    if (transport == Transport::kUc) return flags;
    return flags | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
           IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
}

class ExtendedPost : public testing::TestWithParam<Transport> {
protected:
    void SetUp() override {
        Endpoint::Options options;
        options.transport = GetParam();
        options.cq_depth = 512;
        a = std::make_unique<Endpoint>(options);
        b = std::make_unique<Endpoint>(options, a.get());
        remake(operations(GetParam()), 0);
        a->connect(b->address());
        b->connect(a->address());
        ex = ibv_qp_to_qp_ex(a->qp.get());
        ASSERT_NE(ex, nullptr);
    }

    // The sender's QP anew, with send operations; of mlx5 with `private_operations`.
    void remake(std::uint64_t send_operations, std::uint64_t private_operations) {
        ibv_qp_init_attr_ex attributes = {};
        attributes.send_cq = a->send_cq.get();
        attributes.recv_cq = a->receive_cq.get();
        attributes.cap = {64, 0, 6, 0, 200};
        if (GetParam() != Transport::kXrc)
            attributes.cap.max_recv_wr = attributes.cap.max_recv_sge = 1;
        attributes.qp_type = GetParam() == Transport::kRc   ? IBV_QPT_RC
                             : GetParam() == Transport::kUc ? IBV_QPT_UC
                             : GetParam() == Transport::kUd ? IBV_QPT_UD
                                                            : IBV_QPT_XRC_SEND;
        attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attributes.pd = a->pd.get();
        attributes.send_ops_flags = send_operations;
        mlx5dv_qp_init_attr own = {};
        if (private_operations != 0) {
            own.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
            own.send_ops_flags = private_operations;
        }
        a->qp.reset(
            check(mlx5dv_create_qp(a->context.get(), &attributes, &own), "mlx5dv_create_qp"));
    }

    void address_it() const {
        if (GetParam() == Transport::kUd)
            ibv_wr_set_ud_addr(ex, a->ah.get(), a->peer.target_qpn, a->peer.qkey);
        if (GetParam() == Transport::kXrc) ibv_wr_set_xrc_srqn(ex, a->peer.srqn);
    }

    enum class Data { kOne, kList, kInline, kInlineList };
    // `length` bytes of a's memory from offset 0, named in one of four ways.
    void data(Data how, std::uint32_t length) {
        const std::uint32_t first = length / 3;
        std::uint8_t* at = a->memory->data();
        const ibv_sge list[] = {a->memory->sge(0, first), a->memory->sge(first, 0),
                                a->memory->sge(first, length - first)};
        const ibv_data_buf buffers[] = {{at, first}, {at + first, 0}, {at + first, length - first}};
        switch (how) {
            case Data::kOne:
                ibv_wr_set_sge(ex, a->memory->mr()->lkey, a->memory->address(), length);
                break;
            case Data::kList:
                ibv_wr_set_sge_list(ex, 3, list);
                break;
            case Data::kInline:
                ibv_wr_set_inline_data(ex, at, length);
                break;
            case Data::kInlineList:
                ibv_wr_set_inline_data_list(ex, 3, buffers);
                break;
        }
    }
    static constexpr Data kWays[] = {Data::kOne, Data::kList, Data::kInline, Data::kInlineList};

    std::unique_ptr<Endpoint> a;
    std::unique_ptr<Endpoint> b;
    ibv_qp_ex* ex = nullptr;
};

TEST_P(ExtendedPost, SendsInEveryWayAndSize) {
    std::uint32_t seed = 0;
    for (const Data how : kWays) {
        for (std::uint32_t size = 0; size <= 200; size += 1 + size % 7) {
            SCOPED_TRACE(testing::Message() << "way " << static_cast<int>(how) << ", " << size);
            a->memory->fill(0, size, ++seed);
            std::memset(b->memory->data(), 0xee, 512);
            ASSERT_EQ(b->post_receive(seed, {b->memory->sge(0, 512)}), 0);
            ibv_wr_start(ex);
            ex->wr_id = seed;
            ex->wr_flags = IBV_SEND_SIGNALED;
            if (seed % 2 != 0) {
                ibv_wr_send_imm(ex, htonl(seed));
            } else {
                ibv_wr_send(ex);
            }
            address_it();
            data(how, size);
            ASSERT_EQ(ibv_wr_complete(ex), 0);
            std::memset(a->memory->data() + 1024, 0, 64);
            const ibv_wc sent = a->wait_send();
            ASSERT_TRUE(succeeded(sent));
            EXPECT_EQ(sent.wr_id, seed);
            const ibv_wc got = b->wait_receive();
            ASSERT_TRUE(succeeded(got));
            EXPECT_EQ(got.byte_len, size + b->grh());
            EXPECT_EQ((got.wc_flags & IBV_WC_WITH_IMM) != 0, seed % 2 != 0);
            if (seed % 2 != 0) {
                EXPECT_EQ(ntohl(got.imm_data), seed);
            }
            EXPECT_TRUE(b->memory->holds(b->grh(), size, seed));
        }
    }
}

TEST_P(ExtendedPost, OneSidedInEveryWay) {
    if (GetParam() == Transport::kUd) GTEST_SKIP() << "datagrams have none";
    std::uint32_t seed = 0;
    for (const Data how : kWays) {
        SCOPED_TRACE(testing::Message() << "way " << static_cast<int>(how));
        a->memory->fill(0, 150, ++seed);
        std::memset(b->memory->data(), 0xee, 8192);
        ibv_wr_start(ex);
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(ex, a->peer.rkey, a->peer.memory + 4096);
        address_it();
        data(how, 150);
        ASSERT_EQ(ibv_wr_complete(ex), 0);
        ASSERT_TRUE(succeeded(a->wait_send()));
        EXPECT_TRUE(b->memory->untouched(0, 4096, 0xee));
        ASSERT_EQ(b->post_receive(seed, {}), 0);
        ibv_wr_start(ex);
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write_imm(ex, a->peer.rkey, a->peer.memory + 6000, htonl(seed));
        address_it();
        data(how, 100);
        ASSERT_EQ(ibv_wr_complete(ex), 0);
        ASSERT_TRUE(succeeded(a->wait_send()));
        const ibv_wc got = b->wait_receive();
        ASSERT_TRUE(succeeded(got));
        EXPECT_EQ(got.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        EXPECT_EQ(ntohl(got.imm_data), seed);
        EXPECT_TRUE(b->memory->holds(4096, 150, seed));
        EXPECT_TRUE(b->memory->holds(6000, 100, seed));
    }
    if (GetParam() == Transport::kUc) return;
    b->memory->fill(100, 77, 42);
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_read(ex, a->peer.rkey, a->peer.memory + 100);
    address_it();
    data(Data::kOne, 77);
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    ASSERT_TRUE(succeeded(a->wait_send()));
    EXPECT_TRUE(a->memory->holds(0, 77, 42));
    std::uint64_t value = 10;
    std::memcpy(b->memory->data(), &value, 8);
    for (const bool swap : {false, true}) {
        ibv_wr_start(ex);
        ex->wr_flags = IBV_SEND_SIGNALED;
        if (swap) {
            ibv_wr_atomic_cmp_swp(ex, a->peer.rkey, a->peer.memory, 15, 99);
        } else {
            ibv_wr_atomic_fetch_add(ex, a->peer.rkey, a->peer.memory, 5);
        }
        address_it();
        data(Data::kOne, 8);
        ASSERT_EQ(ibv_wr_complete(ex), 0);
        ASSERT_TRUE(succeeded(a->wait_send()));
        std::memcpy(&value, a->memory->data(), 8);
        EXPECT_EQ(value, swap ? 15u : 10u);
        std::memcpy(&value, b->memory->data(), 8);
        EXPECT_EQ(value, swap ? 99u : 15u);
    }
}

// Batches of 1 to 16, around the ring many times; only the last of a batch is signalled.
TEST_P(ExtendedPost, BatchesAroundTheRing) {
    std::uint32_t next = 0;
    std::uint32_t expected = 0;
    for (std::uint32_t round = 0; round < 400; ++round) {
        const std::uint32_t count = 1 + round % 16;
        for (std::uint32_t i = 0; i < count; ++i)
            ASSERT_EQ(b->post_receive(next + i, {b->memory->sge(((next + i) % 16) * 256, 256)}), 0);
        ibv_wr_start(ex);
        for (std::uint32_t i = 0; i < count; ++i, ++next) {
            std::memcpy(a->memory->data(), &next, 4);
            ex->wr_id = next;
            ex->wr_flags = i + 1 == count ? IBV_SEND_SIGNALED : 0;
            ibv_wr_send(ex);
            address_it();
            ibv_wr_set_inline_data(ex, a->memory->data(), 4 + next % 150);
        }
        ASSERT_EQ(ibv_wr_complete(ex), 0);
        const ibv_wc sent = a->wait_send();
        ASSERT_TRUE(succeeded(sent));
        ASSERT_EQ(sent.wr_id, next - 1);
        for (; expected < next; ++expected) {
            const ibv_wc got = b->wait_receive();
            ASSERT_TRUE(succeeded(got));
            ASSERT_EQ(got.wr_id, expected);
            ASSERT_EQ(got.byte_len, 4 + expected % 150 + b->grh());
            std::uint32_t value = 0;
            std::memcpy(&value, b->memory->data() + (expected % 16) * 256 + b->grh(), 4);
            ASSERT_EQ(value, expected);
        }
    }
}

TEST_P(ExtendedPost, AbortSendsNothing) {
    ASSERT_EQ(b->post_receive(1, {b->memory->sge(0, 512)}), 0);
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    address_it();
    data(Data::kInline, 10);
    ibv_wr_abort(ex);
    EXPECT_FALSE(poll_for(a->send_cq.get(), std::chrono::milliseconds(20)));
    a->memory->fill(0, 20, 4);
    ibv_wr_start(ex);
    ex->wr_id = 7;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    address_it();
    data(Data::kOne, 20);
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    const ibv_wc sent = a->wait_send();
    ASSERT_TRUE(succeeded(sent));
    EXPECT_EQ(sent.wr_id, 7u);
    EXPECT_TRUE(succeeded(b->wait_receive()));
    EXPECT_TRUE(b->memory->holds(b->grh(), 20, 4));
}

TEST_P(ExtendedPost, MixesWithPlainPosts) {
    for (std::uint32_t i = 0; i < 300; ++i) {
        ASSERT_EQ(b->post_receive(i, {b->memory->sge(0, 512)}), 0);
        a->memory->fill(0, 120, i);
        if (i % 2 != 0) {
            Work work;
            work.id = i;
            work.sges = {a->memory->sge(0, 120)};
            ASSERT_EQ(a->post(work), 0);
        } else {
            ibv_wr_start(ex);
            ex->wr_id = i;
            ex->wr_flags = IBV_SEND_SIGNALED;
            ibv_wr_send(ex);
            address_it();
            data(i % 4 != 0 ? Data::kInline : Data::kList, 120);
            ASSERT_EQ(ibv_wr_complete(ex), 0);
        }
        const ibv_wc sent = a->wait_send();
        ASSERT_TRUE(succeeded(sent));
        ASSERT_EQ(sent.wr_id, i);
        ASSERT_TRUE(succeeded(b->wait_receive()));
        ASSERT_TRUE(b->memory->holds(b->grh(), 120, i));
    }
}

// A NOP completes in its turn and moves nothing.
TEST_P(ExtendedPost, RawNopCompletesInOrder) {
    if (GetParam() != Transport::kRc) GTEST_SKIP() << "one transport is enough";
    a->qp.reset();
    remake(operations(GetParam()), MLX5DV_QP_EX_WITH_RAW_WQE);
    a->connect(b->address());
    b = std::make_unique<Endpoint>(b->options, a.get());
    a->to_error();
    ibv_qp_attr reset = {};
    ASSERT_EQ(ibv_modify_qp(a->qp.get(), &reset, IBV_QP_STATE), 0);
    a->connect(b->address());
    b->connect(a->address());
    ex = ibv_qp_to_qp_ex(a->qp.get());
    mlx5dv_qp_ex* raw = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
    for (std::uint64_t i = 0; i < 200; ++i) {
        alignas(16) mlx5_wqe_ctrl_seg nop = {};
        nop.opmod_idx_opcode = htobe32(MLX5_OPCODE_NOP);
        nop.qpn_ds = htobe32(a->qp->qp_num << 8 | 1);
        nop.fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
        ibv_wr_start(ex);
        ex->wr_id = 2 * i;
        ex->wr_flags = IBV_SEND_SIGNALED;
        mlx5dv_wr_raw_wqe(raw, &nop);
        ex->wr_id = 2 * i + 1;
        ibv_wr_rdma_write(ex, a->peer.rkey, a->peer.memory);
        data(Data::kOne, 16);
        ASSERT_EQ(ibv_wr_complete(ex), 0);
        for (std::uint64_t k = 0; k < 2; ++k) {
            const ibv_wc wc = a->wait_send();
            ASSERT_TRUE(succeeded(wc));
            ASSERT_EQ(wc.wr_id, 2 * i + k);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Each, ExtendedPost,
                         testing::Values(Transport::kRc, Transport::kUc, Transport::kUd,
                                         Transport::kXrc),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace softhca::test
