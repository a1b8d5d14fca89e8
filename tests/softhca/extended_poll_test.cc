// SPDX-License-Identifier: BSD-2-Clause
// The extended completion interface (ibv_create_cq_ex, ibv_start_poll): every field that can be
// asked for, of each transport; batches; mixing with ibv_poll_cq; errors; and timestamps, if the
// device says that it has a clock: they never go back and agree with the clock that can be read.

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

constexpr std::uint64_t kFields =
    IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP |
    IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL | IBV_WC_EX_WITH_DLID_PATH_BITS;

Owned<ibv_cq_ex> create(ibv_context* context, std::uint64_t fields, std::uint32_t flags = 0) {
    ibv_cq_init_attr_ex attributes = {};
    attributes.cqe = 64;
    attributes.wc_flags = fields;
    if (flags != 0) {
        attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        attributes.flags = flags;
    }
    return Owned<ibv_cq_ex>(ibv_create_cq_ex(context, &attributes));
}

// Waits for a completion; the caller ends the poll.
void start(ibv_cq_ex* cq) {
    ibv_poll_cq_attr attributes = {};
    const auto end = Clock::now() + kDeadline;
    for (;;) {
        const int error = ibv_start_poll(cq, &attributes);
        if (error == 0) return;
        if (error != ENOENT) fail("ibv_start_poll", error);
        if (Clock::now() > end) fail("no completion", ETIMEDOUT);
        std::this_thread::yield();
    }
}

// A connected pair whose receiving side completes into `cq`.
struct Rig {
    Rig(Transport transport, std::uint64_t fields) : base(plain(transport)) {
        cq = create(base.context.get(), fields);
        if (!cq) fail("ibv_create_cq_ex");
        for (auto* side : {&a, &b}) {
            *side = std::make_unique<Endpoint>(plain(transport), &base);
            Endpoint& e = **side;
            ibv_qp_init_attr attributes = {};
            attributes.send_cq = attributes.recv_cq = ibv_cq_ex_to_cq(cq.get());
            attributes.qp_type = transport == Transport::kUd ? IBV_QPT_UD : IBV_QPT_RC;
            attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 32;
            attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 2;
            e.qp.reset(check(ibv_create_qp(base.pd.get(), &attributes), "ibv_create_qp"));
        }
        a->connect(b->address());
        b->connect(a->address());
    }
    ~Rig() {
        a->qp.reset();
        b->qp.reset();
    }
    static Endpoint::Options plain(Transport transport) {
        Endpoint::Options options;
        options.transport = transport;
        return options;
    }
    Endpoint base;
    Owned<ibv_cq_ex> cq;
    std::unique_ptr<Endpoint> a;
    std::unique_ptr<Endpoint> b;
};

class ExtendedPoll : public testing::TestWithParam<Transport> {};

TEST_P(ExtendedPoll, ReadsEveryField) {
    Rig s(GetParam(), kFields);
    ibv_cq_ex* cq = s.cq.get();
    for (std::uint32_t round = 0; round < 200; ++round) {
        const std::uint32_t size = 1 + round % 60;
        ASSERT_EQ(s.b->post_receive(round, {s.b->memory->sge(0, 256)}), 0);
        s.a->memory->fill(0, size, round);
        Work work;
        work.id = 1000 + round;
        work.opcode = IBV_WR_SEND_WITH_IMM;
        work.immediate = round;
        work.sges = {s.a->memory->sge(0, size)};
        ASSERT_EQ(s.a->post(work), 0);
        bool sent = false;
        bool received = false;
        while (!sent || !received) {
            start(cq);
            do {
                ASSERT_EQ(cq->status, IBV_WC_SUCCESS) << ibv_wc_status_str(cq->status);
                if (cq->wr_id == 1000 + round) {
                    EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_SEND);
                    EXPECT_EQ(ibv_wc_read_qp_num(cq), s.a->qp->qp_num);
                    sent = true;
                    continue;
                }
                EXPECT_EQ(cq->wr_id, round);
                EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
                EXPECT_EQ(ibv_wc_read_byte_len(cq), size + s.b->grh());
                EXPECT_EQ(ntohl(ibv_wc_read_imm_data(cq)), round);
                EXPECT_EQ(ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM, unsigned{IBV_WC_WITH_IMM});
                EXPECT_EQ(ibv_wc_read_qp_num(cq), s.b->qp->qp_num);
                // Only datagrams have these; in a CQE of RC the payload may stand in their place.
                if (GetParam() == Transport::kUd) {
                    EXPECT_EQ(ibv_wc_read_sl(cq), 0);
                    EXPECT_EQ(ibv_wc_read_dlid_path_bits(cq), 0);
                    EXPECT_EQ(ibv_wc_read_src_qp(cq), s.a->qp->qp_num);
                    EXPECT_EQ(ibv_wc_read_slid(cq), s.a->address().lid);
                }
                EXPECT_TRUE(s.b->memory->holds(s.b->grh(), size, round));
                received = true;
            } while (ibv_next_poll(cq) == 0);
            ibv_end_poll(cq);
        }
    }
}

