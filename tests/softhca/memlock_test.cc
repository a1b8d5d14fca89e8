// SPDX-License-Identifier: BSD-2-Clause
// RLIMIT_MEMLOCK, as ib_umem_get of the kernel applies it: pages of all regions and queues of a
// process together may not be more, unless it has CAP_IPC_LOCK. Only with SOFTHCA_MEMLOCK=enforce
// (softhca.enforced.memlock_test); without, the same calls succeed whatever the limit is.
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "memlock_limit.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

constexpr std::size_t kPageBytes = 4096;

bool enforced() {
    const char* const policy = std::getenv("SOFTHCA_MEMLOCK");
    return policy != nullptr && std::string_view(policy) == "enforce";
}

class Memlock : public testing::Test {
protected:
    ~Memlock() override { munmap(memory, kPages * kPageBytes); }
    Owned<ibv_mr> region(std::size_t first, std::size_t pages, int access = kAllAccess) {
        errno = 0;
        return Owned<ibv_mr>(
            ibv_reg_mr(pd.get(), memory + first * kPageBytes, pages * kPageBytes, access));
    }
    // It is refused with that error; where limits are ignored it is not.
    static void expect_refused(bool made, int error) {
        const int given = errno;
        EXPECT_EQ(made, !enforced());
        if (!made) {
            EXPECT_EQ(given, error) << std::strerror(given);
        }
    }

