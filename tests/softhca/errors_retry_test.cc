// SPDX-License-Identifier: BSD-2-Clause
// What happens while a peer cannot answer (IBTA 9.7.5.2.8, 9.7.6, 9.9.2.1): RNR NAKs with a finite
// and an infinite rnr_retry, and acknowledgement timeouts when the peer is not ready, gone or
// killed. Times are lower bounds from the specification; the upper ones are generous. Lives by a
// retry that gives up at once, never gives up, forgets the request, or stops other QPs meanwhile.

#include <signal.h>

#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

milliseconds since(Clock::time_point start) {
    return duration_cast<milliseconds>(Clock::now() - start);
}

class Retries : public testing::TestWithParam<Transport> {
protected:
    static Endpoint::Options options() {
        Endpoint::Options options;
        options.transport = GetParam();
        return options;
    }
    static Work send_of(const Endpoint& e, std::uint64_t id, std::size_t length = 64) {
        Work work;
        work.id = id;
        work.sges = {e.memory->sge(0, length)};
        return work;
    }
};

// rnr_retry = 2 with a timer of 40.96 ms (code 24): two waits, then the error.
TEST_P(Retries, FiniteRnrRetryEndsInAnError) {
    Endpoint::Options sender = options();
    sender.rnr_retry = 2;
    Endpoint::Options receiver = options();
    receiver.min_rnr_timer = 24;
    Pair pair(sender, receiver);
    const auto start = Clock::now();
    ASSERT_EQ(pair.a.post(send_of(pair.a, 1)), 0);
    ASSERT_EQ(pair.a.post(send_of(pair.a, 2)), 0);
    const ibv_wc wc = pair.a.wait_send();
    const auto took = since(start);
    EXPECT_TRUE(has_status(wc, IBV_WC_RNR_RETRY_EXC_ERR, kVendorRnrRetry));
    EXPECT_EQ(wc.wr_id, 1u);
    EXPECT_GE(took.count(), 80) << "two RNR waits of 40.96 ms";
    EXPECT_LE(took.count(), 8000) << "a hundred times the specified wait";
    EXPECT_TRUE(has_status(pair.a.wait_send(), IBV_WC_WR_FLUSH_ERR, kVendorFlush));
    EXPECT_EQ(state_of(pair.a.qp.get()), IBV_QPS_ERR);
    EXPECT_NE(state_of(pair.b.receiver()), IBV_QPS_ERR) << "RNR is no error of the responder";
    // A receive that comes too late stays unused.
    ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 64)}), 0);
    EXPECT_FALSE(poll_for(pair.b.receive_cq.get(), milliseconds(200)));
}

TEST_P(Retries, RnrRetryOfZeroFailsAtTheFirstNak) {
    Endpoint::Options sender = options();
    sender.rnr_retry = 0;
    Endpoint::Options receiver = options();
    receiver.min_rnr_timer = 31;  // 491.52 ms, which must not be waited for
    Pair pair(sender, receiver);
    ASSERT_EQ(pair.a.post(send_of(pair.a, 1)), 0);
    EXPECT_TRUE(has_status(pair.a.wait_send(), IBV_WC_RNR_RETRY_EXC_ERR, kVendorRnrRetry));
}

// A success in between gives a new count: three messages, each of which waits once of two.
TEST_P(Retries, RnrCountStartsAnewForEachMessage) {
    Endpoint::Options sender = options();
    sender.rnr_retry = 6;
    Endpoint::Options receiver = options();
    receiver.min_rnr_timer = 26;  // 81.92 ms; six of them are half a second
    Pair pair(sender, receiver);
    for (std::uint64_t id = 0; id < 4; ++id)
        ASSERT_EQ(pair.a.post(send_of(pair.a, id)), 0);
    for (std::uint64_t id = 0; id < 4; ++id) {
        EXPECT_FALSE(poll_for(pair.a.send_cq.get(), milliseconds(200)));
        ASSERT_EQ(pair.b.post_receive(id, {pair.b.memory->sge(0, 64)}), 0);
        const ibv_wc wc = pair.a.wait_send();
        ASSERT_TRUE(succeeded(wc));
        EXPECT_EQ(wc.wr_id, id);
    }
}

