// SPDX-License-Identifier: BSD-2-Clause
// share() and release() while others write: no store may be lost, whoever made it.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/time.h>

#include "tests/unit/memory_support.h"

namespace softhca::device::memory::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Reach = WriteGuard::Reach;
using Means = WriteGuard::Means;

constexpr std::size_t kPages = 64;

// The counter of one writer on one page.
std::uint64_t* slot(const Memory& memory, std::size_t page, std::size_t writer) {
    return reinterpret_cast<std::uint64_t*>(memory.page(page)) + 8 + writer * 3;
}

// Adds one to its counter on random pages, and remembers how often.
class Incrementer {
public:
    Incrementer(const Memory& memory, std::size_t writer)
        : memory_(memory), writer_(writer), thread_([this] { run(); }) {}
    void stop() {
        stop_ = true;
        thread_.join();
    }
    std::uint64_t lost() const {
        std::uint64_t lost = 0;
        for (std::size_t i = 0; i < kPages; ++i)
            lost += count_[i] - *slot(memory_, i, writer_);
        return lost;
    }

private:
    void run() {
        std::minstd_rand random(static_cast<unsigned>(writer_) + 1);
        while (!stop_.load(std::memory_order_relaxed)) {
            const std::size_t page = random() % kPages;
            std::atomic_ref<std::uint64_t> counter(*slot(memory_, page, writer_));
            counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
            ++count_[page];
        }
    }

    const Memory& memory_;
    std::size_t writer_;
    std::atomic<bool> stop_{false};
    std::uint64_t count_[kPages] = {};
    std::thread thread_;
};

// The kernel's stores: read(2) puts numbers that only grow where the slots are.
class Reader {
public:
    Reader(const Memory& memory, std::size_t writer) : memory_(memory), writer_(writer) {
        EXPECT_EQ(pipe(ends_), 0);
        thread_ = std::thread([this] { run(); });
    }
    ~Reader() {
        close(ends_[0]);
        close(ends_[1]);
    }
    void stop() {
        stop_ = true;
        thread_.join();
    }
    std::uint64_t lost() const {
        std::uint64_t lost = failures_;
        for (std::size_t i = 0; i < kPages; ++i)
            lost += *slot(memory_, i, writer_) != last_[i];
        return lost;
    }

private:
    void run() {
        std::minstd_rand random(static_cast<unsigned>(writer_) + 1);
        for (std::uint64_t number = 1; !stop_.load(std::memory_order_relaxed); ++number) {
            const std::size_t page = random() % kPages;
            std::uint64_t* const target = slot(memory_, page, writer_);
            if (*target != last_[page]) ++failures_;
            if (write(ends_[1], &number, sizeof number) != sizeof number ||
                read(ends_[0], target, sizeof number) != sizeof number)
                ++failures_;
            last_[page] = number;
        }
    }

    const Memory& memory_;
    std::size_t writer_;
    int ends_[2];
    std::atomic<bool> stop_{false};
    std::uint64_t failures_ = 0;
    std::uint64_t last_[kPages] = {};
    std::thread thread_;
};

class MemoryWriters : public SharingTest, public ::testing::WithParamInterface<Means> {
protected:
    void SetUp() override {
        SharingTest::SetUp();
        restrict(Reach::kAllStores, GetParam());
        Sharing& sharing = Sharing::instance();
        if (sharing.guard.reach() != Reach::kAllStores)
            GTEST_SKIP() << "no userfaultfd that holds system calls back (needs root, "
                            "vm.unprivileged_userfaultfd=1, or access to /dev/userfaultfd)";
        if (!sharing.guard.holds_shared())
            GTEST_SKIP() << "userfaultfd cannot protect shared memory (needs Linux 5.19)";
    }
};

