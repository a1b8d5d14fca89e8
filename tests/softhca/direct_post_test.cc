// SPDX-License-Identifier: BSD-2-Clause
// Posting past libmlx5's calls, as UCX and heddle's direct path do: WQEs written into the ring that
// mlx5dv_init_obj names, the doorbell record, then the register - by doorbell and by BlueFlame,
// alternating between its halves. With a kick (softhca_doorbell, if the device offers it) and
// without one, when the device has to notice by itself. CQEs are read by their owner bit.

#include <dlfcn.h>
#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <atomic>
#include <cstring>

#include "chosen_trait.h"
#include "shown.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

using Kick = void (*)(void*);

void set_control(mlx5_wqe_ctrl_seg* control, std::uint16_t index, std::uint8_t opcode,
                 std::uint32_t qpn, std::uint32_t units) {
    std::memset(control, 0, sizeof *control);
    control->opmod_idx_opcode = htobe32(std::uint32_t{index} << 8 | opcode);
    control->qpn_ds = htobe32(qpn << 8 | units);
    control->fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
}

class DirectQp {
public:
    DirectQp(Endpoint& e, Kick kick)
        : endpoint_(e), kick_(kick), qp_(shown(e.qp.get())), cq_(shown(e.send_cq.get())) {}

    // One RDMA WRITE of a WQE block: three units, from `sge` to `remote`.
    void put_write(const ibv_sge& sge, std::uint64_t remote, std::uint32_t rkey) {
        auto* block = static_cast<std::uint8_t*>(qp_.sq.buf) + (next_ & (qp_.sq.wqe_cnt - 1)) * 64;
        auto* control = reinterpret_cast<mlx5_wqe_ctrl_seg*>(block);
        set_control(control, next_, MLX5_OPCODE_RDMA_WRITE, endpoint_.qp->qp_num, 3);
        mlx5_wqe_raddr_seg address = {htobe64(remote), htobe32(rkey), 0};
        std::memcpy(block + 16, &address, 16);
        mlx5_wqe_data_seg data = {htobe32(sge.length), htobe32(sge.lkey), htobe64(sge.addr)};
        std::memcpy(block + 32, &data, 16);
        last_ = control;
        ++next_;
    }

    void ring(bool blueflame) {
        std::atomic_thread_fence(std::memory_order_release);
        reinterpret_cast<std::atomic<std::uint32_t>*>(qp_.dbrec)[MLX5_SND_DBR].store(
            htobe32(next_), std::memory_order_release);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        auto* to = static_cast<std::uint8_t*>(qp_.bf.reg) + offset_;
        std::uint64_t words[8];
        std::memcpy(words, last_, 64);
        for (int i = 0; i < (blueflame ? 8 : 1); ++i)
            reinterpret_cast<volatile std::uint64_t*>(to)[i] = words[i];
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (qp_.bf.size != 0) offset_ ^= qp_.bf.size;
        if (kick_ != nullptr) kick_(to);
    }

    // Waits for the next CQE and frees it; its opcode and WQE number.
    std::pair<std::uint8_t, std::uint16_t> wait() {
        auto* entry = static_cast<std::uint8_t*>(cq_.buf) +
                      (consumer_ & (cq_.cqe_cnt - 1)) * cq_.cqe_size + (cq_.cqe_size - 64);
        auto* cqe = reinterpret_cast<mlx5_cqe64*>(entry);
        const bool lap = (consumer_ & cq_.cqe_cnt) != 0;
        const auto end = Clock::now() + kDeadline;
        for (;;) {
            const std::uint8_t own =
                std::atomic_ref<std::uint8_t>(cqe->op_own).load(std::memory_order_acquire);
            if (own >> 4 != MLX5_CQE_INVALID && ((own & 1) != 0) == lap) break;
            if (Clock::now() > end) fail("no CQE " + std::to_string(consumer_), ETIMEDOUT);
            std::this_thread::yield();
        }
        ++consumer_;
        cq_.dbrec[0] = htobe32(consumer_ & 0xffffff);
        return {static_cast<std::uint8_t>(cqe->op_own >> 4), be16toh(cqe->wqe_counter)};
    }

