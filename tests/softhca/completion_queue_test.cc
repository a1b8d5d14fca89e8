// SPDX-License-Identifier: BSD-2-Clause
// Completion queues (IBTA 10.2.8, 11.2.8): the sizes of CQEs and of queues, wrapping and the owner
// bit, resizing with completions inside, overrun, several QPs in one CQ, and the order of
// completions. Lives by a lost, doubled or stale CQE.

#include <infiniband/mlx5dv.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "shown.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

using std::chrono::milliseconds;

Work write_with_id(const Endpoint& e, std::uint64_t id, unsigned flags = IBV_SEND_SIGNALED) {
    Work work;
    work.id = id;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.flags = flags;
    work.sges = {e.memory->sge(0, 16)};
    return work;
}

class CqeSize : public testing::TestWithParam<int> {};

// Both sizes, many times around a small ring, polled one by one and in batches.
TEST_P(CqeSize, CompletionsOfManyLaps) {
    Endpoint base;
    ibv_cq_init_attr_ex attributes = {};
    attributes.cqe = 20;
    mlx5dv_cq_init_attr private_attributes = {};
    private_attributes.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
    private_attributes.cqe_size = static_cast<std::uint16_t>(GetParam());
    Owned<ibv_cq_ex> made(mlx5dv_create_cq(base.context.get(), &attributes, &private_attributes));
    ASSERT_TRUE(made) << std::strerror(errno);
    ibv_cq* const cq = ibv_cq_ex_to_cq(made.get());
    const mlx5dv_cq layout = shown(cq);
    EXPECT_EQ(layout.cqe_size, static_cast<std::uint32_t>(GetParam()));
    EXPECT_GE(layout.cqe_cnt, 20u);

    Endpoint e({}, &base);
    e.qp.reset();
    Endpoint peer({}, &base);
    ibv_qp_init_attr_ex qp = {};
    qp.send_cq = qp.recv_cq = cq;
    qp.qp_type = IBV_QPT_RC;
    qp.cap.max_send_wr = qp.cap.max_recv_wr = 64;
    qp.cap.max_send_sge = qp.cap.max_recv_sge = 1;
    qp.comp_mask = IBV_QP_INIT_ATTR_PD;
    qp.pd = base.pd.get();
    e.qp.reset(check(ibv_create_qp_ex(base.context.get(), &qp), "ibv_create_qp_ex"));
    e.connect(peer.address());
    peer.connect(e.address());
    std::uint64_t posted = 0;
    std::uint64_t polled = 0;
    for (int lap = 0; lap < 500; ++lap) {
        const int burst = 1 + lap % 16;
        for (int i = 0; i < burst; ++i)
            ASSERT_EQ(e.post(write_with_id(e, posted++)), 0);
        const auto end = Clock::now() + kDeadline;
        while (polled < posted) {
            ibv_wc wc[5];
            const int count = ibv_poll_cq(cq, 1 + lap % 5, wc);
            ASSERT_GE(count, 0);
            for (int i = 0; i < count; ++i) {
                ASSERT_TRUE(succeeded(wc[i]));
                ASSERT_EQ(wc[i].wr_id, polled++);
            }
            ASSERT_LT(Clock::now(), end) << "lost a completion";
        }
        ibv_wc wc;
        ASSERT_EQ(ibv_poll_cq(cq, 1, &wc), 0) << "a stale entry was taken for a new one";
    }
    e.qp.reset();
}
INSTANTIATE_TEST_SUITE_P(Bytes, CqeSize, testing::Values(64, 128),
                         [](const auto& info) { return std::to_string(info.param); });