TEST_P(MemoryWriters, LoseNoStore) {
    Memory memory(kPages);
    memset(memory.data(), 0, memory.bytes() / 2);  // the other half begins as holes
    Incrementer first(memory, 0), second(memory, 1);
    Reader reader(memory, 2);
    std::minstd_rand random(7);
    const auto end = steady_clock::now() + milliseconds(1000);
    std::uint64_t rounds = 0, shared = 0;
    while (steady_clock::now() < end) {
        Extents a, b;
        const std::size_t from = random() % kPages, count = 1 + random() % (kPages - from);
        ASSERT_EQ(share(memory.page(from), count * page_bytes(), Purpose::kApplication, &a), 0);
        EXPECT_TRUE(a.complete);
        ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &b), 0);
        EXPECT_TRUE(b.complete);
        shared += is_shared(memory.page(0));
        release(a);
        release(b);
        EXPECT_FALSE(is_shared(memory.page(0)));
        ++rounds;
    }
    first.stop();
    second.stop();
    reader.stop();
    EXPECT_EQ(shared, rounds);
    EXPECT_GT(rounds, 5u);
    EXPECT_EQ(first.lost(), 0u);
    EXPECT_EQ(second.lost(), 0u);
    EXPECT_EQ(reader.lost(), 0u);
    EXPECT_EQ(sharing_counters().shared_bytes, 0u);
}

TEST_P(MemoryWriters, LoseNoStoreToHugePages) {
    constexpr std::size_t kHuge = 2 << 20;
    Memory memory(4 * kHuge / page_bytes());
    const std::size_t first = (kHuge - memory.address() % kHuge) / page_bytes();
    const std::size_t pages = kHuge / page_bytes();
    ASSERT_EQ(madvise(memory.data(), memory.bytes(), MADV_HUGEPAGE), 0);
    memory.fill(1);
    std::atomic<bool> stop{false};
    std::uint64_t count = 0;
    // One word of every page, over and over.
    std::thread writer([&] {
        while (!stop) {
            ++count;
            for (std::size_t i = 0; i < memory.pages(); i += 7)
                *reinterpret_cast<volatile std::uint64_t*>(memory.page(i)) = count;
        }
    });
    const std::pair<std::size_t, std::size_t> ranges[] = {
        {first, pages}, {first + 3, pages}, {first + pages - 5, 10}, {0, memory.pages()}};
    const auto end = steady_clock::now() + milliseconds(700);
    for (unsigned round = 0; round < 4 || steady_clock::now() < end; ++round) {
        const auto [from, length] = ranges[round % 4];
        Extents extents;
        ASSERT_EQ(share(memory.page(from), length * page_bytes(), Purpose::kApplication, &extents),
                  0);
        EXPECT_TRUE(extents.complete);
        release(extents);
    }
    stop = true;
    writer.join();
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < memory.bytes(); ++i) {
        const std::size_t page = i / page_bytes(), at = i % page_bytes();
        if (page % 7 == 0 && at < 8)
            wrong += at == 0 && *reinterpret_cast<std::uint64_t*>(memory.page(page)) != count;
        else
            wrong += memory.data()[i] != Memory::value(i, 1);
    }
    EXPECT_EQ(wrong, 0u);
}

TEST_P(MemoryWriters, ManyThreadsShareTheSamePages) {
    Memory memory(kPages);
    Incrementer writer(memory, 0);
    std::atomic<unsigned> failures{0};
    std::vector<std::thread> sharers;
    for (unsigned t = 0; t < 3; ++t)
        sharers.emplace_back([&, t] {
            std::minstd_rand random(t + 1);
            const auto end = steady_clock::now() + milliseconds(700);
            while (steady_clock::now() < end) {
                Extents extents;
                const std::size_t from = random() % kPages, count = 1 + random() % (kPages - from);
                const Purpose purpose = random() % 4 ? Purpose::kApplication : Purpose::kQueue;
                // It may take more extents than fit.
                failures += share(memory.page(from), count * page_bytes(), purpose, &extents) != 0;
                for (unsigned e = 0; e < extents.count; ++e)
                    if (!is_shared(reinterpret_cast<void*>(extents.extent[e].address))) ++failures;
                release(extents);
            }
        });
    for (std::thread& sharer : sharers)
        sharer.join();
    writer.stop();
    EXPECT_EQ(failures, 0u);
    EXPECT_EQ(writer.lost(), 0u);
    EXPECT_EQ(sharing_counters().shared_bytes, 0u);
    EXPECT_EQ(resident_bytes(arena_fd()), 0u);
}

