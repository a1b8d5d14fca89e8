// SPDX-License-Identifier: BSD-2-Clause
// Objects that go away while others use them: QPs, CQs, regions and contexts destroyed under
// traffic and in any order, memory unmapped beneath a registration, a library loaded late. Each has
// a defined result: success, or an error completion at the peer; never a crash, a hang or a wrong
// byte.

#include <sys/mman.h>
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
    options.timeout = 10;  // 4 ms
    options.retry_count = 1;
    options.rnr_retry = 1;
    return options;
}

// A sender that writes and sends as fast as it can until something fails; what it got in the end.
ibv_wc_status hammer(Endpoint& e, std::size_t length) {
    const auto end = Clock::now() + kDeadline;
    for (std::uint32_t i = 0; Clock::now() < end; ++i) {
        if (e.post(i % 4 == 0 ? send_of(e, length) : write_of(e, length)) != 0) continue;
        const ibv_wc wc = e.wait_send();
        if (wc.status != IBV_WC_SUCCESS) return wc.status;
    }
    return IBV_WC_SUCCESS;
}

bool defined(ibv_wc_status status) {
    return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR ||
           status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR ||
           status == IBV_WC_REM_INV_REQ_ERR;
}

enum class Victim { kQueuePair, kEndpoint, kMemory };

std::string victim_name(Victim victim) {
    return victim == Victim::kQueuePair  ? "QueuePair"
           : victim == Victim::kEndpoint ? "Everything"
                                         : "Region";
}

// Two processes: one hammers, the other destroys what is hammered on at a random moment.
class Destroyed : public testing::TestWithParam<Victim> {};

TEST_P(Destroyed, WhilePeersSend) {
    for (int round = 0; round < 8; ++round) {
        run_sides(
            round % 2 != 0 ? Placement::kThreads : Placement::kProcesses,
            [&](Channel& channel) {
                Endpoint e(impatient());
                connect_over(channel, e);
                const ibv_wc_status status = hammer(e, round % 3 == 0 ? 30000 : 64);
                EXPECT_TRUE(defined(status)) << ibv_wc_status_str(status);
            },
            [&](Channel& channel) {
                auto e = std::make_unique<Endpoint>(impatient());
                connect_over(channel, *e);
                std::mt19937 random(static_cast<unsigned>(round));
                const auto stop = Clock::now() + milliseconds(20 + random() % 30);
                while (Clock::now() < stop) {
                    e->post_receive(1, {e->memory->sge(32768, 32768)});
                    poll_for(e->receive_cq.get(), std::chrono::microseconds(50));
                }
                switch (GetParam()) {
                    case Victim::kQueuePair:
                        e->qp.reset();
                        break;
                    case Victim::kEndpoint:
                        e.reset();
                        break;
                    case Victim::kMemory:
                        e->memory->deregister();
                        break;
                }
                std::this_thread::sleep_for(milliseconds(100));
            });
        if (HasFailure()) break;
    }
}
INSTANTIATE_TEST_SUITE_P(Each, Destroyed,
                         testing::Values(Victim::kQueuePair, Victim::kEndpoint, Victim::kMemory),
                         [](const auto& info) { return victim_name(info.param); });

// After a region is deregistered its memory may be freed at once: nobody writes there any more.
TEST(Lifetime, NoWriteAfterDeregistration) {
    for (int round = 0; round < 10; ++round) {
        Endpoint a(impatient());
        Endpoint b(impatient(), &a);
        a.connect(b.address());
        b.connect(a.address());
        std::memset(a.memory->data(), 0x77, 32768);
        std::thread writer([&] { hammer(a, 30000); });
        ASSERT_EQ(b.post_receive(1, {b.memory->sge(32768, 32768)}), 0);
        std::this_thread::sleep_for(milliseconds(5));
        b.memory->deregister();
        std::memset(b.memory->data(), 0x11, b.memory->size());
        std::this_thread::sleep_for(milliseconds(10));
        EXPECT_TRUE(b.memory->untouched(0, b.memory->size(), 0x11));
        writer.join();
    }
}

