// SPDX-License-Identifier: BSD-2-Clause
// Device memory (MEMIC): allocation within what the device has, copies in and out, regions on it as
// source and target of every operation, from this process and from others, and when it can be
// freed.

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "ioctl_request.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

constexpr std::size_t kAll = 128 << 10;  // what the device has
constexpr std::size_t kPage = 4096;      // an allocation takes whole pages
constexpr int kAccess = kAllAccess | IBV_ACCESS_ZERO_BASED;

struct FreeDm {
    void operator()(ibv_dm* dm) const { EXPECT_EQ(ibv_free_dm(dm), 0); }
};
using Dm = std::unique_ptr<ibv_dm, FreeDm>;

// Null and errno when there is none.
Dm try_allocate(ibv_context* context, std::size_t length, std::uint32_t log_align = 0,
                std::uint32_t comp_mask = 0) {
    ibv_alloc_dm_attr attr = {};
    attr.length = length;
    attr.log_align_req = log_align;
    attr.comp_mask = comp_mask;
    errno = 0;
    return Dm(ibv_alloc_dm(context, &attr));
}
Dm allocate(ibv_context* context, std::size_t length) {
    Dm dm = try_allocate(context, length);
    check(dm.get(), "ibv_alloc_dm");
    return dm;
}

Owned<ibv_mr> try_register(ibv_pd* pd, const Dm& dm, std::uint64_t offset, std::size_t length,
                           int access = kAccess) {
    errno = 0;
    return Owned<ibv_mr>(
        ibv_reg_dm_mr(pd, dm.get(), offset, length, static_cast<unsigned>(access)));
}
Owned<ibv_mr> register_dm(ibv_pd* pd, const Dm& dm, std::uint64_t offset, std::size_t length) {
    auto mr = try_register(pd, dm, offset, length);
    check(mr.get(), "ibv_reg_dm_mr");
    return mr;
}

ibv_sge sge_of(const Owned<ibv_mr>& mr, std::uint64_t offset, std::uint32_t length) {
    return {offset, length, mr->lkey};
}

void put_pattern(const Dm& dm, std::uint64_t offset, std::size_t length, std::uint32_t seed) {
    std::vector<std::uint8_t> bytes(length);
    fill_pattern(bytes.data(), length, seed);
    ASSERT_EQ(ibv_memcpy_to_dm(dm.get(), offset, bytes.data(), length), 0);
}
testing::AssertionResult holds(const Dm& dm, std::uint64_t offset, std::size_t length,
                               std::uint32_t seed) {
    std::vector<std::uint8_t> bytes(length);
    if (ibv_memcpy_from_dm(bytes.data(), dm.get(), offset, length) != 0)
        return testing::AssertionFailure() << "ibv_memcpy_from_dm";
    return has_pattern(bytes.data(), length, seed);
}

// Endpoint::run() takes address 0 for the peer's ordinary memory; here it is where regions begin.
bool run_at(Endpoint& e, const Work& work) {
    ibv_send_wr wr = {};
    std::vector<ibv_sge> sges;
    e.send_wr(work, wr, sges);
    if (work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
        wr.wr.atomic.remote_addr = work.remote;
    else
        wr.wr.rdma.remote_addr = work.remote;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(e.qp.get(), &wr, &bad), 0);
    const auto result = succeeded(e.wait_send());
    EXPECT_TRUE(result);
    return result;
}

TEST(DeviceMemory, LimitIsThatOfTheDevice) {
    const auto context = open_device();
    const auto second = open_device();
    ibv_device_attr_ex attr = {};
    ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &attr), 0);
    EXPECT_EQ(attr.max_dm_size, kAll);
    Dm all = allocate(context.get(), kAll);
    EXPECT_FALSE(try_allocate(context.get(), 4));
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_FALSE(try_allocate(second.get(), 4));
    EXPECT_EQ(errno, ENOMEM);
    all.reset();
    std::vector<Dm> pages;
    for (std::size_t i = 0; i < kAll / kPage; ++i)
        pages.push_back(allocate(i % 2 != 0 ? context.get() : second.get(), 4 + i));
    EXPECT_FALSE(try_allocate(context.get(), 4)) << "no page is left";
    // Two pages, but not beside each other.
    pages[3].reset();
    pages[5].reset();
    EXPECT_FALSE(try_allocate(context.get(), 2 * kPage));
    EXPECT_EQ(errno, ENOMEM);
    pages[4].reset();
    EXPECT_TRUE(try_allocate(context.get(), 3 * kPage));
}

