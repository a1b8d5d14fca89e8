// SPDX-License-Identifier: BSD-2-Clause

// share() and release() in a process without other threads: content, counting, what is left alone,
// and what the kernel may lack.

#include "softhca/device/memory/sharing.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "tests/unit/memory_support.h"

namespace softhca::device::memory::test {
namespace {

TEST_F(MemorySharing, KeepsContentBothWays) {
    for (const Purpose purpose : kPurposes) {
        Memory memory(20);
        memory.fill(1);
        Extents extents;
        ASSERT_EQ(share(memory.data(), memory.bytes(), purpose, &extents), 0);
        EXPECT_TRUE(extents.complete);
        ASSERT_EQ(extents.count, 1u);
        EXPECT_EQ(extents.address, memory.address());
        EXPECT_EQ(extents.length, memory.bytes());
        EXPECT_EQ(extents.extent[0].address, memory.address());
        EXPECT_EQ(extents.extent[0].length, memory.bytes());
        EXPECT_TRUE(is_shared(memory.data()));
        EXPECT_TRUE(memory.filled(1));
        std::byte* const window = arena_base() + extents.extent[0].offset;
        EXPECT_EQ(memcmp(window, memory.data(), memory.bytes()), 0);
        memory.fill(2);
        EXPECT_EQ(memcmp(window, memory.data(), memory.bytes()), 0);
        window[5] = std::byte{77};
        EXPECT_EQ(memory.data()[5], 77);
        memory.data()[5] = Memory::value(5, 2);
        release(extents);
        EXPECT_FALSE(is_shared(memory.data()));
        EXPECT_TRUE(vma_at(memory.address()).plain());
        EXPECT_TRUE(memory.filled(2));
        EXPECT_EQ(sharing_counters().shared_bytes, 0u);
    }
}

TEST_F(MemorySharing, RoundsToPages) {
    Memory memory(4);
    memory.fill(1);
    Extents extents;
    ASSERT_EQ(share(memory.page(1) + 100, page_bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_TRUE(extents.complete);
    ASSERT_EQ(extents.count, 1u);
    EXPECT_EQ(extents.extent[0].address, address_of(memory.page(1)));
    EXPECT_EQ(extents.extent[0].length, 2 * page_bytes());
    EXPECT_FALSE(is_shared(memory.page(0)));
    EXPECT_TRUE(is_shared(memory.page(2)));
    EXPECT_FALSE(is_shared(memory.page(3)));
    EXPECT_TRUE(memory.filled(1));
    release(extents);
    EXPECT_TRUE(memory.filled(1));
}

TEST_F(MemorySharing, RefusesNonsense) {
    Memory memory(3);
    Extents extents;
    EXPECT_EQ(share(memory.data(), 0, Purpose::kQueue, &extents), EINVAL);
    EXPECT_EQ(memory::share(memory.address(), ~0ULL, Purpose::kQueue, &extents), EINVAL);
    EXPECT_EQ(memory::share(~0ULL - 5, 3, Purpose::kQueue, &extents), EINVAL);
    EXPECT_EQ(memory::share(0, 10, Purpose::kQueue, &extents), EFAULT);
    ASSERT_EQ(munmap(memory.page(1), page_bytes()), 0);
    EXPECT_EQ(share(memory.data(), memory.bytes(), Purpose::kQueue, &extents), EFAULT);
    EXPECT_EQ(extents.count, 0u);
    EXPECT_FALSE(extents.complete);
    EXPECT_FALSE(is_shared(memory.page(0)));
    EXPECT_EQ(share(memory.page(0), page_bytes() + 1, Purpose::kQueue, &extents), EFAULT);
    EXPECT_EQ(share(memory.page(2), page_bytes(), Purpose::kQueue, &extents), 0);
    release(extents);
    release(extents);    // twice: nothing
    release(Extents{});  // none: nothing
}

TEST_F(MemorySharing, CountsUsersOfPages) {
    Memory memory(10);
    memory.fill(1);
    Extents a, b, c;
    ASSERT_EQ(share(memory.page(2), 4 * page_bytes(), Purpose::kApplication, &a), 0);
    ASSERT_EQ(share(memory.page(4), 4 * page_bytes(), Purpose::kApplication, &b), 0);
    ASSERT_EQ(share(memory.page(0), memory.bytes(), Purpose::kApplication, &c), 0);
    EXPECT_TRUE(a.complete && b.complete && c.complete);
    EXPECT_EQ(a.count, 1u);
    EXPECT_EQ(b.count, 1u);  // its pages follow those of a in the arena, too
    EXPECT_EQ(b.extent[0].offset, a.extent[0].offset + 2 * page_bytes());
    release(a);
    for (std::size_t i = 0; i < 10; ++i)
        EXPECT_TRUE(is_shared(memory.page(i))) << i;
    release(c);
    for (std::size_t i = 0; i < 10; ++i)
        EXPECT_EQ(is_shared(memory.page(i)), i >= 4 && i < 8) << i;
    release(b);
    for (std::size_t i = 0; i < 10; ++i)
        EXPECT_FALSE(is_shared(memory.page(i))) << i;
    EXPECT_TRUE(memory.filled(1));
}

TEST_F(MemorySharing, UntouchedPagesCostNothing) {
    using Reach = WriteGuard::Reach;
    using Means = WriteGuard::Means;
    struct Case {
        Reach reach;
        Means means;
        int own_threads;  // -1: it seems to have others
    };
    for (const Case& how :
         {Case{Reach::kAllStores, Means::kBest, 0}, Case{Reach::kNothing, Means::kNone, 0},
          Case{Reach::kAllStores, Means::kWriteProtect, -1},
          Case{Reach::kAllStores, Means::kPopulatedWriteProtect, -1}}) {
        restrict(how.reach, how.means);
        set_own_threads(helper_threads() + how.own_threads);
        if (how.own_threads < 0 && Sharing::instance().guard.reach() != Reach::kAllStores) continue;
        Memory memory(4096);
        memory.page(7)[3] = 1;
        memory.page(4000)[3] = 2;
        const std::uint64_t before = resident_bytes(arena_open());
        Extents extents;
        ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
        EXPECT_TRUE(extents.complete);
        EXPECT_EQ(resident_bytes(arena_fd()), before + 2 * page_bytes());
        EXPECT_EQ(memory.page(7)[3], 1);
        EXPECT_EQ(memory.page(4000)[3], 2);
        release(extents);
        EXPECT_EQ(resident_bytes(arena_fd()), before);
        EXPECT_EQ(memory.page(7)[3], 1);
        std::vector<unsigned char> present(memory.pages());
        ASSERT_EQ(mincore(memory.data(), memory.bytes(), present.data()), 0);
        EXPECT_LE(std::count(present.begin(), present.end(), 1), 8);
    }
}

TEST_F(MemorySharing, LargeRangesStayWhole) {
    Memory memory((37 << 20) / page_bytes() + 3);
    memory.fill(1);
    Extents extents;
    ASSERT_EQ(share(memory.data() + 5, memory.bytes() - 9, Purpose::kApplication, &extents), 0);
    EXPECT_TRUE(extents.complete);
    EXPECT_EQ(extents.count, 1u);
    EXPECT_TRUE(memory.filled(1));
    // For huge pages.
    EXPECT_EQ((extents.extent[0].offset - memory.address()) % (2 << 20), 0u);
    release(extents);
    EXPECT_TRUE(memory.filled(1));
    const Vma vma = vma_at(memory.address());
    EXPECT_EQ(vma.start, memory.address());
    EXPECT_EQ(vma.end, memory.address() + memory.bytes());
}

TEST_F(MemorySharing, LeavesAloneWhatIsNotPlainMemory) {
    static int data_variable = 5;
    const int file = memfd_create("file", 0);
    ASSERT_EQ(ftruncate(file, 1 << 20), 0);
    Memory shared(1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
    Memory of_file(1, PROT_READ | PROT_WRITE, MAP_PRIVATE, file);
    Memory file_shared(1, PROT_READ | PROT_WRITE, MAP_SHARED, file);
    Memory read_only(1, PROT_READ), executable(1, PROT_READ | PROT_WRITE | PROT_EXEC);
    const volatile void* const places[] = {
        __builtin_frame_address(0), &data_variable,   shared.data(),     of_file.data(),
        file_shared.data(),         read_only.data(), executable.data(), &errno};
    for (const Purpose purpose : kPurposes)
        for (const volatile void* place : places) {
            const Vma before = vma_at(address_of(place));
            const std::uint64_t left = sharing_counters().left_private;
            Extents extents;
            ASSERT_EQ(share(place, 8, purpose, &extents), 0);
            EXPECT_EQ(extents.count, 0u);
            EXPECT_FALSE(extents.complete);
            EXPECT_EQ(sharing_counters().left_private, left + 1);
            EXPECT_EQ(vma_at(address_of(place)), before);
            release(extents);
        }
    Memory unreadable(1, PROT_NONE);
    Extents extents;
    EXPECT_EQ(share(unreadable.data(), 8, Purpose::kQueue, &extents), EFAULT);
    close(file);
}

TEST_F(MemorySharing, LeavesHugePagesAlone) {
    Memory huge((4 << 20) / page_bytes());
    const std::uint64_t aligned = (huge.address() + (2 << 20) - 1) & ~std::uint64_t{(2 << 20) - 1};
    void* const at = mmap(reinterpret_cast<void*>(aligned), 2 << 20, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_HUGETLB, -1, 0);
    if (at == MAP_FAILED) GTEST_SKIP() << "no huge pages (vm.nr_hugepages)";
    Extents extents;
    ASSERT_EQ(share(at, 2 << 20, Purpose::kApplication, &extents), 0);
    EXPECT_EQ(extents.count, 0u);
    release(extents);
}

TEST_F(MemorySharing, LeavesStacksOfThreadsAlone) {
    // As the C library makes them: a small inaccessible mapping, and the stack above it.
    Memory stack(20);
    ASSERT_EQ(mprotect(stack.page(0), page_bytes(), PROT_NONE), 0);
    void* const gap = mmap(stack.page(0) - page_bytes(), page_bytes(), PROT_READ,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    ASSERT_NE(gap, MAP_FAILED);
    Extents extents;
    ASSERT_EQ(share(stack.page(3), 5, Purpose::kApplication, &extents), 0);
    EXPECT_EQ(extents.count, 0u);
    release(extents);
}

TEST_F(MemorySharing, SharesAroundWhatItLeavesAlone) {
    Memory memory(10);
    memory.fill(1);
    ASSERT_EQ(mprotect(memory.page(3), page_bytes(), PROT_READ), 0);
    ASSERT_EQ(mprotect(memory.page(6), 2 * page_bytes(), PROT_READ), 0);
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_FALSE(extents.complete);
    ASSERT_EQ(extents.count, 3u);
    EXPECT_EQ(extents.extent[0].length, 3 * page_bytes());
    EXPECT_EQ(extents.extent[1].address, address_of(memory.page(4)));
    EXPECT_EQ(extents.extent[1].length, 2 * page_bytes());
    EXPECT_EQ(extents.extent[2].address, address_of(memory.page(8)));
    release(extents);
    EXPECT_TRUE(memory.filled(1));
}

TEST_F(MemorySharing, MoreExtentsThanFitAreLeftPrivate) {
    Memory memory(20);
    memory.fill(1);
    for (std::size_t i = 1; i < 20; i += 2)
        ASSERT_EQ(mprotect(memory.page(i), page_bytes(), PROT_READ), 0);
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_FALSE(extents.complete);
    EXPECT_EQ(extents.count, kMaxExtents);
    for (std::size_t i = 0; i < 20; ++i)
        EXPECT_EQ(is_shared(memory.page(i)), i % 2 == 0 && i < 2 * kMaxExtents) << i;
    release(extents);
    EXPECT_TRUE(memory.filled(1));
    EXPECT_EQ(sharing_counters().shared_bytes, 0u);
}

TEST_F(MemorySharing, NothingOfTheApplicationWithCma) {
    Sharing::instance().set_policy(MemoryPolicy::kCma);
    Memory memory(4);
    Extents extents, queue;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_EQ(extents.count, 0u);
    EXPECT_FALSE(extents.complete);
    EXPECT_FALSE(is_shared(memory.data()));
    release(extents);
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kQueue, &queue), 0);
    EXPECT_TRUE(queue.complete);
    release(queue);
}

TEST_F(MemorySharing, PeersReachIt) {
    Memory memory(4);
    memory.fill(1);
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    const int fd = arena_fd();
    const std::uint64_t inode = arena_inode();
    const pid_t owner = getpid();
    auto* const word = reinterpret_cast<volatile std::uint64_t*>(memory.page(2));
    *word = 5;
    EXPECT_TRUE(in_child([&] {
        std::byte* const peer = arena_map_peer(owner, fd, inode);
        ASSERT_NE(peer, nullptr);
        auto* const theirs = reinterpret_cast<volatile std::uint64_t*>(
            peer + extents.extent[0].offset + 2 * page_bytes());
        EXPECT_EQ(*theirs, 5u);
        *theirs = 6;
    }));
    EXPECT_EQ(*word, 6u);
    release(extents);
    EXPECT_EQ(*word, 6u);
}

TEST_F(MemorySharing, SurvivesLosingItsDescriptors) {
    Memory memory(4);
    memory.fill(1);
    EXPECT_TRUE(in_child([&] {
        Extents extents;
        ASSERT_EQ(share(memory.page(0), page_bytes(), Purpose::kApplication, &extents), 0);
        EXPECT_TRUE(extents.complete);
        release(extents);
        for (int fd = 600; fd < 1000; ++fd) {
            if (!owns_fd(fd)) continue;
            // Worse than closed: something else.
            const int other = open("/dev/zero", O_RDWR);
            ASSERT_EQ(dup2(other, fd), fd);
            close(other);
        }
        ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
        EXPECT_EQ(extents.count, 0u);  // there is no arena to map any more
        release(extents);
        EXPECT_TRUE(memory.filled(1));
    }));
}

TEST_F(MemorySharing, WithoutDescriptorsNothingIsShared) {
    Memory memory(4);
    memory.fill(1);
    EXPECT_TRUE(in_child([&] {
        const rlimit files{3, 3};
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
        Extents extents;
        ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
        EXPECT_FALSE(extents.complete);
        EXPECT_EQ(extents.count, 0u);
        release(extents);
        ASSERT_EQ(munmap(memory.page(1), page_bytes()), 0);
        EXPECT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), EFAULT);
    }));
}

TEST_F(MemorySharing, WithoutPagemapAllIsCopied) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
    Memory memory(40);
    memory.page(7)[9] = 5;
    EXPECT_TRUE(in_child([&] {
        ASSERT_EQ(prctl(PR_SET_DUMPABLE, 0), 0);
        ASSERT_EQ(setresuid(65534, 65534, 65534), 0);
        ASSERT_EQ(open("/proc/self/pagemap", O_RDONLY), -1);
        set_own_threads(thread_count() - 1);
        Extents extents;
        ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
        EXPECT_TRUE(extents.complete);
        EXPECT_EQ(memory.page(7)[9], 5);
        EXPECT_EQ(memory.page(8)[9], 0);
        release(extents);
        EXPECT_EQ(memory.page(7)[9], 5);
    }));
}

TEST_F(MemorySharing, WorksWithALimitOfFileSizes) {
    Memory memory(4);
    memory.fill(1);
    ASSERT_GE(arena_open(), 0);
    EXPECT_TRUE(in_child([&] {
        ASSERT_GE(arena_open(), 0);
        const rlimit size{1 << 20, RLIM_INFINITY};
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &size), 0);
        const std::uint64_t far = arena_allocate(8 << 20);
        ASSERT_NE(far, kNoOffset);
        Extents extents;
        ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
        EXPECT_TRUE(extents.complete);
        EXPECT_TRUE(memory.filled(1));
        release(extents);
        EXPECT_TRUE(memory.filled(1));
    }));
}

TEST_F(MemorySharing, FindsMappingsByTextToo) {
    Sharing::instance().space.use(AddressSpace::Source::kText);
    Memory memory(9);
    memory.fill(1);
    ASSERT_EQ(mprotect(memory.page(4), page_bytes(), PROT_READ), 0);
    for (int round = 0; round < 3; ++round) {
        Extents a, b;
        ASSERT_EQ(share(memory.data(), 6 * page_bytes(), Purpose::kApplication, &a), 0);
        EXPECT_EQ(a.count, 2u);
        ASSERT_EQ(share(memory.page(5), 4 * page_bytes(), Purpose::kApplication, &b), 0);
        EXPECT_TRUE(b.complete);
        release(a);
        release(b);
        EXPECT_TRUE(memory.filled(1));
    }
    EXPECT_EQ(sharing_counters().shared_bytes, 0u);
    Sharing::instance().space.use(AddressSpace::Source::kQuery);
}

}  // namespace
}  // namespace softhca::device::memory::test
