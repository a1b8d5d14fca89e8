// SPDX-License-Identifier: BSD-2-Clause
// The direct path writes what libmlx5 writes. Two QPs that differ in their numbers only get the
// same random requests, one by ibv_post_send, one directly. Ring, doorbell record, register and
// completions must be equal. The requests are seeded, and a failure prints the seed.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "heddle/post/mlx5_completion_queue.h"
#include "heddle/post/mlx5_send_queue.h"
#include "heddle/post/verbs_queue.h"
#include "verbs/connection.h"
#include "verbs/handles.h"
#include "verbs/open_device.h"

namespace {

// What the register had when the direct path rang it: softhca's hook marks it as seen.
std::vector<std::byte> g_register;

}  // namespace

extern "C" __attribute__((visibility("default"))) void softhca_doorbell(void* at) {
    const auto* bytes = static_cast<const std::byte*>(at);
    g_register.assign(bytes, bytes + 256);
    static const auto next =
        reinterpret_cast<void (*)(void*)>(dlsym(RTLD_NEXT, "softhca_doorbell"));
    if (next != nullptr) next(at);
}

namespace heddle::post {
namespace {

using namespace detail;

constexpr std::uint32_t kDepth = 32, kSge = 4;
constexpr std::size_t kMemory = 1 << 16, kRemote = 1 << 15;

struct Fabric {
    verbs::Context context = verbs::open_device("").context;
    verbs::ProtectionDomain pd{ibv_alloc_pd(context.get())};
    std::vector<std::byte> memory = std::vector<std::byte>(kMemory);
    verbs::MemoryRegion mr{ibv_reg_mr(pd.get(), memory.data(), memory.size(),
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)};
    ibv_xrcd* xrcd = [this] {
        ibv_xrcd_init_attr attributes{};
        attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        attributes.fd = -1;
        attributes.oflags = O_CREAT;
        return ibv_open_xrcd(context.get(), &attributes);
    }();
    ~Fabric() { ibv_close_xrcd(xrcd); }
};

// A QP that is connected to this process: an RC QP to itself, or an XRC initiator to a target with
// an SRQ.
struct Loop {
    Loop(Fabric& fabric, bool xrc)
        : f(fabric),
          domain(make_domain()),
          parent(make_parent()),
          send_cq(ibv_create_cq(f.context.get(), 256, nullptr, nullptr, 0)),
          receive_cq(ibv_create_cq(f.context.get(), 256, nullptr, nullptr, 0)) {
        ibv_qp_init_attr_ex a{};
        a.send_cq = send_cq.get();
        a.recv_cq = receive_cq.get();
        a.comp_mask = IBV_QP_INIT_ATTR_PD;
        a.pd = parent.get();
        a.cap = {kDepth, xrc ? 0 : kDepth, kSge, xrc ? 0u : 1u, 200};
        a.qp_type = xrc ? IBV_QPT_XRC_SEND : IBV_QPT_RC;
        qp.reset(ibv_create_qp_ex(f.context.get(), &a));
        if (!qp) throw VerbsError("creating the QP", errno);
        max_inline = a.cap.max_inline_data;
        if (!xrc) {
            verbs::connect_locally(qp.get(), qp.get());
            return;
        }
        ibv_srq_init_attr_ex s{};
        s.attr = {kDepth, 1, 0};
        s.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                      IBV_SRQ_INIT_ATTR_CQ;
        s.srq_type = IBV_SRQT_XRC;
        s.pd = f.pd.get();
        s.xrcd = f.xrcd;
        s.cq = receive_cq.get();
        srq.reset(ibv_create_srq_ex(f.context.get(), &s));
        if (!srq) throw VerbsError("creating the SRQ", errno);
        ibv_get_srq_num(srq.get(), &srqn);
        ibv_qp_init_attr_ex t{};
        t.qp_type = IBV_QPT_XRC_RECV;
        t.comp_mask = IBV_QP_INIT_ATTR_XRCD;
        t.xrcd = f.xrcd;
        target.reset(ibv_create_qp_ex(f.context.get(), &t));
        if (!target) throw VerbsError("creating the target", errno);
        verbs::connect_locally(target.get(), qp.get());
        verbs::connect_locally(qp.get(), target.get());
    }

