// SPDX-License-Identifier: BSD-2-Clause
// Completion channels (IBTA 11.4.2.2): arming for any and for solicited completions, the race
// between arming and a completion, several CQs on one channel, accounting of events at destroy,
// and a reader that sleeps. Lives by a wake-up that is lost, doubled or never acknowledged.

#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

using std::chrono::milliseconds;

Endpoint::Options with_events() {
    Endpoint::Options options;
    options.events = true;
    return options;
}

bool readable(ibv_comp_channel* channel, milliseconds time) {
    pollfd waiting = {channel->fd, POLLIN, 0};
    return poll(&waiting, 1, static_cast<int>(time.count())) > 0;
}

// The CQ of the next event, acknowledged; nullptr when none comes.
ibv_cq* next_event(ibv_comp_channel* channel, milliseconds time) {
    if (!readable(channel, time)) return nullptr;
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    if (ibv_get_cq_event(channel, &cq, &user) != 0) fail("ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
    return cq;
}

Work flagged_send(const Endpoint& e, unsigned flags = IBV_SEND_SIGNALED) {
    Work work;
    work.flags = flags;
    work.sges = {e.memory->sge(0, 16)};
    return work;
}

TEST(CompletionEvents, ComeOnceForEachArming) {
    Pair pair(with_events());
    for (int i = 0; i < 10; ++i)
        ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 64)}), 0);
    ASSERT_TRUE(pair.a.run(flagged_send(pair.a)));
    EXPECT_FALSE(readable(pair.b.channel.get(), milliseconds(30))) << "it was not armed";
    ASSERT_TRUE(succeeded(pair.b.wait_receive()));
    for (int round = 0; round < 3; ++round) {
        ASSERT_EQ(ibv_req_notify_cq(pair.b.receive_cq.get(), 0), 0);
        EXPECT_FALSE(readable(pair.b.channel.get(), milliseconds(10)));
        for (int i = 0; i < 3; ++i)
            ASSERT_TRUE(pair.a.run(flagged_send(pair.a)));
        EXPECT_EQ(next_event(pair.b.channel.get(), milliseconds(5000)), pair.b.receive_cq.get());
        EXPECT_FALSE(readable(pair.b.channel.get(), milliseconds(30))) << "one arming, one event";
        for (int i = 0; i < 3; ++i)
            ASSERT_TRUE(succeeded(pair.b.wait_receive()));
    }
}

// A completion that is already in the CQ when it is armed: ConnectX raises the event if it came
// after the last one that was polled.
TEST(CompletionEvents, ComeForCompletionsThatWereNotPolled) {
    Pair pair(with_events());
    ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 64)}), 0);
    ASSERT_TRUE(pair.a.run(flagged_send(pair.a)));
    ASSERT_EQ(ibv_req_notify_cq(pair.b.receive_cq.get(), 0), 0);
    EXPECT_EQ(next_event(pair.b.channel.get(), milliseconds(5000)), pair.b.receive_cq.get());
    ASSERT_TRUE(succeeded(pair.b.wait_receive()));
}

TEST(CompletionEvents, SolicitedOnlyWakesForSolicitedAndErrors) {
    Pair pair(with_events());
    for (int i = 0; i < 10; ++i)
        ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 64)}), 0);
    ASSERT_EQ(ibv_req_notify_cq(pair.b.receive_cq.get(), 1), 0);
    ASSERT_TRUE(pair.a.run(flagged_send(pair.a)));
    EXPECT_FALSE(readable(pair.b.channel.get(), milliseconds(50))) << "it was not solicited";
    ASSERT_TRUE(pair.a.run(flagged_send(pair.a, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)));
    EXPECT_EQ(next_event(pair.b.channel.get(), milliseconds(5000)), pair.b.receive_cq.get());
    for (int i = 0; i < 2; ++i)
        ASSERT_TRUE(succeeded(pair.b.wait_receive()));
    // Write with immediate is solicited by its flag too; a plain write makes no completion there.
    ASSERT_EQ(ibv_req_notify_cq(pair.b.receive_cq.get(), 1), 0);
    Work work = flagged_send(pair.a, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
    work.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    ASSERT_TRUE(pair.a.run(work));
    EXPECT_EQ(next_event(pair.b.channel.get(), milliseconds(5000)), pair.b.receive_cq.get());
    ASSERT_TRUE(succeeded(pair.b.wait_receive()));
    // "Any" after "solicited" widens the arming.
    ASSERT_EQ(ibv_req_notify_cq(pair.b.receive_cq.get(), 1), 0);
    ASSERT_EQ(ibv_req_notify_cq(pair.b.receive_cq.get(), 0), 0);
    ASSERT_TRUE(pair.a.run(flagged_send(pair.a)));
    EXPECT_EQ(next_event(pair.b.channel.get(), milliseconds(5000)), pair.b.receive_cq.get());
    ASSERT_TRUE(succeeded(pair.b.wait_receive()));
    ASSERT_EQ(ibv_req_notify_cq(pair.b.receive_cq.get(), 1), 0);
    pair.b.to_error();
    EXPECT_EQ(next_event(pair.b.channel.get(), milliseconds(5000)), pair.b.receive_cq.get())
        << "an error is always solicited";
}