// rnr_retry = 7: for ever. What was posted meanwhile follows in order once there are receives.
TEST_P(Retries, InfiniteRnrRetrySucceedsLater) {
    Endpoint::Options receiver = options();
    receiver.min_rnr_timer = 16;  // 2.56 ms
    Pair pair(options(), receiver);
    for (std::uint32_t i = 0; i < 4; ++i) {
        pair.a.memory->fill(i * 1024, 500, i);
        Work work;
        work.id = i;
        work.sges = {pair.a.memory->sge(i * 1024, 500)};
        ASSERT_EQ(pair.a.post(work), 0);
    }
    EXPECT_FALSE(poll_for(pair.a.send_cq.get(), milliseconds(400)));
    for (std::uint64_t i = 0; i < 4; ++i)
        ASSERT_EQ(pair.b.post_receive(i, {pair.b.memory->sge(i * 1024, 500)}), 0);
    for (std::uint32_t i = 0; i < 4; ++i) {
        const ibv_wc sent = pair.a.wait_send();
        ASSERT_TRUE(succeeded(sent));
        EXPECT_EQ(sent.wr_id, i);
        const ibv_wc got = pair.b.wait_receive();
        ASSERT_TRUE(succeeded(got));
        EXPECT_EQ(got.wr_id, i);
        EXPECT_TRUE(pair.b.memory->holds(i * 1024, 500, i));
    }
}

// The poster may sleep in an event while its work waits: somebody else must retry.
TEST_P(Retries, AreMadeWhileThePosterSleeps) {
    Endpoint::Options sleeping = options();
    sleeping.events = true;
    Pair pair(sleeping, options());
    ASSERT_EQ(ibv_req_notify_cq(pair.a.send_cq.get(), 0), 0);
    ASSERT_EQ(pair.a.post(send_of(pair.a, 1)), 0);
    std::thread late([&] {
        std::this_thread::sleep_for(milliseconds(300));
        EXPECT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 64)}), 0);
    });
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    EXPECT_EQ(ibv_get_cq_event(pair.a.channel.get(), &cq, &user), 0);
    EXPECT_EQ(cq, pair.a.send_cq.get());
    ibv_ack_cq_events(cq, 1);
    late.join();
    EXPECT_TRUE(succeeded(pair.a.wait_send()));
}

// A QP that waits must not hold up another one to the same process.
TEST_P(Retries, DoNotHoldUpOtherQueuePairs) {
    Pair blocked(options());
    Pair free(options());
    ASSERT_EQ(blocked.a.post(send_of(blocked.a, 1)), 0);
    Work write = send_of(free.a, 2);
    write.opcode = IBV_WR_RDMA_WRITE;
    for (int i = 0; i < 100; ++i)
        ASSERT_TRUE(free.a.run(write));
    EXPECT_FALSE(poll_for(blocked.a.send_cq.get(), milliseconds(1)));
}

// Nobody there at all: retry_cnt + 1 transmissions, each waited for at least 4.096 us * 2^timeout.
TEST_P(Retries, PeerThatNeverWasEndsInTransportRetryExceeded) {
    Endpoint::Options impatient = options();
    impatient.timeout = 14;  // 67.1 ms
    impatient.retry_count = 1;
    Endpoint e(impatient);
    Address nowhere = e.address();
    nowhere.qpn = nowhere.target_qpn = 0x7ffff0;
    e.connect(nowhere);
    const auto start = Clock::now();
    ASSERT_EQ(e.post(send_of(e, 1)), 0);
    ASSERT_EQ(e.post(send_of(e, 2)), 0);
    const ibv_wc wc = e.wait_send();
    EXPECT_TRUE(has_status(wc, IBV_WC_RETRY_EXC_ERR, kVendorTransportRetry));
    EXPECT_EQ(wc.wr_id, 1u);
    EXPECT_LE(since(start).count(), 12000) << "twenty times four timeouts";
    EXPECT_TRUE(has_status(e.wait_send(), IBV_WC_WR_FLUSH_ERR, kVendorFlush));
    EXPECT_EQ(state_of(e.qp.get()), IBV_QPS_ERR);
}

TEST_P(Retries, PeerThatIsNotReadyInTime) {
    Endpoint::Options impatient = options();
    impatient.retry_count = 1;
    Endpoint a(impatient);
    Endpoint b(options(), &a);
    b.to_init();
    a.connect(b.address());
    const auto start = Clock::now();
    ASSERT_EQ(a.post(send_of(a, 1)), 0);
    EXPECT_TRUE(has_status(a.wait_send(), IBV_WC_RETRY_EXC_ERR, kVendorTransportRetry));
    EXPECT_GE(since(start).count(), 120) << "two timeouts of 67.1 ms";
}

