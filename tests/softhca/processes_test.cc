// SPDX-License-Identifier: BSD-2-Clause
// Processes that die, stop, idle or go mad. A killed peer ends in a transport error and leaves
// nothing behind; a stopped one never makes a posting thread wait; one that scribbles over its own
// WQEs, CQs, doorbell records and UAR pages harms only itself; one that sleeps uses no processor; a
// large transfer goes on while its poster computes.

#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>

#include "segment_file.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

using std::chrono::milliseconds;

Endpoint::Options impatient() {
    Endpoint::Options options;
    options.timeout = 12;  // 17 ms
    options.retry_count = 1;
    return options;
}

// A partner that sends, writes, reads and receives without end, on several QPs.
void busy(Channel& channel) {
    Endpoint e;
    connect_over(channel, e);
    for (std::uint64_t i = 0;; ++i) {
        e.post_receive(i, {e.memory->sge(32768, 4096)});
        e.post(write_of(e, 1 + i * 977 % 20000));
        e.post(send_of(e, 1 + i % 3000));
        Work read = write_of(e, 500);
        read.opcode = IBV_WR_RDMA_READ;
        e.post(read);
        ibv_wc wc[16];
        ibv_poll_cq(e.send_cq.get(), 16, wc);
        ibv_poll_cq(e.receive_cq.get(), 16, wc);
        // Objects too: the kill may come while a lock of the device is held.
        if (i % 64 == 0) {
            const Memory memory(e.pd.get(), 8192);
            const auto cq = create_cq(e.context.get(), 10);
        }
    }
}

// SIGKILL at random moments; a pair of this process goes on all the time, and the QP that talked to
// the killed one ends in an error within its time.
TEST(Processes, KilledAtRandomMoments) {
    std::mt19937 random(11);
    Pair survivor;
    for (int round = 0; round < 25; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        Child child(busy);
        Endpoint e(impatient());
        connect_over(child.channel(), e);
        const auto stop = Clock::now() + std::chrono::microseconds(random() % 30000);
        std::uint32_t turn = 0;
        const auto work_on = [&](Clock::time_point until) {
            while (Clock::now() < until) {
                e.post_receive(1, {e.memory->sge(32768, 4096)});
                poll_for(e.receive_cq.get(), Clock::duration{0});
                if (turn % 2 != 0) e.post(write_of(e, 3000));
                poll_for(e.send_cq.get(), Clock::duration{0});
                survivor.a.memory->fill(0, 2000, ++turn);
                ASSERT_TRUE(survivor.a.run(write_of(survivor.a, 2000)));
                ASSERT_TRUE(survivor.b.memory->holds(0, 2000, turn));
            }
        };
        work_on(stop);
        child.kill(SIGKILL);
        const int status = child.wait();
        EXPECT_TRUE(WIFSIGNALED(status)) << "it ended before it was killed";
        const auto end = Clock::now() + kDeadline;
        for (;;) {
            const auto wc = poll_for(e.send_cq.get(), milliseconds(1));
            if (wc && wc->status != IBV_WC_SUCCESS) {
                EXPECT_TRUE(wc->status == IBV_WC_RETRY_EXC_ERR || wc->status == IBV_WC_WR_FLUSH_ERR)
                    << describe(*wc);
                break;
            }
            ASSERT_LT(Clock::now(), end) << "no error of a dead peer; " << describe(e.qp.get());
            e.post(write_of(e, 100));
        }
        work_on(Clock::now() + milliseconds(5));
    }
}

// Two of three die; the third still reaches a fourth that comes later.
TEST(Processes, KilledWhileTheyServeTwoPeers) {
    for (int round = 0; round < 5; ++round) {
        Child first(busy);
        Child second(busy);
        Endpoint a(impatient());
        Endpoint b(impatient());
        connect_over(first.channel(), a);
        connect_over(second.channel(), b);
        std::this_thread::sleep_for(milliseconds(10));
        first.kill(SIGKILL);
        second.kill(SIGKILL);
        first.wait();
        second.wait();
        Pair pair;
        pair.a.memory->fill(0, 100, 1);
        ASSERT_TRUE(pair.a.run(write_of(pair.a, 100)));
        EXPECT_TRUE(pair.b.memory->holds(0, 100, 1));
    }
}

