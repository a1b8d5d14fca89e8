// SPDX-License-Identifier: BSD-2-Clause
// share() and release() in a process without other threads, while the application changes its
// mappings behind our back.

#include "softhca/device/memory/sharing.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "tests/unit/memory_support.h"

namespace softhca::device::memory::test {
namespace {

std::int64_t thread_nanoseconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

TEST_F(MemorySharing, TheHeapAndRealloc) {
    // Small blocks, with neighbours on the same page.
    std::vector<std::unique_ptr<std::uint8_t[]>> blocks;
    for (int i = 0; i < 200; ++i) {
        blocks.emplace_back(new std::uint8_t[1000]);
        std::fill_n(blocks.back().get(), 1000, static_cast<std::uint8_t>(i));
    }
    std::vector<Extents> extents(blocks.size());
    for (std::size_t i = 0; i < blocks.size(); i += 3)
        ASSERT_EQ(share(blocks[i].get(), 1000, Purpose::kApplication, &extents[i]), 0);
    for (std::size_t i = 0; i < blocks.size(); i += 3)
        if (i % 2) release(extents[i]);
    for (std::size_t i = 0; i < blocks.size(); ++i)
        for (std::size_t k = 0; k < 1000; ++k)
            ASSERT_EQ(blocks[i][k], static_cast<std::uint8_t>(i));
    for (std::size_t i = 0; i < blocks.size(); i += 3)
        if (i % 2 == 0) release(extents[i]);
    blocks.clear();

    // Growing a large block is mremap(2): it must not grow over its neighbours in the arena.
    constexpr std::size_t kBytes = 1 << 20;
    auto* first = static_cast<std::uint8_t*>(malloc(kBytes));
    auto* second = static_cast<std::uint8_t*>(malloc(kBytes));
    memset(first, 1, kBytes);
    memset(second, 2, kBytes);
    Extents a, b;
    ASSERT_EQ(share(first, kBytes, Purpose::kApplication, &a), 0);
    ASSERT_EQ(share(second, kBytes, Purpose::kApplication, &b), 0);
    first = static_cast<std::uint8_t*>(realloc(first, 3 * kBytes));
    memset(first + kBytes, 3, 2 * kBytes);
    EXPECT_TRUE(std::all_of(first, first + kBytes, [](int c) { return c == 1; }));
    EXPECT_TRUE(std::all_of(second, second + kBytes, [](int c) { return c == 2; }));
    release(a);
    release(b);
    EXPECT_TRUE(std::all_of(second, second + kBytes, [](int c) { return c == 2; }));
    free(first);
    free(second);
    for (int i = 0; i < 50; ++i) {
        auto* zero = static_cast<std::uint8_t*>(calloc(1, 50000));
        EXPECT_TRUE(std::all_of(zero, zero + 50000, [](int c) { return c == 0; }));
        free(zero);
    }
}

TEST_F(MemorySharing, DiscardedMemoryIsZeroAfterRelease) {
    Memory memory(8);
    memory.fill(1);
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    release(extents);
    ASSERT_EQ(madvise(memory.data(), memory.bytes(), MADV_DONTNEED), 0);
    for (std::size_t i = 0; i < memory.bytes(); ++i)
        ASSERT_EQ(memory.data()[i], 0);
}

// A program deregisters small buffers that lie in front of much registered memory.
TEST_F(MemorySharing, ReleasingOnePageDoesNotLookAtThoseBehindIt) {
    constexpr std::size_t kSmall = 20;
    const auto quickest_release = [](const Memory& memory) {
        for (std::size_t i = 0; i < memory.pages(); ++i)
            memory.page(i)[0] = 1;
        std::array<Extents, kSmall> small;
        Extents rest;
        for (std::size_t i = 0; i < kSmall; ++i)
            EXPECT_EQ(share(memory.page(i), page_bytes(), Purpose::kApplication, &small[i]), 0);
        EXPECT_EQ(share(memory.page(kSmall), memory.bytes() - kSmall * page_bytes(),
                        Purpose::kApplication, &rest),
                  0);
        EXPECT_EQ(small[0].extent[0].offset + kSmall * page_bytes(), rest.extent[0].offset);
        std::int64_t least = INT64_MAX;
        for (const Extents& one : small) {
            const std::int64_t begin = thread_nanoseconds();
            release(one);
            least = std::min(least, thread_nanoseconds() - begin);
        }
        release(rest);
        return least;
    };
    Memory few(kSmall + 1), many((std::size_t{128} << 20) / page_bytes());
    const std::int64_t in_front_of_one = quickest_release(few);
    EXPECT_LT(quickest_release(many), 5 * in_front_of_one);
}

TEST_F(MemorySharing, KeepsProtectionAndLock) {
    Memory memory(6);
    memory.fill(1);
    if (syscall(SYS_mlock, memory.page(0), 3 * page_bytes()) != 0)  // not the sanitizer's
        GTEST_SKIP() << "mlock: " << strerror(errno);
    const auto locked = [&](std::size_t page) {
        return msync(memory.page(page), page_bytes(), MS_ASYNC | MS_INVALIDATE) != 0 &&
               errno == EBUSY;
    };
    ASSERT_TRUE(locked(0));
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    EXPECT_TRUE(extents.complete);
    EXPECT_TRUE(is_shared(memory.page(0)));
    EXPECT_TRUE(locked(0) && locked(2));
    EXPECT_FALSE(locked(3));
    ASSERT_EQ(mprotect(memory.page(4), page_bytes(), PROT_READ), 0);
    release(extents);
    EXPECT_TRUE(locked(0) && locked(2));
    EXPECT_FALSE(locked(3));
    EXPECT_TRUE(memory.filled(1));
    EXPECT_EQ(vma_at(address_of(memory.page(4))).protection(), PROT_READ);
    EXPECT_EQ(vma_at(address_of(memory.page(5))).protection(), PROT_READ | PROT_WRITE);
    EXPECT_FALSE(is_shared(memory.page(4)));
}

TEST_F(MemorySharing, NoticesReplacedMappings) {
    Memory memory(8);
    for (int round = 0; round < 10; ++round) {
        memory.fill(1);
        Extents old_extents, extents;
        ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &old_extents), 0);
        // libc's own munmap and mmap look like this: nobody tells us.
        ASSERT_EQ(munmap(memory.page(2), 4 * page_bytes()), 0);
        ASSERT_EQ(mmap(memory.page(2), 4 * page_bytes(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                  memory.page(2));
        if (round % 2) memset(memory.page(2), 9, 4 * page_bytes());
        const std::uint8_t expected = round % 2 ? 9 : 0;
        ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
        EXPECT_TRUE(extents.complete);
        EXPECT_EQ(extents.count, 3u);
        // The old registration still shows what it showed.
        EXPECT_EQ(static_cast<std::uint8_t>(
                      arena_base()[old_extents.extent[0].offset + 3 * page_bytes()]),
                  Memory::value(3 * page_bytes(), 1));
        memory.page(3)[1] = 42;
        EXPECT_EQ(
            static_cast<std::uint8_t>(arena_base()[extents.extent[1].offset + page_bytes() + 1]),
            42);
        if (round % 3) {
            release(extents);
            release(old_extents);
        } else {
            release(old_extents);
            release(extents);
        }
        EXPECT_EQ(memory.page(3)[0], expected);
        EXPECT_EQ(memory.page(3)[1], 42);
        EXPECT_EQ(memory.page(0)[5], Memory::value(5, 1));
        EXPECT_EQ(sharing_counters().shared_bytes, 0u);
        EXPECT_EQ(resident_bytes(arena_fd()), 0u);
    }
}

TEST_F(MemorySharing, ReleaseOfUnmappedMemoryTouchesNothing) {
    Memory memory(4);
    memory.fill(1);
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kApplication, &extents), 0);
    ASSERT_EQ(munmap(memory.data(), memory.bytes()), 0);
    release(extents);
    EXPECT_FALSE(vma_at(memory.address()).plain());
    EXPECT_EQ(resident_bytes(arena_fd()), 0u);