TEST(DeviceMemory, WrongAllocationsAreRefused) {
    const auto context = open_device();
    EXPECT_FALSE(try_allocate(context.get(), 0));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(try_allocate(context.get(), kAll + 1));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(try_allocate(context.get(), 64, 0, 1));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(try_allocate(context.get(), 64, 13));
    EXPECT_EQ(errno, EINVAL);
    for (std::uint32_t align = 0; align <= 12; ++align)
        EXPECT_TRUE(try_allocate(context.get(), 64, align));
}

TEST(DeviceMemory, CopiesInAndOut) {
    const auto context = open_device();
    const Dm first = allocate(context.get(), 10000);
    const Dm second = allocate(context.get(), 10000);
    put_pattern(first, 0, 10000, 1);
    put_pattern(second, 0, 10000, 2);
    put_pattern(second, 4000, 1000, 3);
    EXPECT_TRUE(holds(first, 0, 10000, 1));
    EXPECT_TRUE(holds(second, 0, 4000, 2));
    EXPECT_TRUE(holds(second, 4000, 1000, 3));
    std::uint32_t word = 0;
    EXPECT_EQ(ibv_memcpy_from_dm(&word, first.get(), 2, 4), EINVAL) << "in words only";
    EXPECT_EQ(ibv_memcpy_from_dm(&word, first.get(), 10000, 4), EFAULT);
}