// The peer is stopped: posting returns at once, whatever it is, and its work is done later or when
// the peer goes on.
TEST(Processes, StoppedPeerDoesNotHoldUpThePoster) {
    Child child([](Channel& channel) {
        Endpoint e;
        connect_over(channel, e);
        for (std::uint64_t i = 0; i < 40; ++i)
            ASSERT_EQ(e.post_receive(i, {e.memory->sge(32768, 32768)}), 0);
        channel.meet();
        channel.meet();
    });
    Endpoint::Options patient;
    patient.timeout = 20;  // 4 s
    patient.memory = 1 << 20;
    Endpoint e(patient);
    connect_over(child.channel(), e);
    child.channel().meet();
    child.kill(SIGSTOP);
    int status = 0;
    ASSERT_EQ(waitpid(child.pid(), &status, WUNTRACED), child.pid());
    ASSERT_TRUE(WIFSTOPPED(status));
    const auto start = Clock::now();
    for (int i = 0; i < 30; ++i) {
        Work work = i % 3 == 0 ? send_of(e, 20000) : write_of(e, 30000);
        if (i % 3 == 2) work.opcode = IBV_WR_RDMA_READ;
        ASSERT_EQ(e.post(work), 0);
        ibv_wc wc;
        ASSERT_GE(ibv_poll_cq(e.send_cq.get(), 1, &wc), 0);
    }
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(2)) << "a post waited for the peer";
    Pair own;
    EXPECT_TRUE(own.a.run(write_of(own.a, 100)));
    child.kill(SIGCONT);
    child.channel().meet();
    child.expect_success();
}

// By which number a process's memory is copied is said in the fabric's segment.
void renumber(device::Segment& segment, pid_t from, pid_t to) {
    for (device::Process& process : segment.processes)
        if (process.state.load() == device::kLive && process.pid == from) process.pid = to;
}

