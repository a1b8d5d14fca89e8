// SPDX-License-Identifier: BSD-2-Clause
// Memory that the program discards, moves or replaces while it is registered, and what the device
// makes of it. Blocks of the heap keep their content, whatever glibc does with their pages.
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

#include "chosen_trait.h"
#include "plot.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

// Memory of a process, and what the device makes of it: the endpoint `b` of the pair writes to it
// and reads it.
class Through {
public:
    explicit Through(std::uint8_t* at, std::size_t bytes = kBytes)
        : at_(at), region_(ibv_reg_mr(pair_.a.pd.get(), at, bytes, kAllAccess)) {
        EXPECT_TRUE(region_);
    }
    int read(std::size_t offset) {
        pair_.b.memory->data()[0] = 250;
        return run(IBV_WR_RDMA_READ, offset) ? pair_.b.memory->data()[0] : -1;
    }
    bool write(std::size_t offset, std::uint8_t value) {
        pair_.b.memory->data()[0] = value;
        return run(IBV_WR_RDMA_WRITE, offset);
    }
    // What the device sends of it by its own key.
    int send(std::size_t offset) {
        Work work = write_of(pair_.a, 1);
        work.sges = {{reinterpret_cast<std::uint64_t>(at_) + offset, 1, region_->lkey}};
        return pair_.a.run(work) ? pair_.b.memory->data()[0] : -1;
    }
    void end() { region_.reset(); }
    ibv_pd* pd() { return pair_.a.pd.get(); }

private:
    bool run(ibv_wr_opcode opcode, std::size_t offset) {
        Work work;
        work.opcode = opcode;
        work.sges = {pair_.b.memory->sge(0, 1)};
        work.remote = reinterpret_cast<std::uint64_t>(at_) + offset;
        work.rkey = region_->rkey;
        return pair_.b.run(work);
    }
    static Endpoint::Options options() {
        Endpoint::Options options;
        options.inline_size = 0;
        return options;
    }

    Pair pair_{options()};
    std::uint8_t* const at_;
    Owned<ibv_mr> region_;
};

// The lock of an allocator that was there before the device's fork handlers, so that its own ones
// run after these.
struct EarlyLock {
    std::mutex mutex;
    std::atomic<bool> used{false}, wanted{false};
};
constinit EarlyLock early_lock;

void register_early_lock() {
    pthread_atfork(
        [] {
            if (!early_lock.used) return;
            early_lock.wanted = true;
            early_lock.mutex.lock();
        },
        [] {
            if (early_lock.used) early_lock.mutex.unlock();
        },
        [] {
            if (early_lock.used) early_lock.mutex.unlock();
        });
}
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const before_constructors)() = register_early_lock;

// The device sees what the program sees. A strict one keeps the pages that it was given.
TEST(ChangedMemory, DiscardedPages) {
    const bool pinned = chosen(DeviceTrait::kPinned) && !memory_stays_private();
    for (const int advice : {MADV_DONTNEED, MADV_FREE}) {
        const Plot memory;
        Through device(memory.data());
        memset(memory.data(), 7, kBytes);
        EXPECT_EQ(device.read(kPage), 7);
        ASSERT_EQ(madvise(memory.page(1), 3 * kPage, advice), 0);
        if (!memory_stays_private()) {  // else the kernel may free them later
            EXPECT_EQ(memory.page(1)[0], 0);
            EXPECT_EQ(device.read(kPage), pinned ? 7 : 0);
        }
        EXPECT_EQ(device.read(0), 7) << "beside the discarded pages";
        EXPECT_EQ(device.read(4 * kPage), 7) << "beside the discarded pages";
        memory.page(1)[0] = 8;
        EXPECT_EQ(device.read(kPage), pinned ? 7 : 8);
        EXPECT_EQ(device.send(kPage), pinned ? 7 : 8);
        ASSERT_TRUE(device.write(2 * kPage, 9));
        memory.page(3)[0] = 10;
        EXPECT_EQ(memory.page(2)[0], pinned ? 0 : 9);
        EXPECT_EQ(device.read(2 * kPage), 9);
        device.end();
        EXPECT_EQ(memory.page(1)[0], 8);
        EXPECT_EQ(memory.page(2)[0], pinned ? 0 : 9);
        EXPECT_EQ(memory.page(3)[0], 10);
        // A registration made afterwards.
        Through again(memory.data());
        EXPECT_EQ(again.read(kPage), 8);
        ASSERT_TRUE(again.write(2 * kPage, 11));
        EXPECT_EQ(memory.page(2)[0], 11);
    }
}