TEST_P(Retries, PeerThatBecomesReadyInTime) {
    Endpoint a(options());  // eight times 67 ms and more
    Endpoint b(options(), &a);
    b.to_init();
    a.connect(b.address());
    a.memory->fill(0, 64, 1);
    ASSERT_EQ(a.post(send_of(a, 1)), 0);
    EXPECT_FALSE(poll_for(a.send_cq.get(), milliseconds(100)));
    ASSERT_EQ(b.post_receive(1, {b.memory->sge(0, 64)}), 0);
    b.to_ready_to_receive(a.address());
    EXPECT_TRUE(succeeded(a.wait_send()));
    EXPECT_TRUE(succeeded(b.wait_receive()));
    EXPECT_TRUE(b.memory->holds(0, 64, 1));
}

// timeout = 0: wait for ever (IBTA 9.7.6.1.3).
TEST_P(Retries, TimeoutOfZeroNeverGivesUp) {
    Endpoint::Options patient = options();
    patient.timeout = 0;
    patient.retry_count = 0;
    Endpoint a(patient);
    Endpoint b(options(), &a);
    b.to_init();
    a.connect(b.address());
    ASSERT_EQ(a.post(send_of(a, 1)), 0);
    EXPECT_FALSE(poll_for(a.send_cq.get(), milliseconds(700)));
    ASSERT_EQ(b.post_receive(1, {b.memory->sge(0, 64)}), 0);
    b.to_ready_to_receive(a.address());
    EXPECT_TRUE(succeeded(a.wait_send()));
}

TEST_P(Retries, PeerWhoseQueuePairWasDestroyed) {
    Endpoint::Options impatient = options();
    impatient.retry_count = 1;
    Endpoint a(impatient);
    auto b = std::make_unique<Endpoint>(options(), &a);
    a.connect(b->address());
    b->connect(a.address());
    ASSERT_EQ(b->post_receive(1, {b->memory->sge(0, 64)}), 0);
    ASSERT_TRUE(a.run(send_of(a, 1)));
    b.reset();
    ASSERT_EQ(a.post(send_of(a, 2)), 0);
    EXPECT_TRUE(has_status(a.wait_send(), IBV_WC_RETRY_EXC_ERR, kVendorTransportRetry));
}

TEST_P(Retries, PeerWhoseQueuePairIsInError) {
    Endpoint::Options impatient = options();
    impatient.retry_count = 1;
    Pair pair(impatient, options());
    pair.b.to_error();
    Work write = send_of(pair.a, 2);
    write.opcode = IBV_WR_RDMA_WRITE;
    ASSERT_EQ(pair.a.post(write), 0);
    EXPECT_TRUE(has_status(pair.a.wait_send(), IBV_WC_RETRY_EXC_ERR, kVendorTransportRetry));
}

// The peer process is killed while a send waits for it, and before the next one.
TEST_P(Retries, PeerProcessThatWasKilled) {
    for (const bool waiting : {true, false}) {
        SCOPED_TRACE(waiting ? "while a send waits in RNR" : "between two sends");
        Child peer([&](Channel& channel) {
            Endpoint e(options());
            connect_over(channel, e);
            channel.receive<char>();  // never comes
        });
        Endpoint::Options impatient = options();
        impatient.retry_count = 1;
        Endpoint e(impatient);
        connect_over(peer.channel(), e);
        Work work = send_of(e, 1);
        if (waiting) {
            ASSERT_EQ(e.post(work), 0);
            EXPECT_FALSE(poll_for(e.send_cq.get(), milliseconds(20)));
        }
        peer.kill(SIGKILL);
        peer.wait();
        if (!waiting) {
            work.opcode = IBV_WR_RDMA_WRITE;
            ASSERT_EQ(e.post(work), 0);
        }
        EXPECT_TRUE(has_status(e.wait_send(), IBV_WC_RETRY_EXC_ERR, kVendorTransportRetry));
    }
}

INSTANTIATE_TEST_SUITE_P(Each, Retries, testing::Values(Transport::kRc, Transport::kXrc),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace softhca::test