// Grows and shrinks with completions inside, at every place of the ring.
TEST(CompletionQueue, ResizeKeepsWhatIsInside) {
    Endpoint::Options options;
    options.cq_depth = 30;
    Pair pair(options);
    ibv_cq* cq = pair.a.send_cq.get();
    std::uint64_t posted = 0;
    std::uint64_t polled = 0;
    const int sizes[] = {100, 40, 600, 35, 255, 30, 1000, 31};
    for (int round = 0; round < 40; ++round) {
        for (int i = 0; i < 7 + round % 13; ++i)
            ASSERT_EQ(pair.a.post(write_with_id(pair.a, posted++)), 0);
        // Take some, so that the ring is resized at an odd place.
        for (int i = 0; i < round % 5; ++i)
            ASSERT_EQ(pair.a.wait_send().wr_id, polled++);
        const int size = sizes[round % 8];
        ASSERT_EQ(ibv_resize_cq(cq, size), 0) << "to " << size;
        EXPECT_GE(cq->cqe, size);
        for (int i = 0; i < 3; ++i)
            ASSERT_EQ(pair.a.post(write_with_id(pair.a, posted++)), 0);
        while (polled < posted) {
            const ibv_wc wc = pair.a.wait_send();
            ASSERT_TRUE(succeeded(wc));
            ASSERT_EQ(wc.wr_id, polled++) << "in round " << round;
        }
        ASSERT_FALSE(poll_for(cq, milliseconds(1)));
    }
}

TEST(CompletionQueue, ResizeBelowWhatIsInsideIsRefused) {
    Pair pair;
    for (std::uint64_t id = 0; id < 60; ++id)
        ASSERT_EQ(pair.a.post(write_with_id(pair.a, id)), 0);
    std::this_thread::sleep_for(milliseconds(50));  // let them complete
    EXPECT_NE(ibv_resize_cq(pair.a.send_cq.get(), 20), 0);
    for (std::uint64_t id = 0; id < 60; ++id)
        ASSERT_EQ(pair.a.wait_send().wr_id, id);
}

TEST(CompletionQueue, ResizeWhileCompletionsArrive) {
    Endpoint::Options options;
    options.send_depth = 100;
    Pair pair(options);
    constexpr std::uint64_t kCount = 20000;
    std::atomic<bool> stop{false};
    std::thread poster([&] {
        for (std::uint64_t id = 0; id < kCount && !stop; ++id) {
            while (pair.a.post(write_with_id(pair.a, id)) != 0 && !stop)
                std::this_thread::yield();
        }
    });
    std::uint64_t polled = 0;
    bool good = true;
    for (int size = 200; good && polled < kCount; size = size == 200 ? 400 : 200) {
        EXPECT_EQ(ibv_resize_cq(pair.a.send_cq.get(), size), 0);
        for (int i = 0; good && i < 97 && polled < kCount; ++i) {
            const auto wc = poll_for(pair.a.send_cq.get(), kDeadline);
            good = wc && wc->status == IBV_WC_SUCCESS && wc->wr_id == polled;
            EXPECT_TRUE(good) << "completion " << polled
                              << (wc ? " is " + describe(*wc) : " is lost");
            ++polled;
        }
    }
    stop = true;
    poster.join();
}

// More completions than the ring holds: CQ_ERR, and the QPs with it go to error (IBTA 11.6.3.2).
TEST(CompletionQueue, OverrunRaisesAnEvent) {
    Endpoint::Options options;
    options.cq_depth = 3;
    options.send_depth = 64;
    Pair pair(options);
    // libmlx5 makes room for more than was asked; more than that must be posted.
    const int room = pair.a.send_cq->cqe;
    ASSERT_LT(room, 60);
    for (int i = 0; i < 64; ++i)
        ASSERT_EQ(pair.a.post(write_with_id(pair.a, 1)), 0);
    const auto event = async_event(pair.a.context.get(), kDeadline);
    ASSERT_TRUE(event) << "no event of an overrun";
    EXPECT_EQ(event->event_type, IBV_EVENT_CQ_ERR) << ibv_event_type_str(event->event_type);
    EXPECT_EQ(event->element.cq, pair.a.send_cq.get());
    // The rest works: another pair of the same context.
    Pair other;
    EXPECT_TRUE(other.a.run(write_with_id(other.a, 2)));
}

