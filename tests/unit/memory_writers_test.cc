// SPDX-License-Identifier: BSD-2-Clause
// share() and release() while others write: no store may be lost, whoever made it.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "softhca/device/memory/remote.h"
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

class MemoryPins : public SharingTest {
protected:
    void SetUp() override {
        SharingTest::SetUp();
        if (!Sharing::instance().guard.finds_pins())
            GTEST_SKIP() << "pinned pages cannot be found out (needs Linux 6.8 and userfaultfd)";
    }
};

// Another process writes by process_vm_writev(2), which pins the pages and then writes to them
// whatever is mapped meanwhile.
TEST_F(MemoryPins, OfCopiesFromElsewhereLoseNothing) {
    if (Sharing::instance().guard.reach() != Reach::kAllStores)
        GTEST_SKIP() << "no userfaultfd that holds system calls back";
    Memory memory(kPages);
    Memory control(1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
    struct Control {
        std::atomic<bool> stop;
        std::uint64_t last, failures;
    };
    auto& other = *reinterpret_cast<Control*>(control.data());
    const pid_t parent = getpid();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // the child copies to it, Yama or not
    register_fork_handlers();
    std::vector<std::uint64_t> content(memory.bytes() / 8);
    const pid_t child = fork();
    if (child == 0) {
        const iovec local{content.data(), memory.bytes()}, remote{memory.data(), memory.bytes()};
        for (std::uint64_t number = 1; !other.stop; ++number) {
            std::fill(content.begin(), content.end(), number);
            other.failures += copy_to(parent, &local, 1, &remote, 1, memory.bytes()) != 0;
            other.last = number;
        }
        _exit(0);
    }
    std::uint64_t wrong = 0, partial = 0;
    const auto end = steady_clock::now() + milliseconds(1500);
    while (steady_clock::now() < end) {
        Extents extents;
        ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
        partial += !extents.complete;
        // Between two copies (it is stopped outside of the system call that copies).
        kill(child, SIGSTOP);
        waitpid(child, nullptr, WUNTRACED);
        const auto* const words = reinterpret_cast<std::uint64_t*>(memory.data());
        for (std::size_t i = 0; i < content.size(); ++i)
            wrong += words[i] != other.last && words[i] != other.last + 1;
        release(extents);
        kill(child, SIGCONT);
        std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    other.stop = true;
    waitpid(child, nullptr, 0);
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(other.failures, 0u);
    RecordProperty("partial", std::to_string(partial));
}

TEST_F(MemoryPins, OfTheKernelKeepPagesPrivate) {
    Memory memory(12);
    memory.fill(1);
    io_uring_params parameters{};
    const int ring = static_cast<int>(syscall(SYS_io_uring_setup, 4, &parameters));
    if (ring < 0) GTEST_SKIP() << "no io_uring to pin pages with: " << strerror(errno);
    const iovec pinned{memory.page(4), 2 * page_bytes()};
    ASSERT_EQ(syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &pinned, 1), 0)
        << strerror(errno);
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_FALSE(extents.complete);
    ASSERT_EQ(extents.count, 2u);
    for (std::size_t i = 0; i < 12; ++i) {
        EXPECT_EQ(is_shared(memory.page(i)), i < 4 || i > 5) << i;
    }
    EXPECT_TRUE(memory.filled(1));
    release(extents);
    EXPECT_TRUE(memory.filled(1));
    // Nor does it lose them when it got hold of them in between.
    Memory other(2);
    ASSERT_EQ(share(other.data(), other.bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_TRUE(extents.complete);
    release(extents);
    EXPECT_TRUE(is_shared(other.data()));
    restrict(Reach::kNothing);
    Memory third(1);
    ASSERT_EQ(share(third.data(), third.bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_EQ(extents.count, 0u);
    release(extents);
    restrict(Reach::kAllStores);
    ASSERT_EQ(syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, nullptr, 0), 0);
    close(ring);
    // The kernel lets go a little later.
    for (int i = 0; i < 200; ++i) {
        ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
        const bool complete = extents.complete;
        release(extents);
        if (complete) break;
        ASSERT_LT(i, 199) << "still pinned";
        std::this_thread::sleep_for(milliseconds(5));
    }
    EXPECT_TRUE(memory.filled(1));
    EXPECT_FALSE(is_shared(other.data()));
    EXPECT_EQ(sharing_counters().shared_bytes, 0u);
}

TEST_F(MemoryPins, VeryManyEndTheSearch) {
    Memory memory(300);
    memory.fill(1);
    io_uring_params parameters{};
    const int ring = static_cast<int>(syscall(SYS_io_uring_setup, 4, &parameters));
    if (ring < 0) GTEST_SKIP() << "no io_uring to pin pages with: " << strerror(errno);
    const iovec pinned{memory.page(4), 200 * page_bytes()};
    ASSERT_EQ(syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &pinned, 1), 0)
        << strerror(errno);
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_EQ(extents.count, 1u);
    EXPECT_EQ(extents.extent[0].length, 4 * page_bytes());
    EXPECT_TRUE(memory.filled(1));
    close(ring);
    release(extents);
    EXPECT_TRUE(memory.filled(1));
    for (int i = 0; i < 200 && sharing_counters().shared_bytes > 0; ++i) {
        Memory other(1);
        ASSERT_EQ(share(other.data(), other.bytes(), Purpose::kQueue, &extents), 0);
        release(extents);
        std::this_thread::sleep_for(milliseconds(5));
    }
    EXPECT_EQ(sharing_counters().shared_bytes, 0u);
}

TEST_F(MemoryPins, PagesSharedWithAForkedChildAreNotPinned) {
    Memory memory(40);
    memory.fill(1);
    Signal go;
    register_fork_handlers();
    const pid_t child = fork();
    if (child == 0) {
        go.wait();
        _exit(memory.filled(1) ? 0 : 1);
    }
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_TRUE(extents.complete);
    memory.fill(2);
    go.send();
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    release(extents);
    EXPECT_TRUE(memory.filled(2));
}

class MemoryThreads : public SharingTest {
protected:
    void SetUp() override {
        SharingTest::SetUp();
        wait_until_alone();  // without threads of tests before
    }

    // Another thread that can write.
    class Idler {
    public:
        Idler() : thread_([this] { go_.wait(); }) {}
        ~Idler() {
            go_.send();
            thread_.join();
            wait_until_alone();
        }

    private:
        Signal go_;
        std::thread thread_;
    };
};

TEST_F(MemoryThreads, WithoutAGuardNothingOfTheApplicationIsShared) {
    Memory memory(8), queue(8);
    memory.fill(1);
    queue.fill(2);
    for (const Reach reach : {Reach::kUserStores, Reach::kNothing}) {
        restrict(reach);
        Extents extents, queues;
        {
            Idler idler;
            ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
            EXPECT_FALSE(extents.complete);
            EXPECT_EQ(extents.count, 0u);
            release(extents);
            ASSERT_EQ(share(queue.data(), queue.bytes(), Purpose::kQueue, &queues), 0);
            EXPECT_TRUE(queues.complete);
            EXPECT_TRUE(queue.filled(2));
            // What is shared already, the application can have.
            ASSERT_EQ(share(queue.data(), queue.bytes(), Purpose::kApplication, &extents), 0);
            EXPECT_TRUE(extents.complete);
            release(extents);
            release(queues);
            // It may be writing there now: it stays shared.
            EXPECT_TRUE(is_shared(queue.data()));
            EXPECT_EQ(sharing_counters().idle_bytes, queue.bytes());
            ASSERT_EQ(share(queue.data(), queue.bytes(), Purpose::kApplication, &extents), 0);
            EXPECT_TRUE(extents.complete);
            EXPECT_EQ(sharing_counters().idle_bytes, 0u);
            release(extents);
        }
        // Alone again: the next call makes it private.
        ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
        EXPECT_TRUE(extents.complete);
        EXPECT_FALSE(is_shared(queue.data()));
        EXPECT_TRUE(queue.filled(2));
        release(extents);
        EXPECT_TRUE(memory.filled(1));
        EXPECT_EQ(sharing_counters().shared_bytes, 0u);
    }
}

TEST_F(MemoryThreads, IdlePagesThatTheApplicationUnmappedAreGivenBack) {
    restrict(Reach::kNothing);
    ASSERT_GE(arena_open(), 0);
    Idler* idler = nullptr;
    {
        std::vector<std::unique_ptr<Memory>> memories;
        std::vector<Extents> extents(20);
        for (Extents& one : extents) {
            memories.push_back(std::make_unique<Memory>(2));
            memories.back()->fill(1);
            ASSERT_EQ(share(memories.back()->data(), memories.back()->bytes(),
                            Purpose::kApplication, &one),
                      0);
            ASSERT_TRUE(one.complete);
        }
        idler = new Idler;
        for (const Extents& one : extents)
            release(one);
        EXPECT_EQ(sharing_counters().idle_bytes, 40 * page_bytes());
    }
    EXPECT_GT(resident_bytes(arena_fd()), 0u);
    Memory memory(1);
    for (int i = 0; i < 20; ++i) {
        Extents extents;
        ASSERT_EQ(share(memory.data(), 1, Purpose::kQueue, &extents), 0);
        release(extents);
    }
    EXPECT_EQ(sharing_counters().idle_bytes, 0u);
    EXPECT_EQ(resident_bytes(arena_fd()), 0u);
    delete idler;
}

TEST_F(MemoryThreads, OwnThreadsDoNotCount) {
    restrict(Reach::kNothing);
    Memory memory(2);
    Idler progress;
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_FALSE(extents.complete);
    release(extents);
    set_own_threads(helper_threads() + 1);
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_TRUE(extents.complete);
    release(extents);
    EXPECT_FALSE(is_shared(memory.data()));
}

TEST_F(MemoryThreads, WhatARegistrationLeftPrivateStaysSo) {
    // Peers copy into it, and that cannot be held back without a guard that sees it.
    restrict(Reach::kNothing);
    Memory memory(6);
    Extents left, extents;
    {
        Idler idler;
        ASSERT_EQ(share(memory.page(2), 2 * page_bytes(), Purpose::kApplication, &left), 0);
        EXPECT_EQ(left.count, 0u);
    }
    ASSERT_EQ(share(memory.page(0), 2 * page_bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_TRUE(extents.complete);
    release(extents);
    ASSERT_EQ(share(memory.page(0), 4 * page_bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_FALSE(extents.complete);
    EXPECT_FALSE(is_shared(memory.page(3)));
    release(extents);
    release(left);
    ASSERT_EQ(share(memory.page(0), 4 * page_bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_TRUE(extents.complete);
    release(extents);
}

TEST_F(MemoryThreads, MemoryWatchedByAnotherUserfaultfdIsLeftAlone) {
    Memory memory(4);
    memory.fill(1);
    WriteGuard other;
    if (other.reach() == Reach::kNothing) GTEST_SKIP() << "no userfaultfd";
    WriteGuard::Held held = other.hold(memory.address(), memory.bytes(), true);
    ASSERT_GT(held.bytes, 0u);
    Extents extents;
    EXPECT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_EQ(extents.count, 0u);
    release(extents);
    other.put_back(memory.address(), held);
    other.forget();
    EXPECT_TRUE(memory.filled(1));
}

TEST_F(MemoryThreads, SharingPauseHoldsExchangesBack) {
    Memory memory(2);
    std::atomic<bool> done{false};
    std::thread sharer;
    {
        SharingPause pause;
        sharer = std::thread([&] {
            Extents extents;
            EXPECT_EQ(share(memory.data(), memory.bytes(), Purpose::kQueue, &extents), 0);
            done = true;
            release(extents);
        });
        std::this_thread::sleep_for(milliseconds(50));
        EXPECT_FALSE(done);
        EXPECT_FALSE(is_shared(memory.data()));
    }
    sharer.join();
    EXPECT_TRUE(done);
}

TEST_F(MemoryThreads, SharingGoesBeforePauses) {
    Memory memory(2);
    std::atomic<bool> stop{false};
    std::atomic<int> pauses{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t)
        threads.emplace_back([&] {
            while (!stop) {
                SharingPause pause;
                ++pauses;
                std::this_thread::sleep_for(milliseconds(1));
            }
        });
    while (pauses < 5)
        std::this_thread::yield();
    std::vector<int> waited;
    for (int i = 0; i < 41; ++i) {
        Extents extents;
        const int before = pauses;
        ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kQueue, &extents), 0);
        waited.push_back(pauses - before);
        release(extents);
        std::this_thread::sleep_for(milliseconds(3));  // that the others queue up
    }
    stop = true;
    for (std::thread& thread : threads)
        thread.join();
    // For the end of the one that was on, and sometimes for one that began just then; not for all
    // that had come earlier.
    std::sort(waited.begin(), waited.end());
    EXPECT_LE(waited[waited.size() / 2], 1);
}

}  // namespace
}  // namespace softhca::device::memory::test
