// SPDX-License-Identifier: BSD-2-Clause
// What the end of a process means to its peers. A requester hears nothing and retries until its
// count is exceeded, whenever it asks (IBTA 9.7.6.1.3, 11.6.2). A QP that only receives hears
// nothing either; with SOFTHCA_LOST_PEER=flush its receives are flushed. Lives by an access to a
// process that is half gone being taken for an error of the request, and by states of the other QP
// that nobody looks at.

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

using std::chrono::milliseconds;

bool flushes() {
    const char* value = std::getenv("SOFTHCA_LOST_PEER");
    return value != nullptr && std::strcmp(value, "flush") == 0;
}

enum class End { kAbrupt, kKilled, kOrderly };

std::string name(End end) {
    switch (end) {
        case End::kAbrupt:
            return "Abrupt";
        case End::kKilled:
            return "Killed";
        case End::kOrderly:
            return "Orderly";
    }
    return {};
}

// Never returns. In order: the destructors of verbs objects do not run, those of libraries do.
[[noreturn]] void end_process(End end) {
    switch (end) {
        case End::kAbrupt:
            _exit(0);
        case End::kKilled:
            raise(SIGKILL);
            break;
        case End::kOrderly:
            break;
    }
    std::exit(0);
}

struct Death {
    Transport transport;
    bool srq;
    End end;
};

class DeadPeer : public testing::TestWithParam<Death> {
protected:
    static Endpoint::Options options() {
        Endpoint::Options options;
        options.transport = GetParam().transport;
        options.srq = GetParam().srq;
        options.timeout = 12;  // 16.8 ms, four times
        options.retry_count = 3;
        options.memory = 8192;
        return options;
    }
    void SetUp() override {
        if (flushes()) GTEST_SKIP() << "a SEND that is posted after the flush is flushed, too";
    }
};

// The peer has no receives, so the SEND cannot succeed at any moment.
TEST_P(DeadPeer, SendEndsInTransportRetryExceededWheneverItIsPosted) {
    const End end = GetParam().end;
    for (const int delay_us : {0, 0, 50, 200, 1000, 20000, 400000}) {
        SCOPED_TRACE(testing::Message() << delay_us << " us after the last word");
        Child peer([&](Channel& channel) {
            Endpoint e(options());
            connect_over(channel, e);
            channel.send('x');
            end_process(end);
        });
        Endpoint e(options());
        connect_over(peer.channel(), e);
        peer.channel().receive<char>();
        if (delay_us) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
        testing::internal::CaptureStderr();
        const int posted = e.post(send_of(e, 64));
        ibv_wc wc = {};
        if (posted == 0) wc = e.wait_send();
        peer.wait();
        const std::string said = testing::internal::GetCapturedStderr();
        ASSERT_EQ(posted, 0);
        EXPECT_TRUE(has_status(wc, IBV_WC_RETRY_EXC_ERR, kVendorTransportRetry));
        EXPECT_EQ(said.find("cannot deliver"), std::string::npos) << said;
    }
}

// The peer takes all there is until it ends in the middle of it: what is not answered any more ends
// in the same way.
TEST_P(DeadPeer, StreamEndsInTransportRetryExceeded) {
    const End end = GetParam().end;
    for (int round = 0; round < 12; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        Child peer([&](Channel& channel) {
            Endpoint e(options());
            connect_over(channel, e);
            std::uint64_t posted = 0;
            while (posted < 32)
                e.post_receive(posted++, {e.memory->sge(4096, 2048)});
            for (int got = 0; got < 20 + 7 * round;) {
                ibv_wc wc[8];
                const int n = ibv_poll_cq(e.receive_cq.get(), 8, wc);
                for (int i = 0; i < n; ++i)
                    e.post_receive(posted++, {e.memory->sge(4096, 2048)});
                got += n;
                if (n == 0) std::this_thread::yield();
            }
            end_process(end);
        });
        Endpoint e(options());
        connect_over(peer.channel(), e);
        const Work requests[] = {send_of(e, 2000), write_of(e, 3000), [&] {
                                     Work read = write_of(e, 500);
                                     read.opcode = IBV_WR_RDMA_READ;
                                     return read;
                                 }()};
        const auto give_up = Clock::now() + kDeadline;
        for (std::size_t n = 0;; ++n) {
            ASSERT_EQ(e.post(requests[n % std::size(requests)]), 0);
            const ibv_wc wc = e.wait_send();
            if (wc.status != IBV_WC_SUCCESS) {
                EXPECT_TRUE(has_status(wc, IBV_WC_RETRY_EXC_ERR, kVendorTransportRetry));
                break;
            }
            ASSERT_LT(Clock::now(), give_up);
        }
        peer.wait();
    }
}

std::string death_name(const testing::TestParamInfo<Death>& info) {
    return std::string(test::name(info.param.transport)) + (info.param.srq ? "Shared" : "") +
           name(info.param.end);
}

INSTANTIATE_TEST_SUITE_P(Each, DeadPeer,
                         testing::Values(Death{Transport::kRc, false, End::kAbrupt},
                                         Death{Transport::kRc, false, End::kKilled},
                                         Death{Transport::kRc, false, End::kOrderly},
                                         Death{Transport::kRc, true, End::kAbrupt},
                                         Death{Transport::kXrc, true, End::kKilled}),
                         death_name);

enum class Left { kInit, kReadyToReceive, kReadyToSend, kError, kReset, kDestroyed };

std::string name(Left state) {
    switch (state) {
        case Left::kInit:
            return "Init";
        case Left::kReadyToReceive:
            return "ReadyToReceive";
        case Left::kReadyToSend:
            return "ReadyToSend";
        case Left::kError:
            return "Error";
        case Left::kReset:
            return "Reset";
        case Left::kDestroyed:
            return "Destroyed";
    }
    return {};
}