    verbs::ThreadDomain make_domain() const {
        ibv_td_init_attr a{};
        return verbs::ThreadDomain(ibv_alloc_td(f.context.get(), &a));
    }
    verbs::ProtectionDomain make_parent() const {
        ibv_parent_domain_init_attr a{};
        a.pd = f.pd.get();
        a.td = domain.get();
        return verbs::ProtectionDomain(ibv_alloc_parent_domain(f.context.get(), &a));
    }

    void post_receive() const {
        ibv_sge piece{reinterpret_cast<std::uint64_t>(f.memory.data()) + kMemory / 4, 4096,
                      f.mr->lkey};
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.sg_list = &piece;
        wr.num_sge = 1;
        ASSERT_EQ(
            srq ? ibv_post_srq_recv(srq.get(), &wr, &bad) : ibv_post_recv(qp.get(), &wr, &bad), 0);
    }
    mlx5dv_qp inside() const {
        mlx5dv_qp out{};
        mlx5dv_obj object{};
        object.qp.in = qp.get();
        object.qp.out = &out;
        EXPECT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
        return out;
    }

    struct DestroySrq {
        void operator()(ibv_srq* srq) const noexcept { ibv_destroy_srq(srq); }
    };

    Fabric& f;
    verbs::ThreadDomain domain;  // a register of its own: the two sides alternate in step
    verbs::ProtectionDomain parent;
    verbs::CompletionQueue send_cq, receive_cq;
    std::unique_ptr<ibv_srq, DestroySrq> srq;
    verbs::QueuePair qp, target;
    std::uint32_t srqn = 0, max_inline = 0;
};

// The bytes of a ring, with zero in place of the QP's number in each control segment.
std::vector<std::byte> ring_of(const mlx5dv_qp& qp, std::uint32_t qpn) {
    std::vector<std::byte> bytes(std::size_t{qp.sq.wqe_cnt} * kBlock);
    std::memcpy(bytes.data(), qp.sq.buf, bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += kBlock) {
        std::uint32_t word;
        std::memcpy(&word, &bytes[at + 4], 4);
        word = be32toh(word);
        if (word >> 8 != qpn) continue;
        word = htobe32(word & 0xff);
        std::memcpy(&bytes[at + 4], &word, 4);
    }
    return bytes;
}

testing::AssertionResult equal(const std::vector<std::byte>& libmlx5,
                               const std::vector<std::byte>& ours) {
    for (std::size_t at = 0; at < libmlx5.size(); ++at)
        if (libmlx5[at] != ours[at])
            return testing::AssertionFailure()
                   << "byte " << at % kBlock << " of block " << at / kBlock << ": libmlx5 wrote "
                   << static_cast<int>(libmlx5[at]) << ", the direct path "
                   << static_cast<int>(ours[at]);
    return testing::AssertionSuccess();
}

struct Case {
    bool xrc;
    std::uint32_t seed;
};

class Fidelity : public testing::TestWithParam<Case> {
protected:
    static constexpr std::size_t kRemoteBytes = 4096;