    std::uint16_t next() const { return next_; }

private:
    Endpoint& endpoint_;
    Kick kick_;
    mlx5dv_qp qp_ = {};
    mlx5dv_cq cq_ = {};
    mlx5_wqe_ctrl_seg* last_ = nullptr;
    std::uint16_t next_ = 0;
    std::uint32_t consumer_ = 0;
    std::uint32_t offset_ = 0;
};

class DirectPosts : public testing::TestWithParam<bool> {
protected:
    void SetUp() override {
        if (!GetParam()) return;
        kick_ = reinterpret_cast<Kick>(dlsym(RTLD_DEFAULT, "softhca_doorbell"));
        if (kick_ == nullptr) GTEST_SKIP() << "the device offers no kick";
    }
    Kick kick_ = nullptr;
};

TEST_P(DirectPosts, OneByOneAroundTheRing) {
    Pair pair;
    DirectQp direct(pair.a, kick_);
    const std::uint32_t rounds = GetParam() ? 70000 : 3000;  // past the 16-bit counters
    for (std::uint32_t i = 0; i < rounds; ++i) {
        std::memcpy(pair.a.memory->data() + 40, &i, 4);
        direct.put_write(pair.a.memory->sge(40, 4), pair.b.memory->address(80), pair.a.peer.rkey);
        direct.ring(i % 2 != 0);
        const auto [opcode, number] = direct.wait();
        ASSERT_EQ(opcode, MLX5_CQE_REQ);
        ASSERT_EQ(number, static_cast<std::uint16_t>(i));
        std::uint32_t got;
        std::memcpy(&got, pair.b.memory->data() + 80, 4);
        ASSERT_EQ(got, i);
    }
}

TEST_P(DirectPosts, BatchesWithOneDoorbell) {
    Pair pair;
    DirectQp direct(pair.a, kick_);
    for (std::uint32_t round = 0; round < 500; ++round) {
        const std::uint32_t count = 1 + round % 20;
        for (std::uint32_t i = 0; i < count; ++i) {
            pair.a.memory->fill(i * 64, 64, round + i);
            direct.put_write(pair.a.memory->sge(i * 64, 64), pair.b.memory->address(i * 64),
                             pair.a.peer.rkey);
        }
        direct.ring(false);
        for (std::uint32_t i = 0; i < count; ++i)
            ASSERT_EQ(direct.wait().first, MLX5_CQE_REQ);
        for (std::uint32_t i = 0; i < count; ++i)
            ASSERT_TRUE(pair.b.memory->holds(i * 64, 64, round + i));
    }
}

// The device sleeps while nothing is posted; a post after a pause must still be noticed.
TEST_P(DirectPosts, AfterAPause) {
    Pair pair;
    DirectQp direct(pair.a, kick_);
    for (int i = 0; i < 5; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        pair.a.memory->fill(0, 32, static_cast<std::uint32_t>(i));
        direct.put_write(pair.a.memory->sge(0, 32), pair.b.memory->address(), pair.a.peer.rkey);
        direct.ring(true);
        ASSERT_EQ(direct.wait().first, MLX5_CQE_REQ);
        ASSERT_TRUE(pair.b.memory->holds(0, 32, static_cast<std::uint32_t>(i)));
    }
}

TEST_P(DirectPosts, ErrorsAreReported) {
    Pair pair;
    DirectQp direct(pair.a, kick_);
    direct.put_write(pair.a.memory->sge(0, 8), pair.b.memory->address(), pair.a.peer.rkey ^ 0x5a00);
    direct.put_write(pair.a.memory->sge(0, 8), pair.b.memory->address(), pair.a.peer.rkey);
    direct.ring(false);
    EXPECT_EQ(direct.wait().first, MLX5_CQE_REQ_ERR);
    EXPECT_EQ(direct.wait().first, MLX5_CQE_REQ_ERR) << "the second is flushed";
    EXPECT_EQ(state_of(pair.a.qp.get()), IBV_QPS_ERR);
}

