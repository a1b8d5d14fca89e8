// SPDX-License-Identifier: BSD-2-Clause
// fork and exec around a device in use. The child of a process with registered memory gets private
// copies, as after any fork: what it stores must not reach the parent, and the parent's traffic
// goes on with the right bytes, whether the child exits, execs, or opens the device for itself.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

// Traffic in both directions with checked contents.
void exchange(Pair& pair, std::uint32_t seed) {
    for (std::uint32_t i = 0; i < 50; ++i) {
        for (auto* side : {&pair.a, &pair.b}) {
            Endpoint& other = side == &pair.a ? pair.b : pair.a;
            side->memory->fill(0, 3000, seed + i);
            ASSERT_TRUE(side->run(write_of(*side, 3000)));
            ASSERT_TRUE(other.memory->holds(0, 3000, seed + i));
            Work send;
            send.sges = {side->memory->sge(0, 700)};
            ASSERT_EQ(other.post_receive(i, {other.memory->sge(8192, 1024)}), 0);
            ASSERT_TRUE(side->run(send));
            ASSERT_TRUE(succeeded(other.wait_receive()));
            ASSERT_TRUE(other.memory->holds(8192, 700, seed + i));
        }
    }
}

int finish(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
}

TEST(Fork, ChildThatExitsAtOnce) {
    Pair pair;
    for (std::uint32_t round = 0; round < 20; ++round) {
        const pid_t child = fork();
        if (child == 0) _exit(7);
        exchange(pair, round * 100);
        const int status = finish(child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
}

// exit, not _exit: destructors and exit handlers of the libraries run in the child.
TEST(Fork, ChildThatExitsByTheBook) {
    Pair pair;
    for (std::uint32_t round = 0; round < 10; ++round) {
        std::fflush(nullptr);
        const pid_t child = fork();
        if (child == 0) exit(0);
        const int status = finish(child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        exchange(pair, round * 100);
    }
}

TEST(Fork, ChildThatExecs) {
    Pair pair;
    for (std::uint32_t round = 0; round < 20; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            execlp("true", "true", nullptr);
            _exit(1);
        }
        exchange(pair, round * 100);
        EXPECT_EQ(finish(child), 0);
    }
    EXPECT_EQ(std::system("exit 3"), 3 << 8);
    exchange(pair, 5000);
}

// Memory as after any fork: the child sees what was there, and neither sees the other's stores.
TEST(Fork, MemoryIsCopied) {
    Pair pair;
    auto heap = std::make_unique<std::uint8_t[]>(100000);
    fill_pattern(heap.get(), 100000, 5);
    const Owned<ibv_mr> mr(ibv_reg_mr(pair.a.pd.get(), heap.get(), 100000, kAllAccess));
    ASSERT_TRUE(mr);
    pair.a.memory->fill(0, 65536, 6);
    auto [mine, its] = Channel::make();
    const pid_t child = fork();
    if (child == 0) {
        bool good = static_cast<bool>(has_pattern(heap.get(), 100000, 5)) &&
                    static_cast<bool>(pair.a.memory->holds(0, 65536, 6));
        its.meet();  // the parent stores
        its.meet();
        good = good && static_cast<bool>(has_pattern(heap.get(), 100000, 5)) &&
               static_cast<bool>(pair.a.memory->holds(0, 65536, 6));
        std::memset(heap.get(), 0x11, 100000);
        std::memset(pair.a.memory->data(), 0x22, 65536);
        // The allocator works, with the pages that hold queue buffers and doorbell records.
        for (int i = 0; i < 1000; ++i)
            free(malloc(static_cast<std::size_t>(i) * 37));
        its.meet();
        _exit(good ? 0 : 1);
    }
    mine.meet();
    fill_pattern(heap.get(), 100000, 7);
    pair.a.memory->fill(0, 65536, 8);
    Work work = write_of(pair.b, 3000);
    pair.b.memory->fill(0, 3000, 9);
    work.remote = reinterpret_cast<std::uint64_t>(heap.get());
    work.rkey = mr->rkey;
    EXPECT_TRUE(pair.b.run(work)) << "a peer writes to the parent while the child is there";
    mine.meet();
    mine.meet();
    EXPECT_EQ(finish(child), 0) << "the child saw stores of the parent or of the peer";
    EXPECT_TRUE(has_pattern(heap.get(), 3000, 9));
    std::vector<std::uint8_t> expected(100000);
    fill_pattern(expected.data(), 100000, 7);
    EXPECT_EQ(std::memcmp(heap.get() + 3000, expected.data() + 3000, 97000), 0);
    EXPECT_TRUE(pair.a.memory->holds(0, 65536, 8)) << "the child's stores came through";
    exchange(pair, 1);
}

// The child opens the device for itself, while its parent's objects are still in its memory.
TEST(Fork, ChildThatOpensTheDeviceAnew) {
    Pair pair;
    for (std::uint32_t round = 0; round < 5; ++round) {
        Child child([&](Channel& channel) {
            Pair own;
            channel.meet();
            exchange(own, 1000 + round);
            channel.meet();
        });
        child.channel().meet();
        exchange(pair, round * 100);
        child.channel().meet();
        child.expect_success();
        exchange(pair, round * 100 + 50);
    }
}

// Parent and child talk to each other through the device, after a fork with the device open.
TEST(Fork, ParentAndChildTalk) {
    Pair before;
    exchange(before, 1);
    Child child([&](Channel& channel) {
        Endpoint e;
        connect_over(channel, e);
        e.memory->fill(0, 1000, 77);
        EXPECT_TRUE(e.run(write_of(e, 1000)));
        channel.meet();
        channel.meet();
        EXPECT_TRUE(e.memory->holds(4096, 1000, 78));
    });
    Endpoint e;
    connect_over(child.channel(), e);
    child.channel().meet();
    EXPECT_TRUE(e.memory->holds(0, 1000, 77));
    e.memory->fill(0, 1000, 78);
    Work work = write_of(e, 1000);
    work.remote = e.peer.memory + 4096;
    EXPECT_TRUE(e.run(work));
    child.channel().meet();
    child.expect_success();
    exchange(before, 2);
}

// A child's child; and a parent that dies before its child.
TEST(Fork, GrandchildOutlivesTheParent) {
    auto [mine, its] = Channel::make();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        {
            const Channel closed = std::move(mine);
        }
        Pair own;
        if (fork() != 0) _exit(0);
        int bad = 0;
        try {
            Pair pair;
            exchange(pair, 3);
            bad = testing::Test::HasFailure() ? 1 : 0;
        } catch (const std::exception&) {
            bad = 2;
        }
        its.send(bad);
        _exit(0);
    }
    EXPECT_EQ(finish(child), 0);
    EXPECT_EQ(mine.receive<int>(), 0);
}

// Threads fork while another thread has traffic: no lock may be left held in the child.
TEST(Fork, WhileAnotherThreadIsAtWork) {
    Pair pair;
    std::atomic<bool> stop{false};
    std::thread worker([&] {
        for (std::uint32_t i = 0; !stop; ++i) {
            pair.a.memory->fill(0, 500, i);
            if (!pair.a.run(write_of(pair.a, 500))) break;
            EXPECT_TRUE(pair.b.memory->holds(0, 500, i));
        }
    });
    for (int round = 0; round < 30; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            // Opens and closes the device: takes every lock of it.
            ibv_device** list = ibv_get_device_list(nullptr);
            ibv_context* context =
                list != nullptr && list[0] != nullptr ? ibv_open_device(list[0]) : nullptr;
            _exit(context != nullptr && ibv_close_device(context) == 0 ? 0 : 1);
        }
        int status = -1;
        const auto end = Clock::now() + kDeadline;
        while (waitpid(child, &status, WNOHANG) == 0) {
            if (Clock::now() > end) {
                kill(child, SIGKILL);
                ADD_FAILURE() << "the child hangs, in round " << round;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_EQ(status, 0) << "in round " << round;
    }
    stop = true;
    worker.join();
}

// vfork and posix_spawn, by way of popen.
TEST(Fork, Popen) {
    Pair pair;
    for (std::uint32_t i = 0; i < 10; ++i) {
        FILE* pipe = popen("echo loom", "r");
        ASSERT_NE(pipe, nullptr);
        char text[16] = {};
        EXPECT_NE(fgets(text, sizeof text, pipe), nullptr);
        EXPECT_STREQ(text, "loom\n");
        EXPECT_EQ(pclose(pipe), 0);
        exchange(pair, i * 100);
    }
}

}  // namespace
}  // namespace softhca::test
