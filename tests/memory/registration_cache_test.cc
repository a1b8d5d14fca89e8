// SPDX-License-Identifier: BSD-2-Clause
// Memory that stays registered, and programs whose threads unmap it and map it again at the same
// time. A loaded machine may hold up the thread that reads of changes. So does this file's poll(),
// with which that thread waits.
#include "memory/registration_cache.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "memory/mapping.h"
#include "protocol/reuse/reuse.h"
#include "tests/memory/registrations.h"
#include "tests/softhca/verbs_fixture.h"
#include "tests/support/mapped_memory.h"

namespace heddle::memory::test {
namespace {

// Closed, it stops the monitor's thread between the kernel's "there is an event" and its read.
class Gate {
public:
    static Gate& of_the_monitor() {
        static auto& gate = *new Gate;
        return gate;
    }
    void close() {
        const std::scoped_lock lock(mutex_);
        open_ = false;
    }
    void open() {
        {
            const std::scoped_lock lock(mutex_);
            open_ = true;
        }
        opened_.notify_all();
    }
    void pass() {
        std::unique_lock lock(mutex_);
        opened_.wait(lock, [this] { return open_; });
    }

private:
    std::mutex mutex_;
    std::condition_variable opened_;
    bool open_ = true;
};

}  // namespace
}  // namespace heddle::memory::test