// Pages that move stay the registration's, as if they were pinned.
TEST(ChangedMemory, MovedPages) {
    if (memory_stays_private()) GTEST_SKIP() << "memory that is not shared is found by its address";
    const Plot memory;
    Through device(memory.data());
    memset(memory.data(), 7, kBytes);
    auto* const there =
        static_cast<std::uint8_t*>(mremap(memory.data(), kBytes, 2 * kBytes, MREMAP_MAYMOVE));
    ASSERT_NE(there, MAP_FAILED);
    ASSERT_NE(there, memory.data());
    there[kPage] = 8;
    EXPECT_EQ(device.read(kPage), 8);
    ASSERT_TRUE(device.write(2 * kPage, 9));
    EXPECT_EQ(there[2 * kPage], 9);
    // What is mapped at the old address is not the registration's.
    ASSERT_EQ(mmap(memory.data(), kBytes, kReadWrite, kPrivate | MAP_FIXED, -1, 0), memory.data());
    ASSERT_TRUE(device.write(3 * kPage, 10));
    EXPECT_EQ(memory.page(3)[0], 0);
    EXPECT_EQ(there[3 * kPage], 10);
    {
        Through again(there, 2 * kBytes);
        EXPECT_EQ(again.read(3 * kPage), 10);
        ASSERT_TRUE(again.write(kBytes + kPage, 11));
        EXPECT_EQ(there[kBytes + kPage], 11);
        device.end();
        ASSERT_TRUE(again.write(4 * kPage, 12));
        EXPECT_EQ(there[4 * kPage], 12);
    }
    EXPECT_EQ(there[3 * kPage], 10);
    EXPECT_EQ(there[kBytes + kPage], 11);
    munmap(there, 2 * kBytes);
}

TEST(ChangedMemory, ReplacedPages) {
    const Plot memory;
    Through device(memory.data());
    memset(memory.data(), 7, kBytes);
    ASSERT_EQ(munmap(memory.data(), kBytes), 0);
    ASSERT_EQ(mmap(memory.data(), kBytes, kReadWrite, kPrivate | MAP_FIXED, -1, 0), memory.data());
    memset(memory.data(), 8, kBytes);
    Through again(memory.data());
    EXPECT_EQ(again.read(kPage), 8);
    ASSERT_TRUE(device.write(2 * kPage, 9));
    EXPECT_EQ(memory.page(2)[0], memory_stays_private() ? 9 : 8)
        << "the first one keeps the pages it was given";
    ASSERT_TRUE(again.write(3 * kPage, 10));
    EXPECT_EQ(memory.page(3)[0], 10);
    device.end();
    EXPECT_EQ(memory.page(3)[0], 10);
}

