// SPDX-License-Identifier: BSD-2-Clause
// Joining and leaving fabrics: what a join must not touch, the word by which a process owns shared
// locks, and when another process takes such a lock over.
#include "softhca/device/fabric.h"

#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "softhca/device/epoch.h"
#include "softhca/device/liveness.h"

namespace softhca::device {
namespace {

// A directory of its own for the fabrics of this process. The options are read once, so all cases
// share it.
const std::string& base() {
    static const std::string path = [] {
        char name[] = "/tmp/softhca-fabric-test-XXXXXX";
        const char* made = mkdtemp(name);
        setenv("SOFTHCA_DIRECTORY", made ? made : "/nowhere", 1);
        return std::string(made ? made : "");
    }();
    return path;
}

class FabricJoin : public testing::Test {
protected:
    void SetUp() override { ASSERT_FALSE(base().empty()); }
    void TearDown() override {
        if (Fabric* fabric = Fabric::current()) fabric->leave();
        std::filesystem::remove_all(directory());
    }
    static std::string directory() { return base() + "/softhca-" + std::to_string(geteuid()); }
};

// A file that is not a segment of this version, as long as the object exists in use by "another
// process": an open file description of its own.
class ForeignFabric {
public:
    ForeignFabric(const std::string& directory, const std::string& name) {
        mkdir(directory.c_str(), 0700);
        fd_ = open((directory + "/" + name + ".fabric").c_str(), O_RDWR | O_CREAT, 0600);
        struct flock lock = liveness_lock(0, 1);
        good_ = fd_ >= 0 && ftruncate(fd_, 4096) == 0 && fcntl(fd_, F_OFD_SETLK, &lock) == 0;
    }
    ~ForeignFabric() { close(fd_); }
    bool good() const { return good_; }

private:
    int fd_ = -1;
    bool good_ = false;
};

TEST_F(FabricJoin, AFailedJoinTouchesNothingOfTheFabricThatWasLeft) {
    Fabric* first = Fabric::attach("left");
    ASSERT_NE(first, nullptr);
    Process& slot = first->self();
    first->leave();
    ASSERT_EQ(Fabric::current(), nullptr);
    slot.state.store(kLive);  // another process has taken the slot
    const ForeignFabric foreign(directory(), "other");
    ASSERT_TRUE(foreign.good());
    testing::internal::CaptureStderr();
    EXPECT_EQ(Fabric::attach("other"), nullptr);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("another version of softhca"), std::string::npos) << said;
    EXPECT_EQ(slot.state.load(), kLive);
}

TEST_F(FabricJoin, AProcessCanJoinAgainAfterLeaving) {
    Fabric* first = Fabric::attach("first");
    ASSERT_NE(first, nullptr);
    first->leave();
    Fabric* second = Fabric::attach("second");
    ASSERT_NE(second, nullptr);
    EXPECT_EQ(Fabric::current(), second);
    EXPECT_EQ(second->self().state.load(), kLive);
    EXPECT_TRUE(second->alive(second->slot()));
}

TEST_F(FabricJoin, WithoutAddressSpaceItFailsAndSaysSo) {
    const pid_t child = fork();
    if (child == 0) {
        Fabric::forget_after_fork();
        epoch::forget_after_fork();
        std::size_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        const rlim_t used = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
        const rlimit limit{used + sizeof(Segment) / 2, RLIM_INFINITY};
        if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
        testing::internal::CaptureStderr();
        if (Fabric::attach("narrow") != nullptr) _exit(3);
        const std::string said = testing::internal::GetCapturedStderr();
        _exit(said.find("cannot map the fabric") != std::string::npos ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(FabricJoin, NoSlotBeyondTheTableIsAlive) {
    Fabric* fabric = Fabric::attach("slots");
    ASSERT_NE(fabric, nullptr);
    EXPECT_FALSE(fabric->alive(kMaxProcesses));
    EXPECT_FALSE(fabric->alive(kNone));
    EXPECT_FALSE(fabric->alive(kMaxProcesses, 1));
}

TEST_F(FabricJoin, TheWordOfALockOwnerIsNeverZero) {
    Fabric* fabric = Fabric::attach("full");
    ASSERT_NE(fabric, nullptr);
    Segment& segment = fabric->segment();
    constexpr std::uint32_t kLast = kMaxProcesses - 1;
    for (std::uint32_t slot = 0; slot < kLast; ++slot)
        segment.processes[slot].state.store(kLive);
    // The next generation of the last slot is the one whose word would be that of a free lock.
    constexpr std::uint32_t kBefore = (1u << 22) - 2;
    segment.processes[kLast].generation.store(kBefore);
    const pid_t child = fork();
    if (child == 0) {
        Fabric::forget_after_fork();
        epoch::forget_after_fork();
        Fabric* mine = Fabric::attach("full");
        if (!mine || mine->slot() != kLast) _exit(2);
        _exit(g_lock_owner != 0 && mine->self().generation.load() == kBefore + 2 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    for (std::uint32_t slot = 0; slot < kLast; ++slot)
        if (slot != fabric->slot()) segment.processes[slot].state.store(kFree);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A lock in memory that a child shares.
SharedLock& shared_lock() {
    void* at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    auto* lock = new (at) SharedLock;
    lock->reset();
    return *lock;
}

// A waiter takes a lock over only from a process that has died.
TEST_F(FabricJoin, ALockIsKeptWhileItsOwnerLives) {
    Fabric* fabric = Fabric::attach("owner");
    ASSERT_NE(fabric, nullptr);
    SharedLock& lock = shared_lock();
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        Fabric::forget_after_fork();
        epoch::forget_after_fork();
        const bool locked = Fabric::attach("owner") && lock.lock();
        if (write(ready[1], &locked, 1) == 1) pause();
        _exit(1);
    }
    bool locked = false;
    EXPECT_EQ(read(ready[0], &locked, 1), 1);
    EXPECT_TRUE(locked) << "by the child";
    EXPECT_FALSE(lock.try_lock());
    EXPECT_FALSE(lock.try_lock_briefly()) << "the owner lives";
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_FALSE(lock.try_lock()) << "it looks at no owner";
    EXPECT_TRUE(lock.try_lock_briefly()) << "the owner is dead";
    lock.unlock();
    EXPECT_TRUE(lock.try_lock());
    close(ready[0]);
    close(ready[1]);
    munmap(&lock, 4096);
}

// The slot of a dead owner may have another process: the generation in the word tells them apart.
TEST_F(FabricJoin, ALockOfAnEarlierProcessInALiveSlotIsTakenOver) {
    Fabric* fabric = Fabric::attach("earlier");
    ASSERT_NE(fabric, nullptr);
    SharedLock& lock = shared_lock();
    const std::uint32_t generation = fabric->self().generation.load();
    const std::uint32_t own = g_lock_owner;
    ASSERT_EQ(own, lock_word(fabric->slot(), generation));
    EXPECT_TRUE(lock.try_lock());
    EXPECT_FALSE(lock.try_lock_briefly()) << "another thread of this process has it";
    lock.unlock();
    g_lock_owner = lock_word(fabric->slot(), generation - 1);
    EXPECT_TRUE(lock.try_lock());
    g_lock_owner = own;
    EXPECT_TRUE(lock.try_lock_briefly());
    munmap(&lock, 4096);
}

// More threads than there are records: those without one share the last, one at a time, and what is
// destroyed waits for them, too.
TEST_F(FabricJoin, AThreadWithoutARecordIsWaitedFor) {
    Fabric* fabric = Fabric::attach("threads");
    ASSERT_NE(fabric, nullptr);
    std::barrier all_have_tried(kMaxThreads + 1);
    std::barrier all_may_end(kMaxThreads + 1);
    std::atomic<unsigned> without{0};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kMaxThreads; ++i)
        threads.emplace_back([&] {
            without += epoch::record() == nullptr;
            all_have_tried.arrive_and_wait();
            all_may_end.arrive_and_wait();
        });
    all_have_tried.arrive_and_wait();
    EXPECT_GE(without.load(), 1u);
    std::atomic<unsigned> inside{0}, most_inside{0}, left{0};
    std::barrier one_is_inside(2);
    const auto stay = [&](unsigned number) {
        const epoch::Section section;
        const unsigned now = ++inside;
        if (now > most_inside) most_inside = now;
        if (number == 0) one_is_inside.arrive_and_wait();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        --inside;
        ++left;
    };
    std::thread first(stay, 0);
    one_is_inside.arrive_and_wait();
    std::thread second(stay, 1);
    EXPECT_TRUE(epoch::synchronize_own());
    EXPECT_GE(left.load(), 1u) << "the thread inside was waited for";
    first.join();
    second.join();
    EXPECT_EQ(most_inside.load(), 1u) << "two threads were inside by the same record";
    EXPECT_TRUE(epoch::synchronize_own());
    all_may_end.arrive_and_wait();
    for (std::thread& thread : threads)
        thread.join();
}

}  // namespace
}  // namespace softhca::device
