// SPDX-License-Identifier: BSD-2-Clause
// Shared by the tests of device/memory/: mappings, children, and what the kernel says of an
// address.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dirent.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "softhca/device/memory/address_space.h"
#include "softhca/device/memory/arena.h"
#include "softhca/device/memory/arena_internal.h"
#include "softhca/device/memory/fork.h"
#include "softhca/device/memory/sharing.h"
#include "softhca/device/memory/sharing_state.h"

namespace softhca::device::memory::test {

inline std::uint64_t address_of(const volatile void* at) {
    return reinterpret_cast<std::uint64_t>(at);
}

// Anonymous private memory unless said otherwise; inaccessible pages around it keep it one mapping.
class Memory {
public:
    explicit Memory(std::size_t pages, int protection = PROT_READ | PROT_WRITE,
                    int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1)
        : bytes_(pages * page_bytes()) {
        // Guards so large that it does not look like the stack of a thread.
        whole_ = ::mmap(nullptr, bytes_ + 2 * kGuard, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        at_ = ::mmap(static_cast<char*>(whole_) + kGuard, bytes_, protection, flags | MAP_FIXED, fd,
                     0);
    }
    ~Memory() { ::munmap(whole_, bytes_ + 2 * kGuard); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    bool mapped() const { return at_ != MAP_FAILED; }
    std::uint8_t* data() const { return static_cast<std::uint8_t*>(at_); }
    std::uint8_t* page(std::size_t i) const { return data() + i * page_bytes(); }
    std::uint64_t address() const { return address_of(at_); }
    std::size_t bytes() const { return bytes_; }
    std::size_t pages() const { return bytes_ / page_bytes(); }
    // Every byte a function of where it is and of the seed.
    void fill(unsigned seed) const {
        for (std::size_t i = 0; i < bytes_; ++i)
            data()[i] = value(i, seed);
    }
    bool filled(unsigned seed) const {
        for (std::size_t i = 0; i < bytes_; ++i)
            if (data()[i] != value(i, seed)) return false;
        return true;
    }
    static std::uint8_t value(std::size_t i, unsigned seed) {
        return static_cast<std::uint8_t>((i * 2654435761U + seed * 40503U) >> 13);
    }

private:
    static constexpr std::size_t kGuard = 1 << 20;
    std::size_t bytes_;
    void* whole_;
    void* at_;
};

inline Vma vma_at(std::uint64_t address) {
    AddressSpace space;
    Vma vma{};
    if (!space.at(address, &vma)) vma = {};
    space.close();
    return vma;
}

inline bool is_shared(const volatile void* at) {
    const Vma vma = vma_at(address_of(at));
    return vma.shared && vma.inode == arena_inode();
}

inline std::uint64_t resident_bytes(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 ? static_cast<std::uint64_t>(status.st_blocks) * 512 : 0;
}

inline int thread_count() {
    int count = 0;
    DIR* dir = opendir("/proc/self/task");
    while (const dirent* entry = readdir(dir))
        if (entry->d_name[0] != '.') ++count;
    closedir(dir);
    return count;
}

// What one registration of the layer above does.
inline void register_fork_handlers() {
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(atfork_prepare, atfork_parent, atfork_child); });
}

// Runs a function in a forked child; its expectations count here.
inline ::testing::AssertionResult in_child(const std::function<void()>& body) {
    register_fork_handlers();
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        body();
        std::fflush(nullptr);
        _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return ::testing::AssertionFailure() << "no child: " << strerror(errno);
    if (WIFSIGNALED(status))
        return ::testing::AssertionFailure() << "the child died of signal " << WTERMSIG(status);
    if (WEXITSTATUS(status) != 0)
        return ::testing::AssertionFailure() << "expectations failed in the child";
    return ::testing::AssertionSuccess();
}

// A child that serves as the other side: waits for go(), reports by done().
class Signal {
public:
    Signal() { EXPECT_EQ(::pipe(fds_), 0); }
    ~Signal() {
        ::close(fds_[0]);
        ::close(fds_[1]);
    }
    void send(char c = 'x') { EXPECT_EQ(::write(fds_[1], &c, 1), 1); }
    char wait() {
        char c = 0;
        EXPECT_EQ(::read(fds_[0], &c, 1), 1);
        return c;
    }

private:
    int fds_[2];
};

// Sanitizers have threads of their own, which write no memory of the tests; they start them with
// the first thread of the program.
inline int helper_threads() {
    static const int count = [] {
        std::thread([] {}).join();
        int threads = 0;
        for (int i = 0; i < 20; ++i) {  // a joined thread is not gone at once
            threads = thread_count();
            usleep(1000);
        }
        return threads - 1;
    }();
    return count;
}

// Waits until this is the only thread.
inline void wait_until_alone() {
    for (int i = 0; i < 2000 && thread_count() > 1 + helper_threads(); ++i)
        usleep(1000);
    EXPECT_EQ(thread_count(), 1 + helper_threads());
}

class SharingTest : public ::testing::Test {
protected:
    void SetUp() override {
        set_own_threads(helper_threads());
        Sharing::instance().guard.restrict(WriteGuard::Reach::kAllStores, WriteGuard::Means::kBest);
        Sharing::instance().set_policy(MemoryPolicy::kAuto);
    }
    void TearDown() override { SetUp(); }

    static void restrict(WriteGuard::Reach reach,
                         WriteGuard::Means means = WriteGuard::Means::kBest) {
        Sharing::instance().guard.restrict(reach, means);
    }
};

class MemorySharing : public SharingTest {};

inline constexpr Purpose kPurposes[] = {Purpose::kApplication, Purpose::kQueue};

inline int share(const volatile void* at, std::size_t length, Purpose purpose, Extents* out) {
    return memory::share(address_of(at), length, purpose, out);
}

}  // namespace softhca::device::memory::test
