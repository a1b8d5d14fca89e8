// SPDX-License-Identifier: BSD-2-Clause
// A registration that makes room for a newer one may be of the same memory. The newer one must stay
// in the cache, and the kernel must go on reporting changes of all its pages. Otherwise messages go
// to, and come from, pages that are gone. Neither a device nor a userfaultfd is needed.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "memory/registration_cache.h"
#include "tests/memory/fake_kernel.h"

namespace heddle::memory::test {
namespace {

constexpr std::size_t kPage = fake_kernel::kPage, kPages = 16, kBytes = kPages * kPage;
constexpr int kWritten = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
              kRead = IBV_ACCESS_REMOTE_READ;

class Eviction : public testing::Test {
protected:
    Eviction()
        : memory_(mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0)) {
        EXPECT_NE(memory_, MAP_FAILED);
    }
    ~Eviction() override { munmap(memory_, 2 * kBytes); }

    std::uintptr_t at(std::size_t page) const {
        return reinterpret_cast<std::uintptr_t>(memory_) + page * kPage;
    }
    // One operation on kBytes that begin with that page. True: the cache had them registered.
    bool hits(RegistrationCache& cache, std::size_t page, int access = kWritten) const {
        const std::uint64_t before = cache.counts().hits;
        auto* const region = cache.get(reinterpret_cast<void*>(at(page)), kBytes, access);
        EXPECT_NE(region, nullptr);
        if (region == nullptr) return false;
        cache.put(region);
        return cache.counts().hits != before;
    }
    // After these two operations the bytes stay registered: since the first, or the second.
    void keep(RegistrationCache& cache, std::size_t page, int access = kWritten) const {
        const std::uint64_t kept = cache.counts().kept;
        EXPECT_FALSE(hits(cache, page, access));
        hits(cache, page, access);
        EXPECT_EQ(cache.counts().kept, kept + 1);
    }
    // The program unmaps the pages from `page` to `end`. Does the cache hear of it?
    bool unmap(RegistrationCache& cache, std::size_t page, std::size_t end) const {
        const std::uint64_t before = cache.counts().invalidations;
        if (!fake_kernel::report_unmap(at(page), at(end))) return false;
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (cache.counts().invalidations == before && std::chrono::steady_clock::now() < limit)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return cache.counts().invalidations != before;
    }