    WorkRequest random_work(std::mt19937& random, const Loop& loop, std::vector<ibv_sge>& sges) {
        const auto upto = [&](std::uint32_t n) {
            return std::uniform_int_distribution<std::uint32_t>(0, n)(random);
        };
        WorkRequest work;
        work.opcode = static_cast<Opcode>(upto(6));
        const bool writes_here = work.opcode == Opcode::kRead || is_atomic(work.opcode);
        work.id = random();
        work.remote_address = reinterpret_cast<std::uint64_t>(f_.memory.data()) + kRemote;
        work.remote_key = f_.mr->rkey;
        work.immediate = static_cast<std::uint32_t>(random());
        work.compare_or_add = random();
        work.swap = random();
        work.flags = static_cast<std::uint8_t>((upto(1) ? kSolicited : 0) | (upto(3) ? 0 : kFence));
        sges.clear();
        if (is_atomic(work.opcode)) {
            sges.push_back(
                {reinterpret_cast<std::uint64_t>(f_.memory.data()) + 8 * upto(64), 8, f_.mr->lkey});
        } else {
            const bool is_inline = !writes_here && upto(2) != 0;
            if (is_inline) work.flags |= kInline;
            std::uint32_t left = is_inline ? loop.max_inline : 2048;
            const std::uint32_t count = upto(kSge);
            for (std::uint32_t i = 0; i < count; ++i) {
                const std::uint32_t length = upto(3) == 0 ? left : upto(std::min(left, 300u));
                sges.push_back({reinterpret_cast<std::uint64_t>(f_.memory.data()) + upto(4096),
                                length, f_.mr->lkey});
                left -= length;
            }
        }
        work.sges = sges;
        return work;
    }

    using Direct = Mlx5SendQueue<SingleThreaded>;

    Fidelity() { direct_cq.add(direct_queue); }