// Contexts closed while they still have objects: libibverbs allows it; the device reclaims.
TEST(Lifetime, ContextClosedWithObjectsInside) {
    Pair survivor;
    for (int round = 0; round < 10; ++round) {
        Child child([&](Channel& channel) {
            Endpoint::Options options;
            options.srq = true;
            options.events = true;
            auto* e = new Endpoint(options);
            connect_over(channel, *e);
            for (int i = 0; i < 10; ++i)
                e->post_receive(1, {e->memory->sge(0, 64)});
            // The objects are left where they are.
            ibv_context* context = e->context.get();
            EXPECT_EQ(ibv_close_device(context), 0);
            channel.send('c');
            channel.closed_by_peer(milliseconds(200));
            _exit(0);
        });
        Endpoint e(impatient());
        connect_over(child.channel(), e);
        EXPECT_EQ(child.channel().receive<char>(), 'c');
        ASSERT_EQ(e.post(write_of(e)), 0);
        EXPECT_NE(e.wait_send().status, IBV_WC_SUCCESS) << "its region is gone";
        survivor.a.memory->fill(0, 100, 5);
        ASSERT_TRUE(survivor.a.run(write_of(survivor.a, 100)));
        EXPECT_TRUE(survivor.b.memory->holds(0, 100, 5));
    }
}

TEST(Lifetime, ContextsCloseInAnyOrder) {
    std::mt19937 random(3);
    for (int round = 0; round < 10; ++round) {
        std::vector<std::unique_ptr<Endpoint>> list;
        for (int i = 0; i < 6; ++i)
            list.push_back(std::make_unique<Endpoint>(impatient()));
        for (std::size_t i = 0; i < 6; i += 2) {
            list[i]->connect(list[i + 1]->address());
            list[i + 1]->connect(list[i]->address());
            ASSERT_TRUE(list[i]->run(write_of(*list[i])));
        }
        std::shuffle(list.begin(), list.end(), random);
        while (list.size() > 1) {
            list.pop_back();
            Pair other;
            ASSERT_TRUE(other.a.run(write_of(other.a)));
        }
    }
}

