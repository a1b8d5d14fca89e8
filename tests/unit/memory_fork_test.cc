// SPDX-License-Identifier: BSD-2-Clause
// fork() with shared segments: the child has the values of the moment, and nobody sees the other's
// later stores.

#include "softhca/device/memory/fork.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "tests/unit/memory_support.h"

namespace softhca::device::memory::test {
namespace {

class MemoryFork : public SharingTest {
protected:
    void SetUp() override {
        SharingTest::SetUp();
        register_fork_handlers();
    }
};

TEST_F(MemoryFork, TheChildHasTheValuesOfTheMoment) {
    Memory memory(30);
    memory.fill(1);
    Extents extents;
    ASSERT_EQ(share(memory.page(3), 20 * page_bytes(), Purpose::kApplication, &extents), 0);
    Signal parent_wrote, child_wrote;
    const std::uint64_t inode = arena_inode();
    const pid_t child = fork();
    if (child == 0) {
        bool good = memory.filled(1);
        parent_wrote.wait();
        good &= memory.filled(1);  // not the parent's later stores
        memory.fill(3);
        child_wrote.send();
        good &= memory.filled(3);
        good &= vma_at(address_of(memory.page(5))).plain();
        good &= arena_base() == nullptr && arena_fd() == -1 && arena_inode() == 0;
        // The parent's registration means nothing here, also when there is an own arena.
        Extents own;
        good &= share(memory.page(0), 25 * page_bytes(), Purpose::kApplication, &own) == 0;
        good &= own.complete && arena_inode() != inode;
        release(extents);
        good &= is_shared(memory.page(3));
        // And a child of its own.
        good &= static_cast<bool>(in_child([&] {
            EXPECT_TRUE(memory.filled(3));
            memory.fill(4);
        }));
        good &= memory.filled(3);
        release(own);
        good &= memory.filled(3);
        _exit(good ? 0 : 1);
    }
    memory.fill(2);
    parent_wrote.send();
    child_wrote.wait();
    EXPECT_TRUE(memory.filled(2));  // not the child's
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(is_shared(memory.page(3)));
    EXPECT_TRUE(memory.filled(2));
    release(extents);
    EXPECT_TRUE(memory.filled(2));
}

TEST_F(MemoryFork, KeepsHolesAndProtection) {
    Memory memory(2000);
    memory.page(1000)[1] = 1;
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    ASSERT_EQ(mprotect(memory.page(1000), page_bytes(), PROT_READ), 0);
    EXPECT_TRUE(in_child([&] {
        EXPECT_EQ(memory.page(1000)[1], 1);
        EXPECT_EQ(memory.page(1000)[2], 0);
        EXPECT_EQ(vma_at(address_of(memory.page(1000))).protection(), PROT_READ);
        std::vector<unsigned char> present(memory.pages());
        EXPECT_EQ(mincore(memory.data(), memory.bytes(), present.data()), 0);
        EXPECT_LE(std::count(present.begin(), present.end(), 1), 2);
        EXPECT_EQ(memory.page(1)[0], 0);
        memory.page(999)[5] = 9;
    }));
    EXPECT_EQ(memory.page(999)[5], 0);
    release(extents);
}

TEST_F(MemoryFork, WhatTheApplicationReplacedIsInheritedAsItIs) {
    Memory memory(6);
    memory.fill(1);
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    ASSERT_NE(mmap(memory.page(2), page_bytes(), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              MAP_FAILED);
    memset(memory.page(2), 9, page_bytes());
    ASSERT_EQ(munmap(memory.page(4), page_bytes()), 0);
    EXPECT_TRUE(in_child([&] {
        EXPECT_EQ(memory.page(2)[7], 9);
        EXPECT_EQ(memory.page(1)[7], Memory::value(page_bytes() + 7, 1));
        EXPECT_EQ(memory.page(5)[7], Memory::value(5 * page_bytes() + 7, 1));
        EXPECT_EQ(vma_at(address_of(memory.page(4))).end, 0u);
    }));
    release(extents);
}

TEST_F(MemoryFork, AChildMadePastTheLibraryCannotWriteHere) {
    Memory memory(2);
    memory.fill(1);
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    const auto child =
        static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *static_cast<volatile std::uint8_t*>(memory.data()) = 99;
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    EXPECT_TRUE(memory.filled(1));
    release(extents);
}

// The C library resets the locks of its FILEs and heaps in the child before any handler runs.
TEST_F(MemoryFork, LibrariesMayTouchSharedPagesFirst) {
    std::FILE* const file = std::tmpfile();
    ASSERT_NE(file, nullptr);
    std::fputs("first ", file);
    std::thread([] {}).join();  // the C library has seen a thread
    Extents extents;
    ASSERT_EQ(share(file, sizeof *file, Purpose::kApplication, &extents), 0);
    if (!extents.complete) GTEST_SKIP() << "the heap is not plain memory here";
    for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(in_child([&] {
            EXPECT_GE(std::fputs("second ", file), 0);
            EXPECT_FALSE(is_shared(file));
        }));
    }
    EXPECT_GE(std::fputs("third", file), 0);
    std::rewind(file);
    char text[64] = "";
    EXPECT_NE(std::fgets(text, sizeof text, file), nullptr);
    std::fclose(file);
    release(extents);
}

TEST_F(MemoryFork, HeapsOfThreadsMayBeShared) {
    std::thread([] {
        // Small blocks next to the head of this thread's own heap, which holds its lock.
        std::vector<std::unique_ptr<char[]>> blocks;
        std::vector<Extents> extents(8);
        set_own_threads(thread_count() - 1);
        for (Extents& one : extents) {
            blocks.emplace_back(new char[200]);
            memset(blocks.back().get(), 7, 200);
            EXPECT_EQ(share(blocks.back().get(), 200, Purpose::kApplication, &one), 0);
        }
        for (int i = 0; i < 10; ++i)
            EXPECT_TRUE(in_child([&] {
                for (const auto& block : blocks) {
                    EXPECT_EQ(std::count(block.get(), block.get() + 200, 7), 200);
                    const std::unique_ptr<char[]> another(new char[300]);
                    memset(another.get(), 1, 300);
                }
            }));
        for (const Extents& one : extents)
            release(one);
    }).join();
}

struct Handler {
    static inline volatile std::sig_atomic_t calls;
    static void run(int, siginfo_t* info, void*) {
        calls = calls + 1;
        mprotect(reinterpret_cast<void*>(round_down(address_of(info->si_addr))), page_bytes(),
                 PROT_READ | PROT_WRITE);
    }
};

TEST_F(MemoryFork, TheApplicationsSignalHandlersRemain) {
    struct sigaction action {
    }, old, now;
    action.sa_sigaction = Handler::run;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaddset(&action.sa_mask, SIGUSR1);
    ASSERT_EQ(sigaction(SIGSEGV, &action, &old), 0);
    sigset_t mask, mask_now;
    sigemptyset(&mask);
    sigaddset(&mask, SIGSEGV);
    sigaddset(&mask, SIGUSR2);
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &mask, &before);
    stack_t stack, stack_now;
    sigaltstack(nullptr, &stack);
    Memory memory(2), forbidden(1, PROT_NONE);
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    const auto same = [&] {
        EXPECT_EQ(sigaction(SIGSEGV, nullptr, &now), 0);
        EXPECT_EQ(now.sa_sigaction, &Handler::run);
        EXPECT_EQ(now.sa_flags & SA_RESTART, SA_RESTART);
        EXPECT_TRUE(sigismember(&now.sa_mask, SIGUSR1));
        pthread_sigmask(SIG_BLOCK, nullptr, &mask_now);
        EXPECT_TRUE(sigismember(&mask_now, SIGSEGV) && sigismember(&mask_now, SIGUSR2));
        EXPECT_FALSE(sigismember(&mask_now, SIGUSR1));
        sigaltstack(nullptr, &stack_now);
        EXPECT_EQ(stack_now.ss_flags, stack.ss_flags);
        pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
        const int calls = Handler::calls;
        *static_cast<volatile std::uint8_t*>(forbidden.data()) = 1;
        EXPECT_EQ(Handler::calls, calls + 1);
        mprotect(forbidden.data(), page_bytes(), PROT_NONE);
        pthread_sigmask(SIG_BLOCK, &mask, nullptr);
    };
    EXPECT_TRUE(in_child(same));
    same();
    // While forks are under way, faults of other threads go to the application as ever.
    std::atomic<bool> stop{false};
    std::thread faulter([&] {
        pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
        Memory own(1, PROT_NONE);
        while (!stop) {
            *static_cast<volatile std::uint8_t*>(own.data()) = 1;
            mprotect(own.data(), page_bytes(), PROT_NONE);
        }
    });
    for (int i = 0; i < 100; ++i)
        EXPECT_TRUE(in_child([] {}));
    stop = true;
    faulter.join();
    EXPECT_EQ(sigaction(SIGSEGV, nullptr, &now), 0);
    EXPECT_EQ(now.sa_sigaction, &Handler::run);
    release(extents);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    sigaction(SIGSEGV, &old, nullptr);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// A coroutine whose stack is registered memory forks: its child cannot run, but that is all.
struct Coroutine {
    static inline ucontext_t main, self;
    static inline int status;
    static void run() {
        const pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, &status, 0);
        swapcontext(&self, &main);
    }
};

TEST_F(MemoryFork, FromAStackThatIsShared) {
    Memory stack(32), other(1);
    other.fill(1);
    Extents extents, others;
    ASSERT_EQ(share(stack.data(), stack.bytes(), Purpose::kApplication, &extents), 0);
    ASSERT_EQ(share(other.data(), other.bytes(), Purpose::kApplication, &others), 0);
    ASSERT_TRUE(extents.complete);
    ASSERT_EQ(getcontext(&Coroutine::self), 0);
    Coroutine::self.uc_stack.ss_sp = stack.data();
    Coroutine::self.uc_stack.ss_size = stack.bytes();
    makecontext(&Coroutine::self, Coroutine::run, 0);
    ASSERT_EQ(swapcontext(&Coroutine::main, &Coroutine::self), 0);
    EXPECT_TRUE(WIFSIGNALED(Coroutine::status) && WTERMSIG(Coroutine::status) == SIGSEGV);
    EXPECT_TRUE(other.filled(1));
    release(others);
    release(extents);
}

// It registers a buffer on its own stack: what the conversion itself runs on stays as it is.
struct OnStack {
    static inline ucontext_t main, self;
    static inline int error;
    static void run() {
        char buffer[3 * 4096];
        memset(buffer, 7, sizeof buffer);
        Extents extents;
        error = share(buffer, sizeof buffer, Purpose::kApplication, &extents);
        for (const char c : buffer)
            error |= c != 7;
        release(extents);
        for (const char c : buffer)
            error |= c != 7;
        swapcontext(&self, &main);
    }
};

TEST_F(MemoryFork, BuffersOnTheStackOfACoroutine) {
    Memory stack(64);
    OnStack::error = -1;
    ASSERT_EQ(getcontext(&OnStack::self), 0);
    OnStack::self.uc_stack.ss_sp = stack.data();
    OnStack::self.uc_stack.ss_size = stack.bytes();
    makecontext(&OnStack::self, OnStack::run, 0);
    ASSERT_EQ(swapcontext(&OnStack::main, &OnStack::self), 0);
    EXPECT_EQ(OnStack::error, 0);
    EXPECT_EQ(sharing_counters().shared_bytes, 0u);
}
#endif

TEST_F(MemoryFork, WhileOtherThreadsShare) {
    if (Sharing::instance().guard.reach() != WriteGuard::Reach::kAllStores)
        GTEST_SKIP() << "no userfaultfd that holds system calls back";
    Memory still(16), busy(16);
    still.fill(1);
    Extents extents;
    ASSERT_EQ(share(still.data(), still.bytes(), Purpose::kApplication, &extents), 0);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t)
        threads.emplace_back([&, t] {
            while (!stop) {
                Extents mine;
                EXPECT_EQ(share(busy.page(static_cast<std::size_t>(t) * 4), 8 * page_bytes(),
                                Purpose::kApplication, &mine),
                          0);
                std::string text(5000, 'x');
                release(mine);
            }
        });
    for (int i = 0; i < 60; ++i) {
        EXPECT_TRUE(in_child([&] {
            EXPECT_TRUE(still.filled(1));
            Extents mine;
            EXPECT_EQ(share(still.data(), still.bytes(), Purpose::kApplication, &mine), 0);
            still.fill(2);
            release(mine);
            EXPECT_TRUE(still.filled(2));
        }));
    }
    stop = true;
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_TRUE(still.filled(1));
    release(extents);
    EXPECT_EQ(sharing_counters().shared_bytes, 0u);
}

}  // namespace
}  // namespace softhca::device::memory::test