// The peer is a process, which has mapped the memory before it changes.
TEST(ChangedMemory, OfAnotherProcess) {
    const bool pinned = chosen(DeviceTrait::kPinned) && !memory_stays_private();
    Child child([](Channel& channel) {
        Endpoint e;
        connect_over(channel, e);
        const auto rkey = channel.receive<std::uint32_t>();
        const auto at = channel.receive<std::uint64_t>();
        for (std::uint8_t round = 0; round < 100; ++round) {
            const auto write = [&](std::size_t page, std::uint8_t value) {
                e.memory->data()[0] = value;
                Work work = write_of(e, 1);
                work.remote = at + page * kPage;
                work.rkey = rkey;
                return e.run(work);
            };
            EXPECT_TRUE(write(0, round) && write(1, round));
            channel.meet();
            channel.meet();
            EXPECT_TRUE(write(1, static_cast<std::uint8_t>(round + 100)));
            channel.meet();
            channel.meet();
        }
    });
    Endpoint e;
    connect_over(child.channel(), e);
    const Plot memory;
    const Owned<ibv_mr> region(ibv_reg_mr(e.pd.get(), memory.data(), kBytes, kAllAccess));
    ASSERT_TRUE(region);
    child.channel().send(region->rkey);
    child.channel().send(reinterpret_cast<std::uint64_t>(memory.data()));
    for (std::uint8_t round = 0; round < 100; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << unsigned{round});
        child.channel().meet();
        const bool discarded_before = pinned && round > 0;
        EXPECT_EQ(memory.page(0)[0], round);
        EXPECT_EQ(memory.page(1)[0], discarded_before ? 0 : round);
        ASSERT_EQ(madvise(memory.page(1), kPage, MADV_DONTNEED), 0);
        EXPECT_EQ(memory.page(1)[0], 0);
        child.channel().meet();
        child.channel().meet();
        EXPECT_EQ(memory.page(1)[0], pinned ? 0 : round + 100);
        child.channel().meet();
    }
    child.expect_success();
}

