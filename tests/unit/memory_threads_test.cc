// SPDX-License-Identifier: BSD-2-Clause
// share() and release() in a process with other threads, with a guard against their stores and
// without one.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "softhca/base/libc.h"
#include "softhca/device/memory/program_calls.h"
#include "tests/unit/memory_support.h"

namespace softhca::device::memory::test {
namespace {

using std::chrono::milliseconds;
using Reach = WriteGuard::Reach;

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
    WriteGuard::Held held = other.hold(memory.address(), memory.bytes(), true, -1);
    ASSERT_GT(held.bytes, 0u);
    Extents extents;
    EXPECT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_EQ(extents.count, 0u);
    release(extents);
    other.put_back(memory.address(), held);
    other.forget();
    EXPECT_TRUE(memory.filled(1));
}

// By runs of pages with content and without, whether their lengths are known or not.
TEST_F(MemoryThreads, PagesWithoutContentAreHeldToo) {
    constexpr std::size_t kRuns[] = {1, 1, 1, 2, 3, 15, 1, 17, 40, 64, 1, 80, 300, 25, 7};
    ProcFile pagemap("/proc/self/pagemap", O_RDONLY);
    ASSERT_GE(pagemap.get(), 0);
    for (const int fd : {-1, pagemap.number()}) {
        for (const bool holes_first : {false, true}) {
            Memory memory(600);
            std::vector<bool> has_content(memory.pages());
            std::size_t at = 0;
            for (std::size_t i = 0; i < std::size(kRuns); ++i)
                for (std::size_t end = at + kRuns[i]; at < end; ++at)
                    has_content[at] = (i % 2 != 0) == holes_first;
            for (std::size_t i = 0; i < memory.pages(); ++i)
                if (has_content[i]) memory.page(i)[7] = static_cast<std::uint8_t>(i % 255 + 1);
            WriteGuard guard;
            if (!guard.finds_pins()) GTEST_SKIP() << "no UFFDIO_MOVE";
            const WriteGuard::Held held = guard.hold(memory.address(), memory.bytes(), true, fd);
            ASSERT_EQ(held.bytes, memory.bytes());
            const auto* const source = reinterpret_cast<const std::uint8_t*>(held.source);
            std::vector<unsigned char> present(memory.pages());
            ASSERT_EQ(::mincore(memory.data(), memory.bytes(), present.data()), 0);
            for (std::size_t i = 0; i < memory.pages(); ++i) {
                ASSERT_EQ(present[i] & 1, 0) << i << " is still there";
                if (has_content[i]) {
                    ASSERT_EQ(source[i * page_bytes() + 7], i % 255 + 1) << i;
                }
            }
            guard.put_back(memory.address(), held);
            for (std::size_t i = 0; i < memory.pages(); ++i)
                ASSERT_EQ(memory.page(i)[7], has_content[i] ? i % 255 + 1 : 0) << i;
            guard.forget();
        }
    }
    pagemap.close();
}

// Pages that another registration has left private are shared as long as that one lasts: peers may
// be copying into them.
TEST_F(MemoryThreads, WhatAnotherLeftPrivateIsPrivateAtItsEnd) {
    Memory memory(8);
    memory.fill(1);
    Idler idler;
    const Beneath kernel{libc::madvise, libc::mremap};
    ASSERT_EQ(advise(memory.page(3), 2 * page_bytes(), MADV_DONTDUMP, kernel), 0);
    Extents with_gap, of_gap;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &with_gap), 0);
    if (with_gap.count == 0) GTEST_SKIP() << "writers cannot be held back here";
    EXPECT_FALSE(with_gap.complete);
    ASSERT_EQ(advise(memory.page(3), 2 * page_bytes(), MADV_DODUMP, kernel), 0);
    ASSERT_EQ(share(memory.page(3), 2 * page_bytes(), Purpose::kApplication, &of_gap), 0);
    EXPECT_TRUE(of_gap.complete);
    release(of_gap);
    EXPECT_TRUE(is_shared(memory.page(3)));
    release(with_gap);
    EXPECT_FALSE(is_shared(memory.page(3)));
    EXPECT_EQ(sharing_counters().shared_bytes, 0u);
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

// An allocator may give pages back within a pause, while another thread waits for the pause's end.
TEST_F(MemoryThreads, PagesAreGivenBackWithinAPause) {
    Memory memory(2), queue(2), freed(2);
    Extents extents, extents_of_freed;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kQueue, &extents), 0);
    ASSERT_EQ(share(freed.data(), freed.bytes(), Purpose::kQueue, &extents_of_freed), 0);
    freed.fill(3);
    std::atomic<bool> done{false};
    const auto while_waiting = [&](auto&& change) {
        std::thread changer;
        {
            SharingPause pause;
            changer = std::thread([&] {
                change();
                done = true;
            });
            std::this_thread::sleep_for(milliseconds(50));
            EXPECT_FALSE(done);
            EXPECT_EQ(
                advise(freed.data(), freed.bytes(), MADV_DONTNEED, {libc::madvise, libc::mremap}),
                0);
            EXPECT_TRUE(std::all_of(freed.data(), freed.data() + freed.bytes(),
                                    [](std::uint8_t byte) { return byte == 0; }));
        }
        changer.join();
        EXPECT_TRUE(done);
        done = false;
        freed.fill(3);
    };
    Extents extents_of_queue;
    while_waiting([&] {
        ASSERT_EQ(share(queue.data(), queue.bytes(), Purpose::kQueue, &extents_of_queue), 0);
    });
    while_waiting([&] { release(extents); });
    release(extents_of_queue);
    release(extents_of_freed);
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