// poll(), by its name for the linker: <poll.h> may define an inline one (_FORTIFY_SOURCE).
extern "C" int poll_of_test(pollfd* files, nfds_t count, int milliseconds) __asm__("poll");
extern "C" int poll_of_test(pollfd* files, nfds_t count, int milliseconds) {
    timespec limit{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
    const long result = syscall(SYS_ppoll, files, count, milliseconds < 0 ? nullptr : &limit,
                                nullptr, std::size_t{0});
    char name[16] = {};
    if (result > 0 && pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
        std::strcmp(name, "heddle-memory") == 0)
        heddle::memory::test::Gate::of_the_monitor().pass();
    return static_cast<int>(result);
}

namespace heddle::memory::test {
namespace {

using heddle::test::deregistrations;
using heddle::test::map;
using heddle::test::map_some;
using heddle::test::registrations_to_refuse;
using heddle::test::try_to_map;
using softhca::test::Pair;
using softhca::test::Work;

constexpr std::size_t kBytes = 64 << 10;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

class RegistrationCacheTest : public testing::Test {
protected:
    RegistrationCacheTest()
        : monitor(std::make_shared<AddressMonitor>()),
          cache(monitor, pair.a.pd.get(), kBytes * 64) {}

    // One operation, which delivers what the program sees. Did it find the memory registered?
    bool hits(const void* at, std::size_t bytes = kBytes) {
        const std::uint64_t before = cache.counts().hits;
        RegistrationCache::Region* const region = cache.get(at, bytes, kAccess);
        EXPECT_NE(region, nullptr);
        if (region == nullptr) return false;
        Work work = softhca::test::write_of(pair.a, bytes);
        work.sges = {{reinterpret_cast<std::uintptr_t>(at), static_cast<std::uint32_t>(bytes),
                      region->local_key()}};
        EXPECT_TRUE(pair.a.run(work));
        EXPECT_EQ(std::memcmp(pair.b.memory->data(), at, bytes), 0) << "of other pages";
        cache.put(region);
        return cache.counts().hits != before;
    }
    // Is it kept from its first use on?
    bool is_kept(const void* at) {
        EXPECT_FALSE(hits(at));
        return hits(at);
    }
    // Another thread unmaps it, and is not through with that, and this one maps new memory there;
    // look() at that; then the other goes on.
    template <class Look>
    void map_again_meanwhile(std::byte* at, const Look& look) {
        Gate::of_the_monitor().close();
        std::atomic<bool> through{false};
        std::thread other([&] {
            EXPECT_EQ(munmap(at, kBytes), 0);
            through = true;
        });
        while (try_to_map(at, kBytes, MAP_FIXED_NOREPLACE) != at)
            std::this_thread::yield();
        std::memset(at, 1, kBytes);
        look();
        EXPECT_FALSE(through);
        Gate::of_the_monitor().open();
        other.join();
    }

    Pair pair;
    const std::shared_ptr<AddressMonitor> monitor;
    RegistrationCache cache;
};

TEST_F(RegistrationCacheTest, FindsNothingWhileAnotherThreadUnmapsIt) {
    std::byte* const at = map_some(kBytes);
    std::memset(at, 0, kBytes);
    ASSERT_TRUE(is_kept(at));
    map_again_meanwhile(at, [&] { EXPECT_FALSE(hits(at)); });
    EXPECT_EQ(cache.counts().invalidations, 1U);
    // The new memory is kept as the old was.
    hits(at);
    EXPECT_TRUE(hits(at));
    munmap(at, kBytes);
}

TEST_F(RegistrationCacheTest, ReuseFindsNothingWhileAnotherThreadUnmapsIt) {
    protocol::Reuse reuse(cache, kAccess, 1);
    std::byte* const at = map_some(kBytes);
    std::memset(at, 0, kBytes);
    const auto use = [&] { return reuse.use(at, 4096, [](std::size_t) { return 1U; }) != nullptr; };
    for (int i = 0; i < 8 && !use(); ++i) {
    }
    ASSERT_TRUE(use());
    map_again_meanwhile(at, [&] { EXPECT_FALSE(use()); });
    munmap(at, kBytes);
}

TEST_F(RegistrationCacheTest, KeepsOnlyMemoryOfWhichTheKernelTellsAll) {
    std::byte* const plain = map_some(kBytes);
    std::memset(plain, 0, kBytes);
    EXPECT_TRUE(is_kept(plain));
    munmap(plain, kBytes);

    const int segment = shmget(IPC_PRIVATE, kBytes, IPC_CREAT | 0600);
    ASSERT_GE(segment, 0);
    void* const attached = shmat(segment, nullptr, 0);
    shmctl(segment, IPC_RMID, nullptr);
    EXPECT_FALSE(is_kept(attached)) << "shmdt() is not told of";
    shmdt(attached);

    const int file = memfd_create("heddle-test", MFD_CLOEXEC);
    ASSERT_GE(file, 0);
    ASSERT_EQ(ftruncate(file, kBytes), 0);
    for (const int sharing : {MAP_SHARED, MAP_PRIVATE}) {
        void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, sharing, file, 0);
        ASSERT_NE(mapped, MAP_FAILED);
        EXPECT_FALSE(is_kept(mapped)) << "ftruncate() is not told of";
        munmap(mapped, kBytes);
    }
    close(file);

    void* const shared =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    EXPECT_FALSE(is_kept(shared)) << "a child may throw its pages away";
    munmap(shared, kBytes);
}

TEST_F(RegistrationCacheTest, EndsWhatWasUnmappedWithoutAnotherCall) {
    constexpr unsigned kRegions = 3;
    std::byte* const at = map_some(kRegions * kBytes);
    std::memset(at, 0, kRegions * kBytes);
    for (unsigned i = 0; i < kRegions; ++i)
        ASSERT_TRUE(is_kept(at + i * kBytes));
    // Twice, as the thread that ends them sleeps again.
    for (const unsigned regions : {1U, kRegions - 1}) {
        const unsigned before = deregistrations;
        munmap(regions == 1 ? at : at + kBytes, regions * kBytes);
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (deregistrations - before < regions && std::chrono::steady_clock::now() < limit)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        EXPECT_EQ(deregistrations - before, regions);
    }
    EXPECT_EQ(cache.counts().invalidations, kRegions);
}

TEST_F(RegistrationCacheTest, EndsNothingOfACacheThatIsGone) {
    const unsigned before = deregistrations;
    // Around the time at which the thread looks.
    for (const int milliseconds : {0, -2, -1, 0, 1}) {
        std::byte* const at = map_some(kBytes);
        std::memset(at, 0, kBytes);
        {
            RegistrationCache brief(monitor, pair.a.pd.get(), kBytes);
            brief.put(brief.get(at, kBytes, kAccess));
            ASSERT_EQ(brief.counts().regions, 1U);
            munmap(at, kBytes);
            std::this_thread::sleep_for(
                std::chrono::milliseconds(AddressMonitor::kEndingDelayMs + milliseconds));
        }
    }
    EXPECT_EQ(deregistrations - before, 5U);
}

TEST_F(RegistrationCacheTest, WhatWasUnmappedMakesRoomForAnother) {
    std::byte* const at = map_some(2 * kBytes);
    std::memset(at, 0, 2 * kBytes);
    ASSERT_TRUE(is_kept(at));
    munmap(at, kBytes);
    registrations_to_refuse = 1;
    ibv_mr* const mr = cache.reg_mr(reinterpret_cast<std::uintptr_t>(at + kBytes), kBytes, kAccess);
    EXPECT_NE(mr, nullptr) << "the device had room after the deregistration";
    EXPECT_EQ(registrations_to_refuse, 0U);
    if (mr != nullptr) ibv_dereg_mr(mr);
    munmap(at + kBytes, kBytes);
}

// What a peer gets that reads 64 bytes there.
ibv_wc_status peer_reads(Pair& pair, const std::byte* at, std::uint32_t key) {
    Work work;
    work.opcode = IBV_WR_RDMA_READ;
    work.sges = {pair.b.memory->sge(0, 64)};
    work.remote = reinterpret_cast<std::uintptr_t>(at);
    work.rkey = key;
    EXPECT_EQ(pair.b.post(work), 0);
    return pair.b.wait_send().status;
}

// Shared memory, which is registered for each operation.
class KeysOfOneOperation : public RegistrationCacheTest {
protected:
    KeysOfOneOperation()
        : memory_(static_cast<std::byte*>(
              mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
        std::memset(memory_, 0, kBytes);
    }
    ~KeysOfOneOperation() override { munmap(memory_, kBytes); }
    RegistrationCache::Region* next_use() {
        return cache.get(buffer(), 1024, IBV_ACCESS_REMOTE_READ);
    }
    std::byte* buffer() const { return memory_ + 512; }

private:
    std::byte* const memory_;
};

TEST_F(KeysOfOneOperation, EndWithIt) {
    for (int use = 0; use < 3; ++use) {
        RegistrationCache::Region* const region = next_use();
        ASSERT_NE(region, nullptr);
        const std::uint32_t key = region->remote_key();
        EXPECT_EQ(peer_reads(pair, buffer(), key), IBV_WC_SUCCESS);
        cache.put(region);
        if (use == 2) {  // the connection ends with it
            EXPECT_EQ(peer_reads(pair, buffer(), key), IBV_WC_REM_ACCESS_ERR);
        }
    }
    EXPECT_EQ(cache.counts().regions, 0U);
}

// Memory that can stay would be registered by whole pages.
TEST_F(KeysOfOneOperation, NameItsBytesAlone) {
    cache.put(next_use());
    RegistrationCache::Region* const region = next_use();
    ASSERT_NE(region, nullptr);
    EXPECT_EQ(peer_reads(pair, buffer() + 1024 - 64, region->remote_key()), IBV_WC_SUCCESS);
    EXPECT_EQ(peer_reads(pair, buffer() - 64, region->remote_key()), IBV_WC_REM_ACCESS_ERR);
    cache.put(region);
}

// What a buffer is kept for later adds nothing to what its keys allowed before.
TEST_F(RegistrationCacheTest, KeptForLocalUseItCannotBeRead) {
    std::byte* const at = map_some(kBytes);
    std::memset(at, 0, kBytes);
    ASSERT_TRUE(is_kept(at));  // kAccess: peers may write
    RegistrationCache::Region* const written = cache.get(at, kBytes, kAccess);
    RegistrationCache::Region* const read = cache.get(at, kBytes, IBV_ACCESS_REMOTE_READ);
    RegistrationCache::Region* const local = cache.get(at, kBytes, 0);
    ASSERT_TRUE(written != nullptr && read != nullptr && local != nullptr);
    EXPECT_NE(read->remote_key(), written->remote_key());
    EXPECT_EQ(peer_reads(pair, at, read->remote_key()), IBV_WC_SUCCESS);
    EXPECT_EQ(peer_reads(pair, at, written->remote_key()), IBV_WC_REM_ACCESS_ERR);
    for (RegistrationCache::Region* const region : {written, read, local})
        cache.put(region);
    munmap(at, kBytes);
}

TEST_F(RegistrationCacheTest, TellsOnceThatNothingIsKept) {
    const long file = syscall(SYS_userfaultfd, O_CLOEXEC | 1);  // UFFD_USER_MODE_ONLY
    if (file >= 0) close(static_cast<int>(file));
    const bool refused = file < 0;
    std::vector<std::string> lines;
    RegistrationCache telling(std::make_shared<AddressMonitor>(), pair.a.pd.get(), kBytes * 64,
                              [&](const std::string& why) { lines.push_back(why); });
    std::byte* const at = map_some(2 * kBytes);
    for (int i = 0; i < 6; ++i) {
        RegistrationCache::Region* const region = telling.get(at + i % 2 * kBytes, kBytes, kAccess);
        ASSERT_NE(region, nullptr);
        telling.put(region);
    }
    EXPECT_EQ(telling.counts().kept, refused ? 0U : 2U);
    ASSERT_EQ(lines.size(), refused ? 1U : 0U);
    if (refused) {
        EXPECT_NE(lines[0].find("userfaultfd"), std::string::npos) << lines[0];
    }
    munmap(at, 2 * kBytes);
}

TEST_F(RegistrationCacheTest, BothWaysOfAskingTheKernelAgree) {
    std::byte* const plain = map_some(3 * kBytes);
    const auto begin = reinterpret_cast<std::uintptr_t>(plain);
    const auto agree = [&](std::uintptr_t from, std::uintptr_t to, bool expected) {
        EXPECT_EQ(is_private_anonymous(from, to), expected);
        EXPECT_EQ(detail::is_private_anonymous_by_text(from, to), expected);
    };
    agree(begin, begin + 3 * kBytes, true);
    // Two mappings, as their protection differs.
    ASSERT_EQ(mprotect(plain + kBytes, kBytes, PROT_READ), 0);
    agree(begin, begin + 3 * kBytes, true);
    ASSERT_NE(
        mmap(plain + kBytes, kBytes, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        MAP_FAILED);
    agree(begin, begin + 3 * kBytes, false);
    agree(begin, begin + kBytes, true);
    agree(begin + 2 * kBytes, begin + 3 * kBytes, true);
    munmap(plain + kBytes, kBytes);
    agree(begin, begin + 2 * kBytes, false);
    agree(reinterpret_cast<std::uintptr_t>(&kAccess),
          reinterpret_cast<std::uintptr_t>(&kAccess) + 1, false);
    munmap(plain, kBytes);
    munmap(plain + 2 * kBytes, kBytes);
}

}  // namespace
}  // namespace heddle::memory::test
