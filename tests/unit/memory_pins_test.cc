// SPDX-License-Identifier: BSD-2-Clause
// share() and release() of pages that are pinned: by copies from other processes, or by the kernel.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "softhca/device/memory/remote.h"
#include "tests/unit/memory_support.h"

namespace softhca::device::memory::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Reach = WriteGuard::Reach;

constexpr std::size_t kWrittenPages = 64;

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
    Memory memory(kWrittenPages);
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

}  // namespace
}  // namespace softhca::device::memory::test