    // The same twice: posted to and polled by libmlx5, and directly.
    Fabric f_;
    Loop by_verbs{f_, GetParam().xrc}, by_direct{f_, GetParam().xrc};
    VerbsSendQueue<SingleThreaded> verbs_queue{by_verbs.qp.get(), 8};
    VerbsCompletionQueue verbs_cq{by_verbs.send_cq.get()};
    Direct direct_queue{by_direct.qp.get(), false, by_direct.max_inline, false};
    Mlx5CompletionQueue<SingleThreaded> direct_cq{by_direct.send_cq.get()};
};

TEST_P(Fidelity, RingRecordRegisterAndCompletionsAreThoseOfLibmlx5) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the software HCA reads doorbell records by a mapping of its own, which "
                    "ThreadSanitizer takes for other memory: it misses what orders the payload";
#endif
    SCOPED_TRACE(testing::Message() << "seed " << GetParam().seed);
    std::mt19937 random(GetParam().seed);
    ASSERT_EQ(by_verbs.max_inline, by_direct.max_inline);
    const mlx5dv_qp one = by_verbs.inside(), other = by_direct.inside();
    std::uint32_t half = 0;
    for (int round = 0; round < 1500; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        // Older WQEs would differ by the QP's number.
        for (const mlx5dv_qp* qp : {&one, &other})
            std::memset(qp->sq.buf, 0, std::size_t{qp->sq.wqe_cnt} * kBlock);
        const std::uint32_t count = std::uniform_int_distribution<std::uint32_t>(1, 3)(random);
        std::uint32_t units = 0;
        for (std::uint32_t i = 0; i < count; ++i) {
            std::vector<ibv_sge> sges;
            WorkRequest work = random_work(random, by_verbs, sges);
            if (i + 1 == count) work.flags |= kSignaled;
            if (work.opcode == Opcode::kSend || work.opcode == Opcode::kSendImm ||
                work.opcode == Opcode::kWriteImm) {
                by_verbs.post_receive();
                (GetParam().xrc ? by_verbs : by_direct).post_receive();
            }
            work.remote_srq = by_verbs.srqn;
            ASSERT_EQ(verbs_queue.post(work), Posted::kOk);
            // The QPs differ in the SRQ's number, too: both get the first one.
            ASSERT_EQ(direct_queue.post(work), Posted::kOk);
            units = wqe_shape(work, GetParam().xrc).units;
        }
        ASSERT_EQ(verbs_queue.ring_doorbell(), Posted::kOk);
        direct_queue.ring_doorbell();
        EXPECT_TRUE(equal(ring_of(one, by_verbs.qp->qp_num), ring_of(other, by_direct.qp->qp_num)))
            << "in the ring";
        EXPECT_EQ(one.dbrec[MLX5_SND_DBR], other.dbrec[MLX5_SND_DBR]);
        // BlueFlame carries a single WQE, in units of 64 bytes; a doorbell carries its first 8
        // bytes.
        const bool blueflame =
            count == 1 && units > 1 && units * kUnit <= one.bf.size && one.bf.size != 0;
        const std::size_t carried = blueflame ? (units * kUnit + 63) / 64 * 64 : 8;
        std::vector<std::byte> rung(carried);
        std::memcpy(rung.data(), static_cast<std::byte*>(one.bf.reg) + half, carried);
        ASSERT_GE(g_register.size(), carried);
        std::vector<std::byte> direct(g_register.begin(),
                                      g_register.begin() + static_cast<std::ptrdiff_t>(carried));
        for (auto* bytes : {&rung, &direct})
            std::memset(bytes->data() + 4, 0, 3);  // QP number
        EXPECT_TRUE(equal(rung, direct)) << "in the register";
        half ^= one.bf.size;
        Completion a, b;
        while (verbs_cq.poll(&a, 1) == 0) {
        }
        while (direct_cq.poll(&b, 1) == 0) {
        }
        EXPECT_EQ(a.id, b.id);
        EXPECT_EQ(a.status, IBV_WC_SUCCESS);
        EXPECT_EQ(b.status, IBV_WC_SUCCESS);
        EXPECT_EQ(a.opcode, b.opcode);
        if (a.opcode == IBV_WC_RDMA_READ || a.opcode == IBV_WC_COMP_SWAP ||
            a.opcode == IBV_WC_FETCH_ADD) {
            EXPECT_EQ(a.bytes, b.bytes);
        }
        ibv_wc receive;
        while (ibv_poll_cq(by_verbs.receive_cq.get(), 1, &receive) == 1) {
        }
        while (ibv_poll_cq(by_direct.receive_cq.get(), 1, &receive) == 1) {
        }
        if (HasFailure()) break;
    }
}

// The same for failures: a request with a bad key fails, and the requests behind it are flushed.
TEST_P(Fidelity, ErrorsAreThoseOfLibmlx5) {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(f_.memory.data()), 8, f_.mr->lkey};
    WorkRequest work;
    work.opcode = Opcode::kWrite;
    work.sges = {&piece, 1};
    work.remote_srq = by_verbs.srqn;
    work.remote_address = reinterpret_cast<std::uint64_t>(f_.memory.data()) + kRemote;
    for (std::uint64_t id = 1; id <= 3; ++id) {
        work.id = id;
        work.remote_key = id == 1 ? f_.mr->rkey ^ 0x7700 : f_.mr->rkey;
        ASSERT_EQ(verbs_queue.post(work), Posted::kOk);
        ASSERT_EQ(direct_queue.post(work), Posted::kOk);
    }
    ASSERT_EQ(verbs_queue.ring_doorbell(), Posted::kOk);
    direct_queue.ring_doorbell();
    for (std::uint64_t id = 1; id <= 3; ++id) {
        Completion a, b;
        while (verbs_cq.poll(&a, 1) == 0) {
        }
        while (direct_cq.poll(&b, 1) == 0) {
        }
        EXPECT_EQ(a.id, id);
        EXPECT_EQ(b.id, id);
        EXPECT_EQ(a.status, id == 1 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
        EXPECT_EQ(b.status, a.status);
        EXPECT_EQ(b.vendor_error, a.vendor_error);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Each, Fidelity, testing::Values(Case{false, 1}, Case{false, 2}, Case{true, 3}, Case{true, 4}),
    [](const auto& info) {
        return std::string(info.param.xrc ? "XRC" : "RC") + std::to_string(info.param.seed);
    });

}  // namespace
}  // namespace heddle::post