// Blocks of the heap: glibc unmaps, grows and trims it without any call that a preloaded library
// sees.
TEST(ChangedMemory, TheHeap) {
    const auto context = open_device();
    const std::unique_ptr<ibv_pd, Destroy> pd(check(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
    struct Block {
        std::uint8_t* at;
        std::size_t bytes;
        std::uint32_t seed;
        Owned<ibv_mr> region;
    };
    std::mt19937 random(5);
    std::vector<Block> blocks;
    std::uint32_t seeds = 0;
    const auto size = [&random] {
        return random() % 4 == 0 ? 100000 + random() % 900000 : 10 + random() % 20000;
    };
    for (int step = 0; step < 1000; ++step) {
        const std::size_t i = blocks.empty() ? 0 : random() % blocks.size();
        switch (random() % 6) {
            case 0:
            case 1: {
                const std::size_t bytes = size();
                auto* const at = static_cast<std::uint8_t*>(calloc(1, bytes));
                EXPECT_TRUE(std::all_of(at, at + bytes, [](int c) { return c == 0; }));
                fill_pattern(at, bytes, ++seeds);
                blocks.push_back({at, bytes, seeds, nullptr});
                if (random() % 2)
                    blocks.back().region.reset(ibv_reg_mr(pd.get(), at, bytes, kAllAccess));
                break;
            }
            case 2:
                if (blocks.empty()) break;
                blocks[i].region.reset();
                break;
            case 3: {
                if (blocks.empty()) break;
                Block& block = blocks[i];
                const std::size_t bytes = size();
                block.at = static_cast<std::uint8_t*>(realloc(block.at, bytes));
                block.bytes = std::min(block.bytes, bytes);
                break;
            }
            case 4:
                if (blocks.empty()) break;
                ASSERT_TRUE(has_pattern(blocks[i].at, blocks[i].bytes, blocks[i].seed));
                free(blocks[i].at);
                std::swap(blocks[i], blocks.back());
                blocks.pop_back();
                break;
            default:
                if (step % 20 == 0) malloc_trim(0);
        }
        if (step % 50 != 0) continue;
        for (const Block& block : blocks)
            ASSERT_TRUE(has_pattern(block.at, block.bytes, block.seed)) << "step " << step;
    }
    for (Block& block : blocks)
        free(block.at);
}

// What is discarded while another thread registers the memory, or ends its registration, is zero.
TEST(ChangedMemory, DiscardedWhileRegistering) {
    const auto context = open_device();
    const std::unique_ptr<ibv_pd, Destroy> pd(check(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
    const Plot memory;
    std::atomic<unsigned> registrations{0};
    const std::jthread other([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            const Owned<ibv_mr> region(ibv_reg_mr(pd.get(), memory.data(), kBytes, kAllAccess));
            EXPECT_TRUE(region);
            ++registrations;
        }
    });
    const auto end = Clock::now() + std::chrono::milliseconds(700);
    unsigned rounds = 0;
    for (; Clock::now() < end && !HasFailure(); ++rounds) {
        const int advice = rounds % 3 == 0 ? MADV_FREE : MADV_DONTNEED;
        memset(memory.data(), 5, kBytes);
        ASSERT_EQ(madvise(memory.data(), kBytes, advice), 0);
        if (advice == MADV_DONTNEED) {
            ASSERT_TRUE(
                std::all_of(memory.data(), memory.data() + kBytes, [](int c) { return c == 0; }))
                << "round " << rounds << " of " << registrations;
        }
    }
    EXPECT_GT(rounds, 10U);
    EXPECT_GT(registrations, 3U);
}

// Memory keeps its content while one thread moves it and another one ends its registration.
TEST(ChangedMemory, MovedWhileDeregistering) {
    const auto context = open_device();
    const std::unique_ptr<ibv_pd, Destroy> pd(check(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
    std::atomic<ibv_mr*> ending{nullptr};
    std::atomic<unsigned> ended{0};
    const std::jthread other([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            const Owned<ibv_mr> region(ending.exchange(nullptr));
            if (region) ++ended;
        }
    });
    const Plot memory;
    std::uint8_t* const places[] = {memory.data(), memory.elsewhere()};
    const auto end = Clock::now() + std::chrono::milliseconds(700);
    unsigned rounds = 0;
    for (; Clock::now() < end && !HasFailure(); ++rounds) {
        std::uint8_t* const at = places[rounds % 2];
        std::uint8_t* const to = places[(rounds + 1) % 2];
        fill_pattern(at, kBytes, rounds);
        ending = check(ibv_reg_mr(pd.get(), at, kBytes, kAllAccess), "ibv_reg_mr");
        for (unsigned turn = rounds % 64; turn > 0; --turn)
            std::atomic_signal_fence(std::memory_order_seq_cst);
        ASSERT_EQ(mremap(at, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
        ASSERT_TRUE(has_pattern(to, kBytes, rounds)) << "round " << rounds;
        while (ended <= rounds && !HasFailure())
            std::this_thread::yield();
        ASSERT_TRUE(has_pattern(to, kBytes, rounds)) << "round " << rounds;
    }
    EXPECT_GT(rounds, 10U);
}

// A thread holds the lock of an allocator, whose fork handler another thread runs. It may discard
// memory; mremap() may fail, and must return.
TEST(ChangedMemory, CallsDuringFork) {
    const auto context = open_device();
    const std::unique_ptr<ibv_pd, Destroy> pd(check(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
    const Plot memory;
    const Owned<ibv_mr> region(ibv_reg_mr(pd.get(), memory.data(), kBytes, kAllAccess));
    ASSERT_TRUE(region);
    std::unique_lock lock(early_lock.mutex);
    early_lock.used = true;
    std::jthread forks([] {
        const pid_t child = fork();
        if (child == 0) _exit(0);
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    });
    while (!early_lock.wanted)
        std::this_thread::yield();
    EXPECT_EQ(madvise(memory.page(8), kPage, MADV_DONTNEED), 0);
    EXPECT_EQ(memory.page(8)[5], 0);
    void* const there = mremap(memory.data(), kBytes, 2 * kBytes, MREMAP_MAYMOVE);
    EXPECT_TRUE(there != MAP_FAILED || errno == ENOMEM);
    if (there != MAP_FAILED) munmap(there, 2 * kBytes);
    lock.unlock();
    forks.join();
    early_lock.used = false;
}

}  // namespace
}  // namespace softhca::test