    ibv_pd pd_{};
    const std::shared_ptr<AddressMonitor> monitor_ = std::make_shared<AddressMonitor>();

private:
    void* const memory_;
};

// The room is for one region, so the second evicts the first, which covers its first pages.
TEST_F(Eviction, OfAnOverlappingRegionLeavesTheNewerOneWatched) {
    RegistrationCache cache(monitor_, &pd_, kBytes);
    keep(cache, 0);
    ASSERT_TRUE(fake_kernel::watches_all(at(0), at(kPages)));
    keep(cache, kPages / 2);
    EXPECT_EQ(cache.counts().evictions, 1u);
    EXPECT_EQ(cache.counts().regions, 1u);
    EXPECT_TRUE(fake_kernel::watches_all(at(kPages / 2), at(kPages / 2 + kPages)))
        << "the eviction ended the watch of pages that the newer region covers";
    ASSERT_TRUE(hits(cache, kPages / 2));
    EXPECT_TRUE(unmap(cache, kPages / 2, kPages)) << "of pages that both covered";
    EXPECT_FALSE(hits(cache, kPages / 2)) << "a registration of pages that are gone";
}

// The same range, registered anew because another access was asked for.
TEST_F(Eviction, OfTheSameRangeLeavesTheNewerOneWatched) {
    RegistrationCache cache(monitor_, &pd_, kBytes);
    keep(cache, 0, kWritten);
    keep(cache, 0, kRead);
    EXPECT_EQ(cache.counts().evictions, 1u);
    EXPECT_TRUE(fake_kernel::watches_all(at(0), at(kPages)));
    EXPECT_TRUE(hits(cache, 0, kRead));
    EXPECT_TRUE(unmap(cache, 0, kPages));
    EXPECT_EQ(cache.counts().regions, 0u);
    EXPECT_FALSE(hits(cache, 0, kRead));
}

// Two regions of the same range, of which the one that was registered later was used less lately.
TEST_F(Eviction, OfTwoWithTheSameRangeTakesTheLessRecentlyUsed) {
    RegistrationCache cache(monitor_, &pd_, 2 * kBytes);
    keep(cache, 0, kWritten);
    keep(cache, 0, kRead);
    EXPECT_TRUE(hits(cache, 0, kWritten));
    keep(cache, kPages);
    EXPECT_EQ(cache.counts().evictions, 1u);
    EXPECT_TRUE(fake_kernel::watches_all(at(0), at(2 * kPages)));
    EXPECT_TRUE(hits(cache, 0, kWritten)) << "the eviction took another region of that range";
    EXPECT_FALSE(hits(cache, 0, kRead));
    EXPECT_TRUE(unmap(cache, 0, kPages));
}

// A region that an operation uses is not evicted, and the one that is listed beside it is.
TEST_F(Eviction, LeavesWhatIsUsed) {
    RegistrationCache cache(monitor_, &pd_, kBytes);
    keep(cache, 0);
    auto* const used = cache.get(reinterpret_cast<void*>(at(0)), kBytes, kWritten);
    ASSERT_NE(used, nullptr);
    keep(cache, kPages);
    EXPECT_EQ(cache.counts().evictions, 0u);
    EXPECT_FALSE(used->gone());
    cache.put(used);
    keep(cache, kPages / 2);
    EXPECT_EQ(cache.counts().regions, 1u);
    EXPECT_EQ(cache.counts().evictions, 2u);
    EXPECT_EQ(fake_kernel::regions_of_device(), 1u);
    EXPECT_FALSE(fake_kernel::watches_any(at(0), at(kPages / 2)));
    EXPECT_FALSE(fake_kernel::watches_any(at(kPages / 2 + kPages), at(2 * kPages)));
}

// Another listener's region covers the same memory: two protection domains, two caches.
TEST_F(Eviction, LeavesPagesWatchedThatAnotherCacheHas) {
    RegistrationCache one(monitor_, &pd_, kBytes), other(monitor_, &pd_, kBytes);
    keep(one, 0);
    keep(other, 0);
    keep(one, kPages);
    EXPECT_EQ(one.counts().evictions, 1u);
    EXPECT_TRUE(fake_kernel::watches_all(at(0), at(2 * kPages)));
    EXPECT_TRUE(unmap(other, 0, 1));
    EXPECT_EQ(one.counts().invalidations, 0u);
}

// Programs that have new memory for each message: their first uses are registered for one operation
// soon, and stay again once others are mostly found again.
TEST_F(Eviction, WhatIsNeverFoundAgainStaysNoMore) {
    RegistrationCache cache(monitor_, &pd_, 2 * kBytes);
    unsigned stayed = 0;
    for (; stayed < 100; ++stayed) {
        const std::uint64_t kept = cache.counts().kept;
        EXPECT_FALSE(hits(cache, 0, 1 << stayed % 8));
        if (cache.counts().kept == kept) break;
        EXPECT_TRUE(unmap(cache, 0, kPages));
    }
    EXPECT_GE(stayed, 2u);
    EXPECT_LE(stayed, 8u);
    EXPECT_EQ(fake_kernel::regions_of_device(), 0u);
    EXPECT_FALSE(fake_kernel::watches_any(at(0), at(2 * kPages)));
    // From its second use on, as ever.
    keep(cache, kPages);
    EXPECT_TRUE(hits(cache, kPages));
    // Two buffers that are used again and again.
    keep(cache, 0);
    for (int i = 0; i < 4; ++i)
        EXPECT_TRUE(hits(cache, 0) && hits(cache, kPages));
    EXPECT_EQ(cache.counts().regions, 2u);
    const std::uint64_t kept = cache.counts().kept;
    EXPECT_FALSE(hits(cache, kPages / 2));
    EXPECT_EQ(cache.counts().kept, kept + 1) << "it stays since its first use";
}

// An address of the program's near the end of all addresses: whole pages end beyond it.
TEST(RegistrationOfWildMemory, IsForOneOperation) {
    ibv_pd pd{};
    RegistrationCache cache(std::make_shared<AddressMonitor>(), &pd, kBytes);
    for (int i = 0; i < 3; ++i) {
        auto* const region = cache.get(reinterpret_cast<void*>(UINTPTR_MAX - 99), 64, kWritten);
        ASSERT_NE(region, nullptr);
        cache.put(region);
    }
    EXPECT_EQ(cache.counts().kept, 0u);
    EXPECT_EQ(fake_kernel::regions_of_device(), 0u);
}

}  // namespace
}  // namespace heddle::memory::test