TEST(DeviceMemory, WrongRegistrationsAreRefused) {
    const auto context = open_device();
    const Owned<ibv_pd> pd(check(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
    const Dm dm = allocate(context.get(), 100);
    EXPECT_FALSE(try_register(pd.get(), dm, 0, 104));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(try_register(pd.get(), dm, 104, 0));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(try_register(pd.get(), dm, ~std::uint64_t{0}, 4));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(try_register(pd.get(), dm, 0, 100, kAllAccess)) << "not zero-based";
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(try_register(pd.get(), dm, 0, 100, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(
        try_register(pd.get(), dm, 0, 100, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_TRUE(try_register(pd.get(), dm, 100, 0)) << "nothing, at the end";
}

TEST(DeviceMemory, IsBusyWhileThereAreRegions) {
    const auto context = open_device();
    const Owned<ibv_pd> pd(check(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
    const Dm dm = allocate(context.get(), kPage);
    auto first = register_dm(pd.get(), dm, 0, kPage);
    auto second = register_dm(pd.get(), dm, 64, 64);
    EXPECT_EQ(ibv_free_dm(dm.get()), EBUSY);
    EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
    Memory memory(pd.get(), kPage);
    EXPECT_NE(ibv_rereg_mr(first.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
    first.reset();
    EXPECT_EQ(ibv_free_dm(dm.get()), EBUSY);
}

TEST(DeviceMemory, SendsAndReceives) {
    Pair pair;
    const Dm from = allocate(pair.a.context.get(), 9000);
    const Dm into = allocate(pair.b.context.get(), 9000);
    const auto source = register_dm(pair.a.pd.get(), from, 100, 8900);
    const auto target = register_dm(pair.b.pd.get(), into, 200, 8800);
    put_pattern(from, 0, 9000, 1);
    put_pattern(into, 0, 9000, 2);
    ASSERT_EQ(pair.b.post_receive(1, {sge_of(target, 8, 5000)}), 0);
    Work send;
    // A part of it by way of ordinary memory, so that one message has both.
    pair.a.memory->fill(0, 1000, 3);
    send.sges = {sge_of(source, 28, 3000), pair.a.memory->sge(0, 1000)};
    ASSERT_TRUE(pair.a.run(send));
    EXPECT_TRUE(succeeded(pair.b.wait_receive()));
    std::vector<std::uint8_t> want(4000), have(4000);
    ASSERT_EQ(ibv_memcpy_from_dm(want.data(), from.get(), 128, 3000), 0);
    fill_pattern(want.data() + 3000, 1000, 3);
    ASSERT_EQ(ibv_memcpy_from_dm(have.data(), into.get(), 208, 4000), 0);
    EXPECT_EQ(want, have);
    EXPECT_TRUE(holds(into, 0, 208, 2)) << "before the receive";
}

// Zero-based addresses, all operations that need no consent, and what lies around the region.
TEST(DeviceMemory, AnotherProcessReachesIt) {
    struct Offer {
        std::uint32_t rkey;
    };
    run_sides(
        Placement::kProcesses,
        [](Channel& channel) {
            Endpoint e;
            connect_over(channel, e);
            const auto offer = channel.receive<Offer>();
            const auto work = [&](ibv_wr_opcode opcode, std::uint64_t remote, ibv_sge sge) {
                Work work;
                work.opcode = opcode;
                work.sges = {sge};
                work.remote = remote;
                work.rkey = offer.rkey;
                return work;
            };
            e.memory->fill(0, 5000, 5);
            ASSERT_TRUE(run_at(e, work(IBV_WR_RDMA_WRITE, 0, e.memory->sge(0, 5000))));
            ASSERT_TRUE(run_at(e, work(IBV_WR_RDMA_READ, 0, e.memory->sge(8192, 5000))));
            EXPECT_TRUE(e.memory->holds(8192, 5000, 5));
            // From device memory to device memory.
            const Dm own = allocate(e.context.get(), 4096);
            const auto mr = register_dm(e.pd.get(), own, 0, 4096);
            put_pattern(own, 0, 4096, 6);
            ASSERT_TRUE(run_at(e, work(IBV_WR_RDMA_WRITE, 1000, sge_of(mr, 0, 1000))));
            ASSERT_TRUE(run_at(e, work(IBV_WR_RDMA_READ, 0, sge_of(mr, 0, 1000))));
            EXPECT_TRUE(holds(own, 0, 1000, 5));
            Work add = work(IBV_WR_ATOMIC_FETCH_AND_ADD, 6400, sge_of(mr, 8, 8));
            add.compare_add = 7;
            ASSERT_TRUE(run_at(e, add));
            ASSERT_TRUE(run_at(e, add));
            std::uint64_t before = 0;
            ASSERT_EQ(ibv_memcpy_from_dm(&before, own.get(), 8, 8), 0);
            EXPECT_EQ(before, 1007u);
            channel.meet();
            // One byte too many, at last: the region ends where it was said to.
            ASSERT_EQ(e.post(work(IBV_WR_RDMA_WRITE, 6401, e.memory->sge(0, 8))), 0);
            EXPECT_TRUE(has_status(e.wait_send(), IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess));
            channel.meet();
        },
        [](Channel& channel) {
            Endpoint e;
            const Dm dm = allocate(e.context.get(), 3 * kPage);
            const auto mr = register_dm(e.pd.get(), dm, 64, 6408);
            put_pattern(dm, 0, 3 * kPage, 1);
            const std::uint64_t start = 1000;
            ASSERT_EQ(ibv_memcpy_to_dm(dm.get(), 64 + 6400, &start, 8), 0);
            connect_over(channel, e);
            channel.send(Offer{mr->rkey});
            channel.meet();
            std::vector<std::uint8_t> have(3 * kPage), want(3 * kPage);
            fill_pattern(want.data(), want.size(), 1);
            fill_pattern(want.data() + 64, 5000, 5);
            fill_pattern(want.data() + 64 + 1000, 1000, 6);
            const std::uint64_t sum = 1014;
            std::memcpy(want.data() + 64 + 6400, &sum, 8);
            ASSERT_EQ(ibv_memcpy_from_dm(have.data(), dm.get(), 0, have.size()), 0);
            EXPECT_EQ(have, want);
            channel.meet();
            ASSERT_EQ(ibv_memcpy_from_dm(have.data(), dm.get(), 0, have.size()), 0);
            EXPECT_EQ(have, want) << "after a write out of bounds";
        });
}

TEST(DeviceMemory, KeyOfARegionThatIsGoneFails) {
    Pair pair;
    const Dm dm = allocate(pair.a.context.get(), kPage);
    auto mr = register_dm(pair.a.pd.get(), dm, 0, kPage);
    Work send;
    send.sges = {sge_of(mr, 0, 100)};
    mr.reset();
    ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 100)}), 0);
    ASSERT_EQ(pair.a.post(send), 0);
    EXPECT_TRUE(has_status(pair.a.wait_send(), IBV_WC_LOC_PROT_ERR, kVendorLocalProtection));
}

TEST(DeviceMemory, OfAKilledProcessIsFreeAtOnce) {
    const auto context = open_device();
    for (int round = 0; round < 3; ++round) {
        Child child([](Channel& channel) {
            Endpoint e;
            const Dm dm = allocate(e.context.get(), kAll);
            const auto mr = register_dm(e.pd.get(), dm, 0, kAll);
            channel.meet();
            channel.meet();
        });
        child.channel().meet();
        EXPECT_FALSE(try_allocate(context.get(), 4));
        child.kill(SIGKILL);
        child.wait();
        const Dm dm = allocate(context.get(), kAll);
        put_pattern(dm, 0, kAll, 1);
        EXPECT_TRUE(holds(dm, 0, kAll, 1));
    }
}

// Closing the device gives back what was not freed.
TEST(DeviceMemory, GoesWithItsContext) {
    for (int round = 0; round < 3; ++round) {
        const auto context = open_device();
        Dm dm = allocate(context.get(), kAll);
        std::free(dm.release());  // what libmlx5 knows of it
    }
}

// As multiprocessing programs of Python do it: through a context of the parent.
TEST(DeviceMemory, ForkedChildAllocatesByAnInheritedContext) {
    const auto context = open_device();
    const Dm parents = allocate(context.get(), kPage);
    put_pattern(parents, 0, kPage, 1);
    std::array<std::unique_ptr<Child>, 3> children;
    for (std::uint32_t i = 0; i < children.size(); ++i)
        children[i] = std::make_unique<Child>([&context, i](Channel& channel) {
            ibv_device_attr_ex attr = {};
            EXPECT_EQ(ibv_query_device_ex(context.get(), nullptr, &attr), 0);
            EXPECT_EQ(attr.max_dm_size, kAll);
            const Dm dm = allocate(context.get(), 10000);
            put_pattern(dm, 0, 10000, i + 2);
            channel.meet();
            EXPECT_TRUE(holds(dm, 0, 10000, i + 2));
            EXPECT_FALSE(ibv_alloc_pd(context.get()));
            EXPECT_EQ(errno, EIO) << "the device is the parent's";
        });
    for (const auto& child : children)
        child->channel().meet();
    for (const auto& child : children)
        child->expect_success();
    EXPECT_TRUE(holds(parents, 0, kPage, 1));
    allocate(context.get(), kAll - kPage);
}

// A library that calls the kernel itself to map (those that watch mmap do) sees the same memory as
// the device all the same.
TEST(DeviceMemory, MappedPastTheLibrary) {
    Pair pair;
    const int fd = pair.a.context->cmd_fd;
    std::uint16_t page = 0;
    std::uint64_t start = 0;
    IoctlRequest alloc(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
    alloc.add(UVERBS_ATTR_ALLOC_DM_HANDLE, 0);
    alloc.add(UVERBS_ATTR_ALLOC_DM_LENGTH, 2 * kPage, 8);
    alloc.add(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, 0, 4);
    alloc.add(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, reinterpret_cast<std::uint64_t>(&start), 8);
    alloc.add(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, reinterpret_cast<std::uint64_t>(&page), 2);
    ASSERT_EQ(alloc.run(fd), 0);
    const std::uint64_t offset = std::uint64_t{MLX5_IB_MMAP_DEVICE_MEM} << 8 | page;
    auto* at = reinterpret_cast<std::uint8_t*>(syscall(
        SYS_mmap, nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset * kPage));
    ASSERT_NE(at, MAP_FAILED);
    std::uint32_t lkey = 0, rkey = 0;
    IoctlRequest reg(UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG);
    reg.add(UVERBS_ATTR_REG_DM_MR_HANDLE, 0);
    reg.add(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, reinterpret_cast<std::uint64_t>(&lkey), 4);
    reg.add(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, reinterpret_cast<std::uint64_t>(&rkey), 4);
    reg.add(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, pair.a.pd->handle);
    reg.add(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, alloc.handle(0));
    reg.add(UVERBS_ATTR_REG_DM_MR_OFFSET, kPage, 8);
    reg.add(UVERBS_ATTR_REG_DM_MR_LENGTH, kPage, 8);
    reg.add(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, kAccess, 4);
    ASSERT_EQ(reg.run(fd), 0);
    fill_pattern(at + kPage, 1000, 4);
    Work write;
    write.opcode = IBV_WR_RDMA_WRITE;
    write.sges = {{0, 1000, lkey}};
    write.remote = pair.b.memory->address();
    write.rkey = pair.b.memory->mr()->rkey;
    ASSERT_TRUE(pair.a.run(write));
    EXPECT_TRUE(pair.b.memory->holds(0, 1000, 4));
    pair.b.memory->fill(0, 2000, 5);
    Work back = write;
    back.sges = {pair.b.memory->sge(0, 2000)};
    back.remote = 2000;
    back.rkey = rkey;
    ASSERT_TRUE(pair.b.run(back));
    EXPECT_TRUE(has_pattern(at + kPage + 2000, 2000, 5));
    munmap(at, 2 * kPage);
    IoctlRequest dereg(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
    dereg.add(UVERBS_ATTR_CORE_IN, reg.handle(0), sizeof(ib_uverbs_dereg_mr));
    dereg.add(UVERBS_ATTR_WRITE_CMD, IB_USER_VERBS_CMD_DEREG_MR, 8);
    ASSERT_EQ(dereg.run(fd), 0);
    IoctlRequest free(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE);
    free.add(UVERBS_ATTR_FREE_DM_HANDLE, alloc.handle(0));
    EXPECT_EQ(free.run(fd), 0);
}

}  // namespace
}  // namespace softhca::test
