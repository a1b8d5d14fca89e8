// SPDX-License-Identifier: BSD-2-Clause
// The arena: allocation, zeroing, seals, and mapping by peers.

#include "softhca/device/memory/arena.h"

#include <cerrno>
#include <map>
#include <random>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "tests/unit/memory_support.h"

namespace softhca::device::memory::test {
namespace {

TEST(MemoryArena, OpensOnce) {
    const int fd = arena_open();
    ASSERT_GE(fd, 0);
    EXPECT_EQ(arena_open(), fd);
    EXPECT_EQ(arena_fd(), fd);
    EXPECT_GE(fd, 640);
    EXPECT_TRUE(owns_fd(fd));
    EXPECT_FALSE(owns_fd(0));
    EXPECT_FALSE(owns_fd(-1));
    EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    struct stat status;
    ASSERT_EQ(fstat(fd, &status), 0);
    EXPECT_EQ(status.st_ino, arena_inode());
    EXPECT_EQ(static_cast<std::uint64_t>(status.st_size), arena_bytes());
    EXPECT_NE(ftruncate(fd, 4096), 0);
    EXPECT_NE(ftruncate(fd, 1LL << 40), 0);
    EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(MemoryArena, GivesZeroedPages) {
    ASSERT_GE(arena_open(), 0);
    const std::uint64_t first = arena_allocate(3 * page_bytes() - 5);
    ASSERT_NE(first, kNoOffset);
    EXPECT_EQ(first % page_bytes(), 0u);
    memset(arena_base() + first, 0xff, 3 * page_bytes());
    arena_free(first, 3 * page_bytes());
    const std::uint64_t again = arena_allocate(3 * page_bytes());
    EXPECT_EQ(again, first);  // first fit
    for (std::size_t i = 0; i < 3 * page_bytes(); ++i)
        ASSERT_EQ(arena_base()[again + i], std::byte{0});
    arena_free(again, 3 * page_bytes());
    EXPECT_EQ(arena_allocate(0), kNoOffset);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(arena_allocate(kArenaBytes + 1), kNoOffset);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(arena_allocate(~0ULL), kNoOffset);
}

TEST(MemoryArena, GivesMemoryBackToTheSystem) {
    const int fd = arena_open();
    const std::uint64_t before = resident_bytes(fd);
    const std::uint64_t offset = arena_allocate(8 << 20);
    EXPECT_EQ(resident_bytes(fd), before);
    memset(arena_base() + offset, 1, 8 << 20);
    EXPECT_EQ(resident_bytes(fd), before + (8 << 20));
    arena_free(offset, 8 << 20);
    EXPECT_EQ(resident_bytes(fd), before);
}

TEST(MemoryArena, NeverGivesPagesTwice) {
    ASSERT_GE(arena_open(), 0);
    std::mt19937 random(2);
    std::map<std::uint64_t, std::uint64_t> taken;
    for (int step = 0; step < 3000; ++step) {
        if (taken.size() < 60 || random() % 2) {
            const std::uint64_t length = (1 + random() % 40) * page_bytes();
            const std::uint64_t offset = arena_allocate(length);
            ASSERT_NE(offset, kNoOffset);
            const auto next = taken.upper_bound(offset);
            if (next != taken.end()) {
                ASSERT_LE(offset + length, next->first);
            }
            if (next != taken.begin()) {
                ASSERT_LE(std::prev(next)->first + std::prev(next)->second, offset);
            }
            taken.emplace(offset, length);
        } else {
            const auto chosen =
                std::next(taken.begin(), static_cast<long>(random() % taken.size()));
            const std::uint64_t pages = chosen->second / page_bytes();
            if (pages > 2 && random() % 2) {  // give the middle back
                arena_free(chosen->first + page_bytes(), (pages - 2) * page_bytes());
                taken.emplace(chosen->first + (pages - 1) * page_bytes(), page_bytes());
                chosen->second = page_bytes();
            } else {
                arena_free(chosen->first, chosen->second);
                taken.erase(chosen);
            }
        }
    }
    for (const auto& [offset, length] : taken)
        arena_free(offset, length);
}

TEST(MemoryArena, PeersSeeEachOthersStores) {
    const int fd = arena_open();
    const std::uint64_t inode = arena_inode();
    const std::uint64_t offset = arena_allocate(page_bytes());
    auto* const word = reinterpret_cast<volatile std::uint64_t*>(arena_base() + offset);
    *word = 0x1234;
    const pid_t parent = getpid();
    EXPECT_TRUE(in_child([&] {
        EXPECT_EQ(arena_base(), nullptr);  // of its own it has none yet
        std::uint64_t bytes = 0;
        std::byte* const peer = arena_map_peer(parent, fd, inode, &bytes);
        ASSERT_NE(peer, nullptr) << strerror(errno);
        auto* const theirs = reinterpret_cast<volatile std::uint64_t*>(peer + offset);
        EXPECT_EQ(*theirs, 0x1234u);
        *theirs = 0x5678;
        // An arena of its own is a different one.
        EXPECT_GE(arena_open(), 0);
        EXPECT_NE(arena_inode(), inode);
        const std::uint64_t own = arena_allocate(page_bytes());
        ASSERT_NE(own, kNoOffset);
        arena_base()[own] = std::byte{1};
        arena_unmap_peer(peer);
        arena_unmap_peer(peer);  // unknown by now: nothing
    }));
    EXPECT_EQ(*word, 0x5678u);
    arena_free(offset, page_bytes());
}

TEST(MemoryArena, RefusesWhatIsNotAnArena) {
    const int fd = arena_open();
    const pid_t self = getpid();
    errno = 0;
    EXPECT_EQ(arena_map_peer(self, fd, arena_inode() + 1), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(arena_map_peer(self, 100000, arena_inode()), nullptr);
    EXPECT_EQ(errno, ENOENT);
    // Not sealed: whoever made it could take pages away while we read them.
    const int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(ftruncate(loose, 1 << 20), 0);
    struct stat status;
    ASSERT_EQ(fstat(loose, &status), 0);
    EXPECT_EQ(arena_map_peer(self, loose, status.st_ino), nullptr);
    EXPECT_EQ(errno, EINVAL);
    close(loose);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(fstat(ends[0], &status), 0);
    EXPECT_EQ(arena_map_peer(self, ends[0], status.st_ino), nullptr);
    EXPECT_EQ(errno, EINVAL);
    close(ends[0]);
    close(ends[1]);
    // Itself is a peer like any other.
    std::uint64_t bytes = 0;
    std::byte* const own = arena_map_peer(self, fd, arena_inode(), &bytes);
    ASSERT_NE(own, nullptr);
    EXPECT_EQ(bytes, arena_bytes());
    EXPECT_NE(own, arena_base());
    arena_unmap_peer(own);
}

TEST(MemoryArena, RefusesOtherUsers) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
    const int fd = arena_open();
    const std::uint64_t inode = arena_inode();
    const pid_t parent = getpid();
    EXPECT_TRUE(in_child([&] {
        ASSERT_EQ(seteuid(65534), 0);
        EXPECT_EQ(arena_map_peer(parent, fd, inode), nullptr);
        EXPECT_EQ(errno, EACCES);
    }));
}

TEST(MemoryArena, FitsTheLimitsOfTheProcess) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer's own address space is beyond any limit";
#else
    EXPECT_TRUE(in_child([] {
        const rlimit space{4ULL << 30, RLIM_INFINITY};
        ASSERT_EQ(setrlimit(RLIMIT_AS, &space), 0);
        ASSERT_GE(arena_open(), 0) << strerror(errno);
        EXPECT_GE(arena_bytes(), 1ULL << 30);
        EXPECT_LE(arena_bytes(), 4ULL << 30);
        EXPECT_EQ(arena_allocate(arena_bytes() + 1), kNoOffset);
        const std::uint64_t all = arena_allocate(arena_bytes());
        EXPECT_EQ(all, 0u);
        EXPECT_EQ(arena_allocate(1), kNoOffset);
        EXPECT_EQ(errno, ENOMEM);
        std::uint64_t bytes = 0;
        EXPECT_EQ(arena_map_peer(getpid(), arena_fd(), arena_inode(), &bytes), nullptr);
        EXPECT_EQ(errno, ENOMEM);
    }));
    EXPECT_TRUE(in_child([] {
        const rlimit size{100 << 20, RLIM_INFINITY};
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &size), 0);
        ASSERT_GE(arena_open(), 0) << strerror(errno);
        EXPECT_EQ(arena_bytes(), 100u << 20);
    }));
    EXPECT_TRUE(in_child([] {
        const rlimit size{1 << 20, RLIM_INFINITY};
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &size), 0);
        EXPECT_EQ(arena_open(), -1);
        EXPECT_EQ(errno, EFBIG);
        EXPECT_EQ(arena_base(), nullptr);
    }));
    EXPECT_TRUE(in_child([] {
        const rlimit files{40, 40};
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
        ASSERT_GE(arena_open(), 0) << strerror(errno);
        EXPECT_LT(arena_fd(), 40);
    }));
#endif
}

TEST(MemoryArena, IsNotFilledByMlockall) {
    const std::uint64_t all = arena_open() >= 0 ? arena_bytes() : 0;
    ASSERT_GT(all, 0u);
    EXPECT_TRUE(in_child([] {
        if (mlockall(MCL_FUTURE) != 0) return;  // not allowed to: nothing to see
        if (arena_open() >= 0)
            EXPECT_EQ(resident_bytes(arena_fd()), 0u);
        else  // any mapping counts against the limit of locked memory
            EXPECT_EQ(errno, EAGAIN);
    }));
}

}  // namespace
}  // namespace softhca::device::memory::test