// A CQ that is exactly full is not overrun.
TEST(CompletionQueue, FullIsNotOverrun) {
    Endpoint::Options options;
    options.cq_depth = 15;
    options.send_depth = 64;
    Pair pair(options);
    const auto room = static_cast<std::uint64_t>(pair.a.send_cq->cqe);
    ASSERT_LE(room, 64u);
    for (int round = 0; round < 3; ++round) {
        for (std::uint64_t id = 0; id < room; ++id)
            ASSERT_EQ(pair.a.post(write_with_id(pair.a, id)), 0);
        EXPECT_FALSE(async_event(pair.a.context.get(), milliseconds(50)));
        for (std::uint64_t id = 0; id < room; ++id)
            ASSERT_EQ(pair.a.wait_send().wr_id, id);
    }
}

// Both queues of many QPs in one CQ: each QP's completions are in its order.
TEST(CompletionQueue, OfManyQueuePairsKeepsTheOrderOfEach) {
    constexpr std::size_t kPairs = 8;
    constexpr std::uint64_t kEach = 500;
    Endpoint base;
    const auto cq = create_cq(base.context.get(), 4096);
    std::vector<std::unique_ptr<Endpoint>> near;
    std::vector<std::unique_ptr<Endpoint>> far;
    for (std::size_t i = 0; i < kPairs; ++i) {
        for (auto* list : {&near, &far}) {
            list->push_back(std::make_unique<Endpoint>(Endpoint::Options{}, &base));
            ibv_qp_init_attr attributes = {};
            attributes.send_cq = attributes.recv_cq = cq.get();
            attributes.qp_type = IBV_QPT_RC;
            attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 600;
            attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
            list->back()->qp.reset(check(ibv_create_qp(base.pd.get(), &attributes), "QP"));
        }
        near[i]->connect(far[i]->address());
        far[i]->connect(near[i]->address());
        for (std::uint64_t id = 0; id < kEach; ++id)
            ASSERT_EQ(far[i]->post_receive(id, {far[i]->memory->sge(0, 64)}), 0);
    }
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kPairs; ++i) {
        threads.emplace_back([&, i] {
            for (std::uint64_t id = 0; id < kEach; ++id) {
                Work work;
                work.id = id;
                work.sges = {near[i]->memory->sge(0, 16)};
                EXPECT_EQ(near[i]->post(work), 0);
            }
        });
    }
    std::vector<std::uint64_t> next_send(kPairs, 0);
    std::vector<std::uint64_t> next_receive(kPairs, 0);
    for (std::uint64_t count = 0; count < 2 * kPairs * kEach; ++count) {
        const auto wc = poll_for(cq.get(), kDeadline);
        EXPECT_TRUE(wc) << "only " << count << " completions";
        if (!wc) break;
        EXPECT_TRUE(succeeded(*wc));
        for (std::size_t i = 0; i < kPairs; ++i) {
            if (wc->qp_num == near[i]->qp->qp_num) {
                EXPECT_EQ(wc->wr_id, next_send[i]++);
                EXPECT_EQ(wc->opcode, IBV_WC_SEND);
            } else if (wc->qp_num == far[i]->qp->qp_num) {
                EXPECT_EQ(wc->wr_id, next_receive[i]++);
                EXPECT_EQ(wc->opcode, IBV_WC_RECV);
            }
        }
    }
    for (auto& thread : threads)
        thread.join();
    for (std::size_t i = 0; i < kPairs; ++i) {
        EXPECT_EQ(next_send[i], kEach);
        EXPECT_EQ(next_receive[i], kEach);
        near[i]->qp.reset();
        far[i]->qp.reset();
    }
}

TEST(CompletionQueue, CannotBeDestroyedWhileAQueuePairUsesIt) {
    Endpoint e;
    ibv_cq* cq = e.send_cq.get();
    const int error = ibv_destroy_cq(cq);
    if (error == 0) static_cast<void>(e.send_cq.release());
    EXPECT_EQ(error, EBUSY);
}

}  // namespace
}  // namespace softhca::test