INSTANTIATE_TEST_SUITE_P(Each, DirectPosts, testing::Bool(),
                         [](const auto& info) { return info.param ? "Kicked" : "Unkicked"; });

// Kicks at addresses that are no registers, or with nothing posted, do nothing.
TEST(Kicks, AtWildAddressesAreHarmless) {
    const auto kick = reinterpret_cast<Kick>(dlsym(RTLD_DEFAULT, "softhca_doorbell"));
    if (kick == nullptr) GTEST_SKIP() << "the device offers no kick";
    alignas(512) std::uint64_t nowhere[64] = {};
    kick(nullptr);
    kick(nowhere);
    Pair pair;
    for (std::uint64_t value : {~0ULL, 0ULL, 0x0123456789abcdefULL}) {
        nowhere[0] = value;
        kick(nowhere);
        kick(&nowhere[32]);
    }
    Work work;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.sges = {pair.a.memory->sge(0, 64)};
    EXPECT_TRUE(pair.a.run(work));
}

// QPs of one context that the driver has put on one uUAR, and their peers.
struct Neighbours {
    Neighbours() {
        for (std::size_t made = 0; made < 40; ++made) {
            near.push_back(std::make_unique<Endpoint>(Endpoint::Options{}, &base));
            far.push_back(std::make_unique<Endpoint>(Endpoint::Options{}, &base));
            near.back()->connect(far.back()->address());
            far.back()->connect(near.back()->address());
            const mlx5dv_qp last = shown(near.back()->qp.get());
            for (std::size_t i = 0; i < made && last.bf.size != 0; ++i)
                if (shown(near[i]->qp.get()).bf.reg == last.bf.reg) {
                    first = near[i].get();
                    second = near.back().get();
                    return;
                }
        }
        fail("no two QPs on one uUAR", ENOENT);
    }
    Endpoint base;
    std::vector<std::unique_ptr<Endpoint>> near, far;
    Endpoint *first = nullptr, *second = nullptr;
};

// libmlx5's lock of a uUAR is its own: a thread that posts by libmlx5 and one that posts directly
// have none in common.
TEST(SharedUuar, OfLibmlx5AndOfADirectPoster) {
    const auto kick = reinterpret_cast<Kick>(dlsym(RTLD_DEFAULT, "softhca_doorbell"));
    if (kick == nullptr) GTEST_SKIP() << "the device offers no kick";
    Neighbours qps;
    DirectQp direct(*qps.second, kick);
    const Endpoint& by = *qps.second;
    const auto post_directly = [&] {
        direct.put_write(by.memory->sge(0, 8), by.peer.memory, by.peer.rkey);
        direct.ring(true);
        return direct.wait().first;
    };
    EXPECT_TRUE(qps.first->run(write_of(*qps.first, 8)));
    EXPECT_EQ(post_directly(), MLX5_CQE_REQ) << "one thread needs no lock";
    EXPECT_TRUE(qps.first->run(write_of(*qps.first, 8)));
    // The work may be done before its register is written, as its record is looked at, too.
    std::thread(post_directly).join();
    EXPECT_EQ(state_of(qps.second->qp.get()) == IBV_QPS_ERR, chosen(DeviceTrait::kSharedUuar));
}

TEST(SharedUuar, OfTwoThreadsByLibmlx5) {
    Neighbours qps;
    EXPECT_TRUE(qps.first->run(write_of(*qps.first, 8)));
    std::thread([&] { EXPECT_TRUE(qps.second->run(write_of(*qps.second, 8))); }).join();
    EXPECT_TRUE(qps.first->run(write_of(*qps.first, 8)));
}

}  // namespace
}  // namespace softhca::test