    static constexpr std::size_t kPages = 64;
    std::uint8_t* const memory = static_cast<std::uint8_t*>(mmap(
        nullptr, kPages* kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    Owned<ibv_context> context = open_device();
    Owned<ibv_pd> pd{ibv_alloc_pd(context.get())};
};

TEST_F(Memlock, LimitsAllRegionsTogether) {
    const MemlockLimit limit(16 * kPageBytes);
    auto first = region(0, 8);
    const auto second = region(8, 8);
    ASSERT_TRUE(first && second) << std::strerror(errno);
    expect_refused(region(16, 1) != nullptr, ENOMEM);
    expect_refused(region(0, 1) != nullptr, ENOMEM);  // the same pages count again
    first.reset();
    const auto third = region(16, 8);
    ASSERT_TRUE(third) << "there is room again: " << std::strerror(errno);
    expect_refused(region(0, 1) != nullptr, ENOMEM);
}

// Two bytes can be two pages.
TEST_F(Memlock, CountsPages) {
    const MemlockLimit limit(3 * kPageBytes);
    const auto two = [&](std::size_t page) {
        return Owned<ibv_mr>(ibv_reg_mr(pd.get(), memory + page * kPageBytes - 1, 2, kAllAccess));
    };
    const auto first = two(1);
    ASSERT_TRUE(first);
    expect_refused(two(3) != nullptr, ENOMEM);
    EXPECT_TRUE(region(3, 1)) << std::strerror(errno);
}

TEST_F(Memlock, OfNothingIsNotAllowed) {
    const MemlockLimit limit(0);
    expect_refused(region(0, 1) != nullptr, EPERM);
}

TEST_F(Memlock, IsNotForThePrivileged) {
    const MemlockLimit limit(kPageBytes, true);
    if (!limit.may_be_privileged()) GTEST_SKIP() << "needs CAP_IPC_LOCK";
    EXPECT_TRUE(region(0, 32)) << std::strerror(errno);
}

// What is refused for another reason is not counted.
TEST_F(Memlock, CountsNothingThatFailed) {
    const MemlockLimit limit(4 * kPageBytes);
    ASSERT_EQ(mprotect(memory, 4 * kPageBytes, PROT_NONE), 0);
    for (int i = 0; i < 10; ++i) {
        EXPECT_FALSE(region(0, 4));
        EXPECT_EQ(errno, EFAULT);
    }
    EXPECT_TRUE(region(4, 4)) << std::strerror(errno);
}

// A CQ of 64 entries has a page, and all records of a context are on another.
TEST_F(Memlock, LimitsQueues) {
    const MemlockLimit limit(3 * kPageBytes);
    const auto cq = [&] {
        errno = 0;
        return Owned<ibv_cq>(ibv_create_cq(context.get(), 63, nullptr, nullptr, 0));
    };
    for (int i = 0; i < 3; ++i) {
        auto first = cq();
        auto second = cq();
        ASSERT_TRUE(first && second) << std::strerror(errno);
        expect_refused(cq() != nullptr, ENOMEM);
        expect_refused(region(0, 1) != nullptr, ENOMEM);
        first.reset();
        EXPECT_TRUE(region(0, 1)) << std::strerror(errno);
        second.reset();
    }
    EXPECT_TRUE(region(0, 3)) << std::strerror(errno);
}

TEST_F(Memlock, FollowsQueuesThatAreResized) {
    MemlockLimit limit(12 * kPageBytes);
    const Owned<ibv_cq> cq(ibv_create_cq(context.get(), 63, nullptr, nullptr, 0));
    ASSERT_TRUE(cq);
    ASSERT_EQ(ibv_resize_cq(cq.get(), 255), 0);  // four pages
    {
        const auto rest = region(0, 7);
        EXPECT_TRUE(rest) << std::strerror(errno);
        expect_refused(region(8, 1) != nullptr, ENOMEM);
        EXPECT_EQ(ibv_resize_cq(cq.get(), 63) == 0, !enforced()) << "both are pinned for a while";
    }
    EXPECT_EQ(ibv_resize_cq(cq.get(), 63), 0);
    EXPECT_TRUE(region(0, 10)) << std::strerror(errno);
}

TEST_F(Memlock, FollowsRegionsThatAreRegisteredAnew) {
    const MemlockLimit limit(12 * kPageBytes);
    const auto mr = region(0, 4);
    ASSERT_TRUE(mr);
    const auto move = [&](std::size_t pages) {
        return ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory,
                            pages * kPageBytes, 0);
    };
    EXPECT_EQ(move(9) == 0, !enforced()) << "both are pinned for a while";
    EXPECT_EQ(move(8), 0);
    const auto rest = region(8, 4);
    EXPECT_TRUE(rest) << std::strerror(errno);
    expect_refused(region(12, 1) != nullptr, ENOMEM);
}

TEST_F(Memlock, LimitsQueuePairs) {
    MemlockLimit limit(64 * kPageBytes);
    Owned<ibv_cq> cq(ibv_create_cq(context.get(), 63, nullptr, nullptr, 0));
    ASSERT_TRUE(cq);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq.get();
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {64, 64, 1, 1, 0};
    const auto make = [&] {
        errno = 0;
        return Owned<ibv_qp>(ibv_create_qp(pd.get(), &wanted));
    };
    auto qp = make();
    ASSERT_TRUE(qp) << std::strerror(errno);
    limit.set(3 * kPageBytes);
    expect_refused(make() != nullptr, ENOMEM);
    qp.reset();
    EXPECT_TRUE(region(0, 1)) << std::strerror(errno);
    EXPECT_FALSE(region(0, 2) && enforced()) << "the CQ and its record are there still";
    cq.reset();
    EXPECT_TRUE(region(0, 3)) << std::strerror(errno);
}

// The child's pages are its own.
TEST_F(Memlock, IsOfEachProcess) {
    const MemlockLimit limit(4 * kPageBytes);
    const auto mine = region(0, 4);
    ASSERT_TRUE(mine);
    Child child([&](Channel&) {
        const auto own = open_device();
        const Owned<ibv_pd> own_pd(ibv_alloc_pd(own.get()));
        const auto reg = [&](std::size_t pages) {
            return Owned<ibv_mr>(ibv_reg_mr(own_pd.get(), memory, pages * kPageBytes, kAllAccess));
        };
        EXPECT_TRUE(reg(4)) << std::strerror(errno);
        EXPECT_EQ(reg(5) == nullptr, enforced());
    });
    child.expect_success();
}

}  // namespace
}  // namespace softhca::test