TEST_P(ExtendedPoll, BatchesAndMixesWithPlainPolling) {
    Rig s(GetParam(), kFields);
    std::uint64_t next = 0;
    std::uint64_t posted = 0;
    for (int round = 0; round < 100; ++round) {
        for (int i = 0; i < 1 + round % 20; ++i) {
            ASSERT_EQ(s.b->post_receive(posted, {s.b->memory->sge(0, 256)}), 0);
            Work work;
            work.flags = 0;
            work.sges = {s.a->memory->sge(0, 8)};
            if (i % 8 == 7 || i == round % 20) work.flags = IBV_SEND_SIGNALED;
            work.id = ~0ULL;
            ASSERT_EQ(s.a->post(work), 0);
            ++posted;
        }
        while (next < posted) {
            if (next % 3 == 0) {
                const auto wc = poll_for(ibv_cq_ex_to_cq(s.cq.get()), kDeadline);
                ASSERT_TRUE(wc && wc->status == IBV_WC_SUCCESS);
                if (wc->wr_id != ~0ULL) {
                    ASSERT_EQ(wc->wr_id, next++);
                }
                continue;
            }
            start(s.cq.get());
            do {
                ASSERT_EQ(s.cq->status, IBV_WC_SUCCESS);
                if (s.cq->wr_id != ~0ULL) {
                    ASSERT_EQ(s.cq->wr_id, next);
                    ++next;
                }
            } while (next % 3 != 0 && ibv_next_poll(s.cq.get()) == 0);
            ibv_end_poll(s.cq.get());
        }
        while (poll_for(ibv_cq_ex_to_cq(s.cq.get()), std::chrono::milliseconds(1))) {
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Each, ExtendedPoll, testing::Values(Transport::kRc, Transport::kUd),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(ExtendedPollErrors, ReportStatusAndVendorError) {
    Rig s(Transport::kRc, kFields);
    Work work;
    work.id = 5;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.sges = {s.a->memory->sge(0, 8)};
    work.rkey = s.b->memory->mr()->rkey ^ 0x5a00;
    ASSERT_EQ(s.a->post(work), 0);
    start(s.cq.get());
    EXPECT_EQ(s.cq->status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(s.cq->wr_id, 5u);
    EXPECT_EQ(ibv_wc_read_vendor_err(s.cq.get()), kVendorRemoteAccess);
    ibv_end_poll(s.cq.get());
}

TEST(ExtendedPollErrors, EmptyQueueSaysSoAtOnce) {
    const auto context = open_device();
    const auto cq = create(context.get(), kFields);
    ASSERT_TRUE(cq);
    ibv_poll_cq_attr attributes = {};
    EXPECT_EQ(ibv_start_poll(cq.get(), &attributes), ENOENT);
    const auto single = create(context.get(), kFields, IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
    ASSERT_TRUE(single);
    EXPECT_EQ(ibv_start_poll(single.get(), &attributes), ENOENT);
    attributes.comp_mask = 1;
    EXPECT_EQ(ibv_start_poll(cq.get(), &attributes), EINVAL);
}

TEST(Timestamps, NeverGoBackAndAgreeWithTheClock) {
    Endpoint probe;
    ibv_device_attr_ex device = {};
    ASSERT_EQ(ibv_query_device_ex(probe.context.get(), nullptr, &device), 0);
    if (device.completion_timestamp_mask == 0) GTEST_SKIP() << "the device says it has no clock";
    EXPECT_GT(device.hca_core_clock, 0u) << "in kHz";
    const auto cq = create(probe.context.get(), kFields | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
    ASSERT_TRUE(cq) << "the device says it has timestamps: " << std::strerror(errno);
    Rig s(Transport::kRc, kFields | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
    const auto clock = [&](std::uint64_t* cycles) {
        ibv_values_ex values = {};
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        const int error = ibv_query_rt_values_ex(probe.context.get(), &values);
        *cycles = static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
        return error == 0 && (values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0;
    };
    std::uint64_t before = 0;
    const bool has_clock = clock(&before);
    std::uint64_t last = 0;
    for (int i = 0; i < 200; ++i) {
        Work work;
        work.opcode = IBV_WR_RDMA_WRITE;
        work.sges = {s.a->memory->sge(0, 8)};
        ASSERT_EQ(s.a->post(work), 0);
        start(s.cq.get());
        const std::uint64_t stamp = ibv_wc_read_completion_ts(s.cq.get());
        ibv_end_poll(s.cq.get());
        EXPECT_NE(stamp, 0u);
        EXPECT_GE(stamp, last);
        last = stamp;
        if (!has_clock) continue;
        std::uint64_t after = 0;
        ASSERT_TRUE(clock(&after));
        EXPECT_GE(stamp, before) << "stamped before it was posted";
        EXPECT_LE(stamp, after) << "stamped after it was polled";
        before = after;
    }
    // The clock runs at the rate that the device says: within a factor of two over 100 ms.
    if (!has_clock) return;
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    const auto start_time = Clock::now();
    ASSERT_TRUE(clock(&first));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ASSERT_TRUE(clock(&second));
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start_time).count();
    const double expected = ms * static_cast<double>(device.hca_core_clock);
    EXPECT_GT(static_cast<double>(second - first), expected / 2);
    EXPECT_LT(static_cast<double>(second - first), expected * 2);
}

TEST(Timestamps, WallClockIsNearTheSystems) {
    Endpoint probe;
    const std::uint64_t fields = kFields | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    if (!create(probe.context.get(), fields)) GTEST_SKIP() << "refused: " << std::strerror(errno);
    Rig s(Transport::kRc, fields);
    Work work;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.sges = {s.a->memory->sge(0, 8)};
    ASSERT_EQ(s.a->post(work), 0);
    start(s.cq.get());
    const std::uint64_t stamp = ibv_wc_read_completion_wallclock_ns(s.cq.get());
    ibv_end_poll(s.cq.get());
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    const double difference = static_cast<double>(now.tv_sec) - static_cast<double>(stamp) / 1e9;
    EXPECT_LT(std::abs(difference), 10.0) << "seconds from the system's clock";
}

}  // namespace
}  // namespace softhca::test