// A program with one CQ that counts on its SEND being complete once the reply is there. On a wire
// the ACK comes before the reply. The receiver sleeps, so that the event wakes it at once.
TEST(CompletionEvents, ASendIsCompleteBeforeItsReply) {
    constexpr std::uint64_t kSent = 1, kReply = 2;
    constexpr int kRounds = 300;
    const auto share_one_cq = [](Endpoint& e) {
        ibv_qp_init_attr attributes = {};
        attributes.qp_type = IBV_QPT_RC;
        attributes.send_cq = attributes.recv_cq = e.receive_cq.get();
        attributes.cap = {16, 16, 1, 1, 64};
        e.qp.reset(check(ibv_create_qp(e.pd.get(), &attributes), "ibv_create_qp"));
    };
    run_sides(
        Placement::kProcesses,
        [&](Channel& channel) {
            Endpoint e(with_events());
            share_one_cq(e);
            connect_over(channel, e);
            for (int i = 0; i < kRounds; ++i) {
                ASSERT_EQ(e.post_receive(kReply, {e.memory->sge(64, 64)}), 0);
                channel.meet();
                Work work = flagged_send(e);
                work.id = kSent;
                ASSERT_EQ(e.post(work), 0);
                ASSERT_EQ(e.wait_receive().wr_id, kSent) << "round " << i;
                ASSERT_EQ(e.wait_receive().wr_id, kReply) << "round " << i;
            }
        },
        [&](Channel& channel) {
            Endpoint e(with_events());
            share_one_cq(e);
            connect_over(channel, e);
            for (int i = 0; i < kRounds; ++i) {
                ASSERT_EQ(e.post_receive(kReply, {e.memory->sge(64, 64)}), 0);
                ASSERT_EQ(ibv_req_notify_cq(e.receive_cq.get(), 0), 0);
                channel.meet();
                ASSERT_EQ(next_event(e.channel.get(), milliseconds(20000)), e.receive_cq.get());
                ASSERT_TRUE(succeeded(e.wait_receive()));
                ASSERT_EQ(e.post(flagged_send(e)), 0);
                ASSERT_TRUE(succeeded(e.wait_receive()));
            }
        });
}

TEST(CompletionEvents, OfSeveralCqsOnOneChannelNameTheirCq) {
    Endpoint base(with_events());
    std::vector<std::unique_ptr<Endpoint>> near;
    std::vector<std::unique_ptr<Endpoint>> far;
    std::vector<Owned<ibv_cq>> queues;
    std::map<ibv_cq*, int> expected;
    for (int i = 0; i < 6; ++i) {
        near.push_back(std::make_unique<Endpoint>(Endpoint::Options{}, &base));
        far.push_back(std::make_unique<Endpoint>(Endpoint::Options{}, &base));
        queues.push_back(create_cq(base.context.get(), 16, base.channel.get()));
        Endpoint& e = *far.back();
        ibv_qp_init_attr attributes = {};
        attributes.send_cq = attributes.recv_cq = queues.back().get();
        attributes.qp_type = IBV_QPT_RC;
        attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 16;
        attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
        e.qp.reset(check(ibv_create_qp(base.pd.get(), &attributes), "ibv_create_qp"));
        near.back()->connect(e.address());
        e.connect(near.back()->address());
        ASSERT_EQ(e.post_receive(1, {e.memory->sge(0, 64)}), 0);
        ASSERT_EQ(ibv_req_notify_cq(queues.back().get(), 0), 0);
        if (i % 2 == 0) expected[queues.back().get()] = 1;
    }
    for (std::size_t i = 0; i < near.size(); i += 2)
        ASSERT_TRUE(near[i]->run(flagged_send(*near[i])));
    for (std::size_t i = 0; i < expected.size(); ++i) {
        ibv_cq* cq = next_event(base.channel.get(), milliseconds(5000));
        ASSERT_NE(cq, nullptr);
        EXPECT_EQ(expected[cq]--, 1) << "an event of a CQ that got nothing, or twice";
    }
    EXPECT_FALSE(readable(base.channel.get(), milliseconds(20)));
    for (auto& e : far)
        e->qp.reset();
}