TEST_P(MemoryWriters, MayHoldLocksOfTheHeap) {
    // Threads that allocate wait for held pages with the heap locked.
    std::atomic<bool> stop{false};
    std::vector<std::thread> allocators;
    std::atomic<std::uint64_t> wrong{0};
    for (unsigned t = 0; t < 2; ++t)
        allocators.emplace_back([&, t] {
            std::minstd_rand random(t + 1);
            while (!stop) {
                std::vector<std::string> strings;
                for (unsigned i = 0; i < 50; ++i)
                    strings.emplace_back(1 + random() % 3000, static_cast<char>('a' + t));
                for (const std::string& string : strings)
                    wrong +=
                        string.find_first_not_of(static_cast<char>('a' + t)) != std::string::npos;
            }
        });
    const auto end = steady_clock::now() + milliseconds(700);
    std::minstd_rand random(9);
    while (steady_clock::now() < end) {
        std::vector<std::vector<char>> blocks;
        std::vector<Extents> extents(20);
        for (Extents& one : extents) {
            blocks.emplace_back(1 + random() % 9000, 'x');
            ASSERT_EQ(
                share(blocks.back().data(), blocks.back().size(), Purpose::kApplication, &one), 0);
        }
        for (Extents& one : extents)
            release(one);
        for (const auto& block : blocks)
            wrong += std::count(block.begin(), block.end(), 'x') !=
                     static_cast<std::ptrdiff_t>(block.size());
    }
    stop = true;
    for (std::thread& allocator : allocators)
        allocator.join();
    EXPECT_EQ(wrong, 0u);
}

std::string name_of(const ::testing::TestParamInfo<Means>& info) {
    switch (info.param) {
        case Means::kBest:
            return "Best";
        case Means::kWriteProtect:
            return "WriteProtect";
        case Means::kPopulatedWriteProtect:
            return "PopulatedWriteProtect";
        case Means::kNone:
            break;
    }
    return "None";
}
INSTANTIATE_TEST_SUITE_P(By, MemoryWriters,
                         ::testing::Values(Means::kBest, Means::kWriteProtect,
                                           Means::kPopulatedWriteProtect),
                         name_of);

// A signal handler is a writer in this very thread.
class MemorySignals : public SharingTest {
protected:
    static inline std::uint64_t* counters;
    static inline volatile std::uint64_t calls;
    static void count(int) {
        calls = calls + 1;
        for (std::size_t i = 0; i < kPages; ++i)
            ++counters[i * page_bytes() / 8];
    }
};

TEST_F(MemorySignals, HandlersMayWriteToThePages) {
    Memory memory(kPages);
    counters = reinterpret_cast<std::uint64_t*>(memory.data());
    calls = 0;
    struct sigaction action {
    }, old;
    action.sa_handler = count;
    ASSERT_EQ(sigaction(SIGALRM, &action, &old), 0);
    const itimerval timer{{0, 300}, {0, 300}}, none{};
    for (const Reach reach : {Reach::kAllStores, Reach::kNothing}) {
        restrict(reach);
        ASSERT_EQ(setitimer(ITIMER_REAL, &timer, nullptr), 0);
        const auto end = steady_clock::now() + milliseconds(400);
        while (steady_clock::now() < end) {
            Extents extents;
            ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
            EXPECT_TRUE(extents.complete);
            release(extents);
        }
        ASSERT_EQ(setitimer(ITIMER_REAL, &none, nullptr), 0);
        EXPECT_GT(calls, 50u);
        for (std::size_t i = 0; i < kPages; ++i)
            ASSERT_EQ(counters[i * page_bytes() / 8], calls) << i;
    }
    sigaction(SIGALRM, &old, nullptr);
}

}  // namespace
}  // namespace softhca::device::memory::test