struct Departure {
    Left left;
    End end;
};

class WaitingServer : public testing::TestWithParam<Departure> {};

// The state that the client's QP is in when its process ends makes no difference.
TEST_P(WaitingServer, LearnsOfALostClientOnlyIfAsked) {
    const auto [left, end] = GetParam();
    Child client([left = left, end = end](Channel& channel) {
        Endpoint e;
        channel.send(e.address());
        const auto server = channel.receive<Address>();
        e.to_init();
        if (left != Left::kInit) e.to_ready_to_receive(server);
        if (left != Left::kInit && left != Left::kReadyToReceive) e.to_ready_to_send();
        if (left == Left::kError) e.to_error();
        if (left == Left::kReset) {
            ibv_qp_attr attr = {};
            attr.qp_state = IBV_QPS_RESET;
            require(ibv_modify_qp(e.qp.get(), &attr, IBV_QP_STATE), "RESET");
        }
        if (left == Left::kDestroyed) e.qp.reset();
        channel.meet();
        end_process(end);
    });
    Endpoint::Options options;
    options.timeout = 12;
    options.retry_count = 3;
    Endpoint e(options);
    const auto address = client.channel().receive<Address>();
    client.channel().send(e.address());
    e.connect(address);
    for (std::uint64_t id = 0; id < 3; ++id)
        ASSERT_EQ(e.post_receive(id, {e.memory->sge(0, 64)}), 0);
    client.channel().meet();
    client.wait();
    if (flushes()) {
        for (std::uint64_t id = 0; id < 3; ++id) {
            const ibv_wc wc = e.wait_receive();
            EXPECT_TRUE(has_status(wc, IBV_WC_WR_FLUSH_ERR, kVendorFlush));
            EXPECT_EQ(wc.wr_id, id);
        }
        EXPECT_EQ(state_of(e.qp.get()), IBV_QPS_ERR);
        return;
    }
    EXPECT_FALSE(poll_for(e.receive_cq.get(), milliseconds(700)));
    EXPECT_EQ(state_of(e.qp.get()), IBV_QPS_RTS);
    ASSERT_EQ(e.post(send_of(e, 64)), 0);
    EXPECT_TRUE(has_status(e.wait_send(), IBV_WC_RETRY_EXC_ERR, kVendorTransportRetry));
}

// A peer that lives is not lost, however long it says nothing and whatever its state.
TEST(WaitingServers, KeepTheirReceivesWhileTheClientLives) {
    Endpoint::Options options;
    options.timeout = 8;  // 1 ms
    options.retry_count = 0;
    Pair pair(options);
    ASSERT_EQ(pair.a.post_receive(1, {pair.a.memory->sge(0, 64)}), 0);
    pair.b.to_error();
    EXPECT_FALSE(poll_for(pair.a.receive_cq.get(), milliseconds(500)));
    EXPECT_EQ(state_of(pair.a.qp.get()), IBV_QPS_RTS);
}

// The kernel ends a process in steps. Its memory may be gone while the lock that says that it lives
// is still held: here a child holds it, which libc knows nothing of.
TEST(HalfGone, AWriteEndsInTransportRetryExceeded) {
    Endpoint::Options options;
    options.timeout = 12;  // 16.8 ms, twice
    options.retry_count = 1;
    options.memory = 8192;
    int until_closed[2];
    ASSERT_EQ(pipe(until_closed), 0);
    Child peer([&](Channel& channel) {
        Endpoint e(options);
        // The kernel copies to memory of this kind.
        void* memory =
            mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) fail("mmap");
        const ibv_mr* mr = check(ibv_reg_mr(e.pd.get(), memory, 4096, kAllAccess), "ibv_reg_mr");
        connect_over(channel, e);
        channel.send(reinterpret_cast<std::uint64_t>(memory));
        channel.send(mr->rkey);
        channel.meet();
        if (syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr) == 0) {
            close(channel.socket());
            close(until_closed[1]);
            char byte;
            static_cast<void>(!read(until_closed[0], &byte, 1));
            syscall(SYS_exit_group, 0);
        }
        raise(SIGKILL);
    });
    close(until_closed[0]);
    Endpoint e(options);
    connect_over(peer.channel(), e);
    Work work = write_of(e);
    work.remote = peer.channel().receive<std::uint64_t>();
    work.rkey = peer.channel().receive<std::uint32_t>();
    EXPECT_TRUE(e.run(work)) << "while the peer lives";
    peer.channel().meet();
    peer.wait();
    const int posted = e.post(work);
    ibv_wc wc = {};
    if (posted == 0) wc = e.wait_send();
    close(until_closed[1]);
    ASSERT_EQ(posted, 0);
    EXPECT_TRUE(has_status(wc, IBV_WC_RETRY_EXC_ERR, kVendorTransportRetry));
}

std::string departure_name(const testing::TestParamInfo<Departure>& info) {
    return name(info.param.left) + name(info.param.end);
}

INSTANTIATE_TEST_SUITE_P(Each, WaitingServer,
                         testing::Values(Departure{Left::kInit, End::kAbrupt},
                                         Departure{Left::kReadyToReceive, End::kAbrupt},
                                         Departure{Left::kReadyToSend, End::kAbrupt},
                                         Departure{Left::kError, End::kAbrupt},
                                         Departure{Left::kReset, End::kAbrupt},
                                         Departure{Left::kDestroyed, End::kAbrupt},
                                         Departure{Left::kReadyToSend, End::kKilled},
                                         Departure{Left::kError, End::kKilled},
                                         Departure{Left::kReadyToSend, End::kOrderly},
                                         Departure{Left::kError, End::kOrderly}),
                         departure_name);

}  // namespace
}  // namespace softhca::test