// ibv_destroy_cq waits until every event that was read is acknowledged: events nobody read must
// not be waited for, and must not be delivered afterwards.
TEST(CompletionEvents, DestroyWithUnreadEventsDoesNotHang) {
    for (int round = 0; round < 20; ++round) {
        Endpoint base(with_events());
        Endpoint near({}, &base);
        Endpoint far({}, &base);
        auto cq = create_cq(base.context.get(), 16, base.channel.get());
        ibv_qp_init_attr attributes = {};
        attributes.send_cq = attributes.recv_cq = cq.get();
        attributes.qp_type = IBV_QPT_RC;
        attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 16;
        attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
        far.qp.reset(check(ibv_create_qp(base.pd.get(), &attributes), "ibv_create_qp"));
        near.connect(far.address());
        far.connect(near.address());
        for (int i = 0; i < 4; ++i) {
            ASSERT_EQ(far.post_receive(1, {far.memory->sge(0, 64)}), 0);
            ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
            ASSERT_TRUE(near.run(flagged_send(near)));
            ASSERT_TRUE(poll_for(cq.get(), kDeadline));
            if (i < round % 4) {
                EXPECT_EQ(next_event(base.channel.get(), milliseconds(5000)), cq.get());
            }
        }
        far.qp.reset();
        cq.reset();  // hangs when it counts an unread event
        EXPECT_FALSE(readable(base.channel.get(), milliseconds(1)))
            << "an event of a CQ that is gone";
    }
}

TEST(CompletionEvents, NonBlockingChannelSaysAgain) {
    const Endpoint e(with_events());
    const int flags = fcntl(e.channel->fd, F_GETFL);
    ASSERT_EQ(fcntl(e.channel->fd, F_SETFL, flags | O_NONBLOCK), 0);
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    EXPECT_EQ(ibv_get_cq_event(e.channel.get(), &cq, &user), -1);
    EXPECT_EQ(errno, EAGAIN);
}

// The canonical loop - arm, poll until empty, sleep - against a sender that never stops for long.
// A lost wake-up ends in a timeout here.
void sleep_and_wake(Placement placement, Transport transport, std::uint32_t messages) {
    Endpoint::Options options = with_events();
    options.transport = transport;
    options.receive_depth = 64;
    run_sides(
        placement,
        [&](Channel& channel) {
            Endpoint e(options);
            connect_over(channel, e);
            ibv_cq* cq = e.send_cq.get();
            for (std::uint32_t i = 0; i < messages; ++i) {
                std::memcpy(e.memory->data(), &i, sizeof i);
                ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
                ASSERT_EQ(e.post(flagged_send(e)), 0);
                ibv_wc wc;
                int count = 0;
                while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) {
                    ASSERT_NE(next_event(e.channel.get(), milliseconds(20000)), nullptr)
                        << "no event for send " << i;
                    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
                }
                ASSERT_EQ(count, 1);
                ASSERT_TRUE(succeeded(wc));
                if (i % 64 == 63) std::this_thread::sleep_for(std::chrono::microseconds(i % 300));
            }
        },
        [&](Channel& channel) {
            Endpoint e(options);
            for (std::uint64_t i = 0; transport == Transport::kXrc && i < 32; ++i)
                ASSERT_EQ(e.post_receive(i, {e.memory->sge(i * 64, 64)}), 0);
            e.to_init();
            for (std::uint64_t i = 0; transport != Transport::kXrc && i < 32; ++i)
                ASSERT_EQ(e.post_receive(i, {e.memory->sge(i * 64, 64)}), 0);
            channel.send(e.address());
            e.to_ready_to_receive(channel.receive<Address>());
            e.to_ready_to_send();
            channel.meet();
            ibv_cq* cq = e.receive_cq.get();
            std::uint32_t got = 0;
            std::uint32_t slept = 0;
            ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
            while (got < messages) {
                ibv_wc wc;
                const int count = ibv_poll_cq(cq, 1, &wc);
                ASSERT_GE(count, 0);
                if (count == 0) {
                    ASSERT_NE(next_event(e.channel.get(), milliseconds(20000)), nullptr)
                        << "no event for message " << got << " (slept " << slept << " times)";
                    ++slept;
                    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
                    continue;
                }
                ASSERT_TRUE(succeeded(wc));
                std::uint32_t value;
                std::memcpy(&value, e.memory->data() + wc.wr_id * 64, sizeof value);
                ASSERT_EQ(value, got);
                ++got;
                ASSERT_EQ(e.post_receive(wc.wr_id, {e.memory->sge(wc.wr_id * 64, 64)}), 0);
            }
        });
}

TEST(CompletionEvents, SleepersAreWokenThreads) {
    sleep_and_wake(Placement::kThreads, Transport::kRc, 10000);
}
TEST(CompletionEvents, SleepersAreWokenProcesses) {
    sleep_and_wake(Placement::kProcesses, Transport::kRc, 10000);
}
TEST(CompletionEvents, SleepersAreWokenXrcProcesses) {
    sleep_and_wake(Placement::kProcesses, Transport::kXrc, 5000);
}

}  // namespace
}  // namespace softhca::test