    // Another file in its place.
    Memory again(4);
    again.fill(1);
    ASSERT_EQ(share(again.data(), again.bytes(), Purpose::kApplication, &extents), 0);
    ASSERT_NE(mmap(again.data(), again.bytes(), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              MAP_FAILED);
    again.fill(3);
    release(extents);
    EXPECT_TRUE(again.filled(3));
    EXPECT_TRUE(vma_at(again.address()).shared);
    EXPECT_EQ(resident_bytes(arena_fd()), 0u);
}

TEST_F(MemorySharing, MovedMemoryKeepsItsPages) {
    Memory memory(4), target(4);
    memory.fill(1);
    Extents extents;
    ASSERT_EQ(share(memory.data(), memory.bytes(), Purpose::kQueue, &extents), 0);
    ASSERT_NE(mremap(memory.data(), memory.bytes(), memory.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED,
                     target.data()),
              MAP_FAILED);
    release(extents);
    EXPECT_TRUE(target.filled(1));
    // Nobody else may get these pages of the arena.
    Memory other(4);
    Extents others;
    ASSERT_EQ(share(other.data(), other.bytes(), Purpose::kQueue, &others), 0);
    other.fill(2);
    EXPECT_TRUE(target.filled(1));
    release(others);
    // Until it is unmapped.
    ASSERT_EQ(munmap(target.data(), target.bytes()), 0);
    ASSERT_EQ(share(other.data(), other.bytes(), Purpose::kQueue, &others), 0);
    ASSERT_EQ(munmap(other.data(), other.bytes()), 0);
    release(others);
    EXPECT_EQ(resident_bytes(arena_fd()), 0u);
}

// Random operations against a model: every page has the bytes that were last stored, live
// registrations show them through the arena, and in the end nothing is left.
TEST_F(MemorySharing, RandomSequencesKeepEveryByte) {
    constexpr std::size_t kPages = 48;
    struct Live {
        Extents extents;
        std::vector<int> generation;  // of the mapping of each page when it was registered
        std::size_t first;
    };
    for (const unsigned seed : {1u, 2u, 3u, 4u}) {
        Memory memory(kPages);
        std::mt19937 random(seed);
        std::vector<std::uint8_t> model(kPages, 0);
        std::vector<bool> mapped(kPages, true);
        std::vector<int> generation(kPages, 0);
        std::vector<Live> live;
        int next_generation = 1;
        for (int step = 0; step < 1500; ++step) {
            const std::size_t first = random() % kPages;
            const std::size_t count = 1 + random() % std::min<std::size_t>(kPages - first, 12);
            const auto all_mapped = [&] {
                return std::all_of(mapped.begin() + static_cast<long>(first),
                                   mapped.begin() + static_cast<long>(first + count),
                                   [](bool is) { return is; });
            };
            switch (random() % 8) {
                case 0:
                case 1: {
                    Live entry{{}, {}, first};
                    const Purpose purpose = kPurposes[random() % 2];
                    const int error = share(memory.page(first) + random() % 100,
                                            count * page_bytes() - 100, purpose, &entry.extents);
                    ASSERT_EQ(error, all_mapped() ? 0 : EFAULT);
                    if (error) break;
                    entry.generation.assign(generation.begin() + static_cast<long>(first),
                                            generation.begin() + static_cast<long>(first + count));
                    live.push_back(entry);
                    break;
                }
                case 2:
                case 3:
                    if (!live.empty()) {
                        const std::size_t i = random() % live.size();
                        release(live[i].extents);
                        live.erase(live.begin() + static_cast<long>(i));
                    }
                    break;
                case 4:
                    if (random() % 2) break;
                    ASSERT_EQ(munmap(memory.page(first), count * page_bytes()), 0);
                    for (std::size_t i = first; i < first + count; ++i) {
                        mapped[i] = false;
                        generation[i] = next_generation;
                    }
                    ++next_generation;
                    break;
                case 5:
                    if (random() % 2 && all_mapped()) break;
                    ASSERT_NE(mmap(memory.page(first), count * page_bytes(), PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                              MAP_FAILED);
                    for (std::size_t i = first; i < first + count; ++i) {
                        mapped[i] = true;
                        model[i] = 0;
                        generation[i] = next_generation;
                    }
                    ++next_generation;
                    break;
                default:
                    for (std::size_t i = first; i < first + count; ++i) {
                        if (!mapped[i]) continue;
                        model[i] = static_cast<std::uint8_t>(random());
                        memset(memory.page(i), model[i], page_bytes());
                    }
            }
            if (step % 10) continue;
            for (std::size_t i = 0; i < kPages; ++i) {
                if (!mapped[i]) continue;
                ASSERT_EQ(memory.page(i)[0], model[i]) << "seed " << seed << " step " << step;
                ASSERT_EQ(memory.page(i)[page_bytes() - 1], model[i]);
            }
            for (const Live& entry : live)
                for (unsigned e = 0; e < entry.extents.count; ++e)
                    for (std::uint64_t at = 0; at < entry.extents.extent[e].length;
                         at += page_bytes()) {
                        const std::size_t i =
                            (entry.extents.extent[e].address + at - memory.address()) /
                            page_bytes();
                        if (generation[i] != entry.generation[i - entry.first]) continue;
                        ASSERT_EQ(static_cast<std::uint8_t>(
                                      arena_base()[entry.extents.extent[e].offset + at + 9]),
                                  model[i]);
                    }
        }
        for (const Live& entry : live)
            release(entry.extents);
        EXPECT_EQ(sharing_counters().shared_bytes, 0u);
        EXPECT_EQ(resident_bytes(arena_fd()), 0u) << "seed " << seed;
        for (std::size_t i = 0; i < kPages; ++i) {
            if (mapped[i]) {
                ASSERT_EQ(memory.page(i)[17], model[i]);
            }
        }
    }
}

}  // namespace
}  // namespace softhca::device::memory::test