// As if the two were in different PID namespaces: behind the number of the peer there is a process
// that has never heard of the fabric, with memory at the same addresses. Also when the number
// changes only after something was copied.
void copy_to_another_of_the_same_number(bool copied_before) {
    Child bystander([](Channel& channel) {
        const auto peer = channel.receive<Address>();
        void* at = mmap(reinterpret_cast<void*>(peer.memory), peer.memory_size,
                        PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        ASSERT_NE(at, MAP_FAILED);
        std::memset(at, 0x11, peer.memory_size);
        channel.meet();
        channel.meet();
        for (std::size_t i = 0; i < peer.memory_size; ++i)
            ASSERT_EQ(static_cast<std::uint8_t*>(at)[i], 0x11) << "byte " << i;
    });
    Child child([](Channel& channel) {
        Endpoint e;
        std::memset(e.memory->data(), 0x22, e.memory->size());
        connect_over(channel, e);
        channel.meet();
        EXPECT_TRUE(e.memory->untouched(0, e.memory->size(), 0x22));
    });
    Endpoint e(impatient());
    connect_over(child.channel(), e);
    bystander.channel().send(e.peer);
    bystander.channel().meet();
    if (copied_before) {
        Work read = write_of(e, 3000);
        read.opcode = IBV_WR_RDMA_READ;
        ASSERT_TRUE(e.run(read));
    }
    const SegmentFile segment;
    renumber(*segment, child.pid(), bystander.pid());
    testing::internal::CaptureStderr();
    const int posted = e.post(write_of(e, 3000));
    const ibv_wc wc = e.wait_send();
    const std::string said = testing::internal::GetCapturedStderr();
    renumber(*segment, bystander.pid(), child.pid());
    EXPECT_EQ(posted, 0);
    EXPECT_TRUE(has_status(wc, IBV_WC_RETRY_EXC_ERR, kVendorTransportRetry));
    EXPECT_NE(said.find("is not the process that joined the fabric"), std::string::npos) << said;
    bystander.channel().meet();
    child.channel().meet();
    bystander.expect_success();
    child.expect_success();
}

bool copies_by_number() {
    const char* memory = std::getenv("SOFTHCA_MEMORY");
    return memory != nullptr && std::strcmp(memory, "cma") == 0;
}

TEST(Processes, NothingIsCopiedToAnotherOfTheSameNumber) {
    if (!copies_by_number()) GTEST_SKIP() << "memory is shared: no copies by number";
    copy_to_another_of_the_same_number(false);
}

TEST(Processes, NothingIsCopiedToAnotherOnceTheNumberChanges) {
    if (!copies_by_number()) GTEST_SKIP() << "memory is shared: no copies by number";
    copy_to_another_of_the_same_number(true);
}

double processor_seconds() {
    rusage use = {};
    getrusage(RUSAGE_SELF, &use);
    return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

// An open device with hundreds of QPs, one of which waits for a receive of its peer.
TEST(Processes, IdleOnesUseNoProcessor) {
    Child child([](Channel& channel) {
        Endpoint::Options options;
        options.events = true;
        Endpoint e(options);
        std::vector<std::unique_ptr<Endpoint>> idle;
        for (int i = 0; i < 200; ++i) {
            Endpoint::Options small;
            small.memory = 4096;
            idle.push_back(std::make_unique<Endpoint>(small, &e));
            idle.back()->connect(idle.back()->address());
        }
        connect_over(channel, e);
        ASSERT_EQ(ibv_req_notify_cq(e.receive_cq.get(), 0), 0);
        channel.meet();
        // Time for whoever polls to notice that there is nothing to do.
        std::this_thread::sleep_for(milliseconds(300));
        const double before = processor_seconds();
        std::this_thread::sleep_for(std::chrono::seconds(2));
        const double used = processor_seconds() - before;
        EXPECT_LT(used, 0.1) << "of two seconds: more than 5 % of a processor";
        channel.meet();
    });
    Endpoint e;
    connect_over(child.channel(), e);
    child.channel().meet();
    child.channel().meet();
    child.expect_success();
}

// One side's send waits for ever in RNR: that, too, may not take a processor.
TEST(Processes, WaitingForAReceiveUsesLittleProcessor) {
    Endpoint::Options slow;
    slow.min_rnr_timer = 20;  // 10 ms
    Pair pair(slow);
    ASSERT_EQ(pair.a.post(send_of(pair.a, 64)), 0);
    std::this_thread::sleep_for(milliseconds(300));
    const double before = processor_seconds();
    std::this_thread::sleep_for(std::chrono::seconds(2));
    EXPECT_LT(processor_seconds() - before, 0.2);
    ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 64)}), 0);
    EXPECT_TRUE(succeeded(pair.a.wait_send()));
}

// A large write goes on while its poster computes and does not poll: the peer sees the last byte.
TEST(Processes, LargeWriteProgressesWhileThePosterComputes) {
    constexpr std::size_t kSize = 16u << 20;
    Endpoint::Options large;
    large.memory = kSize;
    run_sides(
        Placement::kProcesses,
        [&](Channel& channel) {
            Endpoint e(large);
            std::memset(e.memory->data(), 0x5a, kSize);
            connect_over(channel, e);
            const auto start = Clock::now();
            ASSERT_EQ(e.post(write_of(e, kSize)), 0);
            const auto posted = Clock::now() - start;
            // Computes, without a call of verbs, until the peer says that all of it is there.
            volatile double x = 1;
            const auto end = Clock::now() + kDeadline;
            bool arrived = false;
            while (!arrived && Clock::now() < end) {
                for (int i = 0; i < 10000; ++i)
                    x = x * 1.0000001;
                arrived = channel.readable();
            }
            EXPECT_TRUE(arrived) << "the write waits for its poster to poll";
            EXPECT_EQ(channel.receive<char>(), 'a');
            EXPECT_TRUE(succeeded(e.wait_send()));
            RecordProperty(
                "post_us",
                static_cast<int>(
                    std::chrono::duration_cast<std::chrono::microseconds>(posted).count()));
        },
        [&](Channel& channel) {
            Endpoint e(large);
            e.memory->data()[kSize - 1] = 0;
            connect_over(channel, e);
            auto* last = reinterpret_cast<volatile std::uint8_t*>(e.memory->data() + kSize - 1);
            const auto end = Clock::now() + kDeadline;
            while (*last != 0x5a && Clock::now() < end)
                std::this_thread::yield();
            EXPECT_EQ(*last, 0x5a);
            EXPECT_TRUE(e.memory->untouched(0, kSize, 0x5a)) << "the last byte came before others";
            channel.send('a');
        });
}