// munmap beneath a region: what the peer writes goes nowhere or fails, and new memory at the same
// place is not touched.
TEST(Lifetime, MemoryUnmappedBeneathARegion) {
    for (const bool remap : {false, true}) {
        SCOPED_TRACE(remap ? "and mapped anew" : "and left unmapped");
        run_sides(
            Placement::kProcesses,
            [&](Channel& channel) {
                Endpoint e(impatient());
                connect_over(channel, e);
                std::memset(e.memory->data(), 0x55, 65536);
                const auto remote = channel.receive<std::uint64_t>();
                const auto rkey = channel.receive<std::uint32_t>();
                Work work = write_of(e, 65536);
                work.remote = remote;
                work.rkey = rkey;
                ASSERT_TRUE(e.run(work));
                channel.meet();
                channel.meet();
                ASSERT_EQ(e.post(work), 0);
                const ibv_wc wc = e.wait_send();  // either is defined
                EXPECT_TRUE(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_REM_OP_ERR ||
                            wc.status == IBV_WC_REM_ACCESS_ERR)
                    << describe(wc);
                channel.meet();
            },
            [&](Channel& channel) {
                Endpoint e(impatient());
                connect_over(channel, e);
                const std::size_t size = 1 << 20;
                void* memory =
                    mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                ASSERT_NE(memory, MAP_FAILED);
                ibv_mr* mr = ibv_reg_mr(e.pd.get(), memory, size, kAllAccess);
                ASSERT_NE(mr, nullptr);
                channel.send(reinterpret_cast<std::uint64_t>(memory));
                channel.send(mr->rkey);
                channel.meet();
                ASSERT_EQ(munmap(memory, size), 0);
                if (remap) {
                    ASSERT_EQ(mmap(memory, size, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                              memory);
                    std::memset(memory, 0x22, size);
                }
                channel.meet();
                channel.meet();
                if (remap) {
                    // A real HCA holds the old pages: memory that was never registered stays clean.
                    const auto* bytes = static_cast<std::uint8_t*>(memory);
                    std::size_t changed = 0;
                    for (std::size_t i = 0; i < 65536; ++i)
                        changed += bytes[i] != 0x22;
                    // Copies by process_vm_writev go by address, and cannot tell.
                    const char* memory_mode = std::getenv("SOFTHCA_MEMORY");
                    if (memory_mode == nullptr || std::strcmp(memory_mode, "cma") != 0) {
                        EXPECT_EQ(changed, 0u) << "unregistered memory was written to";
                    }
                    munmap(memory, size);
                }
                EXPECT_EQ(ibv_dereg_mr(mr), 0);
                // The process works on.
                Pair pair;
                EXPECT_TRUE(pair.a.run(write_of(pair.a)));
            });
    }
}

// The sender's own memory goes away beneath a region.
TEST(Lifetime, SourceUnmappedBeneathARegion) {
    Pair pair;
    void* memory =
        mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ibv_mr* mr = ibv_reg_mr(pair.a.pd.get(), memory, 1 << 20, kAllAccess);
    ASSERT_NE(mr, nullptr);
    munmap(memory, 1 << 20);
    Work work;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.sges = {{reinterpret_cast<std::uint64_t>(memory), 4096, mr->lkey}};
    ASSERT_EQ(pair.a.post(work), 0);
    const ibv_wc wc = pair.a.wait_send();
    EXPECT_TRUE(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_LOC_PROT_ERR) << describe(wc);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// A program that is not linked with libibverbs and loads it when it runs.
TEST(Lifetime, LibraryLoadedLate) {
    const char* directory = std::getenv("HEDDLE_TEST_DIR");
    if (directory == nullptr) GTEST_SKIP() << "HEDDLE_TEST_DIR does not say where the programs are";
    const std::string program = std::string(directory) + "/dlopen_late";
    const int status = std::system(program.c_str());
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Making and destroying everything leaves nothing behind: many times what a table could hold.
TEST(Lifetime, NothingLeaks) {
    Endpoint base;
    for (int i = 0; i < 3000; ++i) {
        const auto cq = create_cq(base.context.get(), 10);
        const auto srq = create_srq(base.pd.get(), 10);
        const Memory memory(base.pd.get(), 8192);
        Endpoint::Options options;
        options.memory = 4096;
        options.transport = i % 2 != 0 ? Transport::kRc : Transport::kXrc;
        const Endpoint e(options, &base);
    }
    for (int i = 0; i < 300; ++i)
        const Endpoint e;
}

// The same with a message. The receive was taken when the device finds nothing to send, and only
// the sender learns why. The memory is not of the kind that processes share, so the kernel copies.
class UnmappedMessage : public testing::TestWithParam<Transport> {};

TEST_P(UnmappedMessage, EndsInALocalError) {
    EndpointOptions options = impatient();
    options.transport = GetParam();
    Pair pair(options);
    constexpr std::size_t kBytes = 1024;
    void* memory =
        mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    ibv_mr* mr = ibv_reg_mr(pair.a.pd.get(), memory, 1 << 16, kAllAccess);
    ASSERT_NE(mr, nullptr);
    munmap(memory, 1 << 16);
    ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, kBytes + pair.b.grh())}), 0);
    Work work = send_of(pair.a);
    work.sges = {{reinterpret_cast<std::uint64_t>(memory), kBytes, mr->lkey}};
    ASSERT_EQ(pair.a.post(work), 0);
    EXPECT_TRUE(has_status(pair.a.wait_send(), IBV_WC_LOC_PROT_ERR, kVendorLocalProtection));
    if (GetParam() == Transport::kUd) {
        EXPECT_FALSE(poll_for(pair.b.receive_cq.get(), milliseconds(20))) << "nothing was sent";
    }
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}
INSTANTIATE_TEST_SUITE_P(Of, UnmappedMessage,
                         testing::Values(Transport::kRc, Transport::kUc, Transport::kUd,
                                         Transport::kXrc),
                         [](const auto& info) { return name(info.param); });

// `softhca stat` shows how many bytes processes share.
TEST(Lifetime, SharedBytesAreCountedUntilTheyAreNot) {
    const auto context = open_device();
    const Owned<ibv_pd> pd(check(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
    const SegmentFile segment;
    const auto shared = [&] {
        for (const device::Process& process : segment->processes)
            if (process.state.load() == device::kLive && process.pid == getpid())
                return process.shared_bytes.load();
        return std::uint64_t{0};
    };
    constexpr std::size_t kBytes = 1 << 20;
    const char* memory_mode = std::getenv("SOFTHCA_MEMORY");
    const bool copies = memory_mode != nullptr && std::strcmp(memory_mode, "cma") == 0;
    const std::uint64_t before = shared();
    {
        const Memory first(pd.get(), kBytes);
        EXPECT_EQ(shared() - before, copies ? 0 : kBytes);
        const Memory second(pd.get(), 2 * kBytes);
        EXPECT_EQ(shared() - before, copies ? 0 : 3 * kBytes);
    }
    EXPECT_EQ(shared(), before);
}

}  // namespace
}  // namespace softhca::test