// Writes random bytes over everything that its driver shares with the device.
[[noreturn]] void go_mad(Endpoint& e, unsigned seed, bool polite) {
    struct Range {
        std::uint8_t* at;
        std::size_t size;
    };
    mlx5dv_qp qp = {};
    mlx5dv_cq cq = {};
    mlx5dv_obj object = {};
    object.qp.in = e.qp.get();
    object.qp.out = &qp;
    object.cq.in = e.send_cq.get();
    object.cq.out = &cq;
    if (mlx5dv_init_obj(&object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) != 0) _exit(3);
    const Range ranges[] = {
        {static_cast<std::uint8_t*>(qp.sq.buf), std::size_t{qp.sq.wqe_cnt} * qp.sq.stride},
        {static_cast<std::uint8_t*>(qp.rq.buf), std::size_t{qp.rq.wqe_cnt} * qp.rq.stride},
        {reinterpret_cast<std::uint8_t*>(qp.dbrec), 8},
        {static_cast<std::uint8_t*>(cq.buf), std::size_t{cq.cqe_cnt} * cq.cqe_size},
        {reinterpret_cast<std::uint8_t*>(cq.dbrec), 8},
        {static_cast<std::uint8_t*>(qp.bf.reg), 512}};
    std::mt19937 random(seed);
    const auto end = Clock::now() + milliseconds(150);
    while (Clock::now() < end) {
        const Range& range = ranges[random() % std::size(ranges)];
        if (range.size == 0) continue;
        for (unsigned i = 0; i < 1 + random() % 8; ++i) {
            const std::size_t at = random() % range.size;
            const std::size_t length = std::min<std::size_t>(1 + random() % 64, range.size - at);
            for (std::size_t k = 0; k < length; ++k)
                range.at[at + k] = static_cast<std::uint8_t>(random());
        }
        // Something for the engine to chew on.
        if (polite) e.post(random() % 2 != 0 ? send_of(e, 100) : write_of(e, 3000));
        if (polite && random() % 4 == 0) e.post_receive(1, {e.memory->sge(0, 4096)});
        if (random() % 16 == 0) std::this_thread::yield();
    }
    _exit(0);
}

// The mad process may crash in its own libmlx5; its peer, and a pair that has nothing to do with
// it, must go on, and memory that was not offered must not change.
TEST(Processes, MadPeerHarmsOnlyItself) {
    Pair survivor;
    for (unsigned round = 0; round < 12; ++round) {
        SCOPED_TRACE(testing::Message() << "seed " << round);
        Child child([&](Channel& channel) {
            // Its own crash is nobody's concern.
            for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE})
                ::signal(signal, SIG_DFL);
            rlimit none = {};
            setrlimit(RLIMIT_CORE, &none);
            Endpoint e;
            connect_over(channel, e);
            go_mad(e, round, round % 2 == 0);
        });
        Endpoint e(impatient());
        Memory fence(e.pd.get(), 65536);  // registered, but no other process has its key
        std::memset(fence.data(), 0x3c, fence.size());
        connect_over(child.channel(), e);
        std::uint32_t turn = 0;
        const auto end = Clock::now() + kDeadline;
        while (!child.ended(Clock::duration{0})) {
            e.post_receive(1, {e.memory->sge(0, 4096)});
            poll_for(e.receive_cq.get(), Clock::duration{0});
            e.post(turn % 2 != 0 ? send_of(e, 50) : write_of(e, 3000));
            poll_for(e.send_cq.get(), Clock::duration{0});
            survivor.a.memory->fill(0, 2000, ++turn);
            ASSERT_TRUE(survivor.a.run(write_of(survivor.a, 2000)));
            ASSERT_TRUE(survivor.b.memory->holds(0, 2000, turn));
            if (Clock::now() > end) {
                child.kill(SIGKILL);
                ADD_FAILURE() << "the mad process hangs inside the device";
            }
        }
        EXPECT_TRUE(fence.untouched(0, fence.size(), 0x3c));
    }
}

}  // namespace
}  // namespace softhca::test
