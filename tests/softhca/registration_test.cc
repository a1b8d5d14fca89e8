// SPDX-License-Identifier: BSD-2-Clause
// Memory registration (IBTA 10.6, 11.2.9) over any kind of application memory: heap, stack,
// static data, shared and private file mappings, read-only pages, huge regions, overlapping
// regions, an iova of its own, and re-registration. RDMA WRITE and READ must see the same bytes as
// the program does, before and after, and other memory must not be disturbed. Wrong calls are
// refused.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "segment_file.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

std::uint8_t static_memory[3 * 4096 + 100];

Owned<ibv_mr> register_memory(ibv_pd* pd, void* address, std::size_t length,
                              int access = kAllAccess) {
    return Owned<ibv_mr>(ibv_reg_mr(pd, address, length, access));
}

// A peer in another process writes `length` bytes of pattern `seed` to `address` and reads back
// what the program then stores there.
class Registration : public testing::Test {
protected:
    void SetUp() override {
        child_ = std::make_unique<Child>([](Channel& channel) {
            Endpoint e;
            connect_over(channel, e);
            for (;;) {
                const auto order = channel.receive<Order>();
                if (order.length == 0) break;
                Work work;
                work.opcode = order.read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
                work.remote = order.address;
                work.rkey = order.rkey;
                work.sges = {e.memory->sge(0, order.length)};
                if (!order.read) e.memory->fill(0, order.length, order.seed);
                ASSERT_EQ(e.post(work), 0);
                const ibv_wc wc = e.wait_send();
                const bool good = wc.status == IBV_WC_SUCCESS &&
                                  (!order.read || e.memory->holds(0, order.length, order.seed));
                EXPECT_EQ(good, order.good) << describe(wc);
                channel.send(good);
            }
        });
        local = std::make_unique<Endpoint>();
        connect_over(child_->channel(), *local);
    }
    void TearDown() override {
        if (!HasFatalFailure()) {
            child_->channel().send(Order{});
            child_->expect_success();
        }
    }

    struct Order {
        std::uint64_t address = 0;
        std::uint64_t length = 0;
        std::uint32_t rkey = 0;
        std::uint32_t seed = 0;
        bool read = false;
        bool good = true;
    };
    bool peer(Order order) {
        child_->channel().send(order);
        return child_->channel().receive<bool>();
    }

    // Both directions, with program stores in between, at several places of the range.
    void exercise(std::uint8_t* memory, std::size_t length, std::uint32_t rkey,
                  std::uint64_t remote_base = 0) {
        if (remote_base == 0) remote_base = reinterpret_cast<std::uint64_t>(memory);
        std::uint32_t seed = 1;
        for (const std::size_t offset :
             {std::size_t{0}, length / 3, length - std::min<std::size_t>(length, 3000)}) {
            const std::size_t part = std::min<std::size_t>(3000, length - offset);
            Order order{remote_base + offset, part, rkey, ++seed};
            ASSERT_TRUE(peer(order)) << "RDMA WRITE at " << offset;
            EXPECT_TRUE(has_pattern(memory + offset, part, seed)) << "RDMA WRITE at " << offset;
            fill_pattern(memory + offset, part, ++seed);
            order.seed = seed;
            order.read = true;
            ASSERT_TRUE(peer(order)) << "RDMA READ at " << offset;
        }
    }

    std::unique_ptr<Endpoint> local;

private:
    std::unique_ptr<Child> child_;
};

// libibverbs drops optional access unless the kernel says that it takes it (ibv_reg_mr_iova2).
TEST_F(Registration, TakesOptionalAccess) {
    const SegmentFile segment;
    // What the device may do with the region of that key (IBV_ACCESS_...).
    const auto access_of = [&](std::uint32_t key) {
        const device::MemoryRegion& region = segment->mrs[key >> 8];
        EXPECT_TRUE(region.head.live() && region.key == key);
        return region.access;
    };
    std::vector<std::uint8_t> memory(3000);
    for (unsigned flag = IBV_ACCESS_OPTIONAL_FIRST; (flag & IBV_ACCESS_OPTIONAL_RANGE) != 0;
         flag <<= 1) {
        SCOPED_TRACE(testing::Message() << std::hex << flag);
        const auto mr = register_memory(local->pd.get(), memory.data(), memory.size(),
                                        kAllAccess | static_cast<int>(flag));
        ASSERT_TRUE(mr) << std::strerror(errno);
        EXPECT_EQ(access_of(mr->rkey), unsigned{kAllAccess} | flag);
        exercise(memory.data(), memory.size(), mr->rkey);
    }
    // The bits around the range ask for what must be there.
    for (const unsigned flag : {1U << 19, 1U << 30})
        EXPECT_FALSE(register_memory(local->pd.get(), memory.data(), memory.size(),
                                     kAllAccess | static_cast<int>(flag)));
}

TEST_F(Registration, OfTheHeapAtOddPlaces) {
    // Small ranges of one heap page, with neighbours that the program keeps changing.
    std::vector<std::unique_ptr<std::uint8_t[]>> blocks;
    std::vector<Owned<ibv_mr>> regions;
    for (std::size_t i = 0; i < 40; ++i) {
        blocks.push_back(std::make_unique<std::uint8_t[]>(1000 + i));
        std::memset(blocks[i].get(), static_cast<int>(i), 1000 + i);
        if (i % 2 == 0) {
            regions.push_back(register_memory(local->pd.get(), blocks[i].get(), 1000 + i));
            ASSERT_TRUE(regions.back()) << std::strerror(errno);
        }
    }
    for (std::size_t i = 0; i < 40; i += 2) {
        exercise(blocks[i].get(), 1000 + i, regions[i / 2]->rkey);
        for (std::size_t k = 0; k < 1000 + i + 1; ++k)
            ASSERT_EQ(blocks[i + 1][k], i + 1) << "a neighbour was changed";
    }
    // One byte more is refused although it is the program's memory.
    Order beyond{reinterpret_cast<std::uint64_t>(blocks[0].get()) + 1,
                 1000,
                 regions[0]->rkey,
                 1,
                 false,
                 false};
    EXPECT_FALSE(peer(beyond));
}

TEST_F(Registration, OfLargeHeapMemory) {
    const std::size_t length = 24u << 20;
    auto* memory = static_cast<std::uint8_t*>(std::malloc(length));
    ASSERT_NE(memory, nullptr);
    fill_pattern(memory, length, 77);
    auto mr = register_memory(local->pd.get(), memory, length);
    ASSERT_TRUE(mr);
    EXPECT_TRUE(has_pattern(memory, length, 77)) << "registering keeps the contents";
    exercise(memory, length, mr->rkey);
    mr.reset();
    std::free(memory);
}

TEST_F(Registration, OfTheStackAndStaticData) {
    std::uint8_t stack[20000];
    std::memset(stack, 3, sizeof stack);
    const auto on_stack = register_memory(local->pd.get(), stack + 100, sizeof stack - 200);
    ASSERT_TRUE(on_stack) << std::strerror(errno);
    exercise(stack + 100, sizeof stack - 200, on_stack->rkey);
    EXPECT_EQ(stack[99], 3);
    EXPECT_EQ(stack[sizeof stack - 100], 3);
    const auto in_data =
        register_memory(local->pd.get(), static_memory + 5, sizeof static_memory - 10);
    ASSERT_TRUE(in_data) << std::strerror(errno);
    exercise(static_memory + 5, sizeof static_memory - 10, in_data->rkey);
}

TEST_F(Registration, OfFileMappings) {
    char path[] = "/tmp/registration_XXXXXX";
    const int file = mkstemp(path);
    ASSERT_GE(file, 0);
    unlink(path);
    std::vector<std::uint8_t> contents(40000);
    fill_pattern(contents.data(), contents.size(), 9);
    ASSERT_EQ(write(file, contents.data(), contents.size()), 40000);
    for (const int kind : {MAP_SHARED, MAP_PRIVATE}) {
        SCOPED_TRACE(kind == MAP_SHARED ? "shared" : "private");
        void* mapped = mmap(nullptr, 40000, PROT_READ | PROT_WRITE, kind, file, 0);
        ASSERT_NE(mapped, MAP_FAILED);
        auto* memory = static_cast<std::uint8_t*>(mapped);
        auto mr = register_memory(local->pd.get(), memory, 40000);
        ASSERT_TRUE(mr) << std::strerror(errno);
        exercise(memory, 40000, mr->rkey);
        std::uint8_t in_file[3000];
        ASSERT_EQ(pread(file, in_file, sizeof in_file, 0), 3000);
        EXPECT_EQ(std::memcmp(in_file, memory, sizeof in_file) == 0, kind == MAP_SHARED)
            << "a shared mapping stays the file's, a private one does not reach it";
        mr.reset();
        munmap(mapped, 40000);
        ASSERT_EQ(pwrite(file, contents.data(), contents.size(), 0), 40000);
    }
    close(file);
}

TEST_F(Registration, OfReadOnlyMemory) {
    void* mapped = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto* memory = static_cast<std::uint8_t*>(mapped);
    fill_pattern(memory, 8192, 4);
    ASSERT_EQ(mprotect(memory, 8192, PROT_READ), 0);
    EXPECT_FALSE(register_memory(local->pd.get(), memory, 8192)) << "it cannot be written";
    EXPECT_EQ(errno, EFAULT);
    const auto mr = register_memory(local->pd.get(), memory, 8192, IBV_ACCESS_REMOTE_READ);
    ASSERT_TRUE(mr) << std::strerror(errno);
    EXPECT_TRUE(peer({reinterpret_cast<std::uint64_t>(memory), 8192, mr->rkey, 4, true}));
    EXPECT_TRUE(has_pattern(memory, 8192, 4));
}

// Overlapping and nested regions; deregistering one must not take the pages from another.
TEST_F(Registration, OfOverlappingRanges) {
    void* mapped =
        mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto* memory = static_cast<std::uint8_t*>(mapped);
    auto whole = register_memory(local->pd.get(), memory, 1 << 20);
    auto middle = register_memory(local->pd.get(), memory + 100000, 300000);
    auto later = register_memory(local->pd.get(), memory + 200000, 600000);
    ASSERT_TRUE(whole && middle && later);
    exercise(memory + 100000, 300000, middle->rkey);
    middle.reset();
    exercise(memory, 1 << 20, whole->rkey);
    whole.reset();
    exercise(memory + 200000, 600000, later->rkey);
    for (int i = 0; i < 20; ++i) {
        whole = register_memory(local->pd.get(), memory, 1 << 20);
        ASSERT_TRUE(whole);
        exercise(memory, 1 << 20, whole->rkey);
        whole.reset();
    }
    later.reset();
    munmap(mapped, 1 << 20);
}

// The same addresses mapped anew are other memory: the old registration must not leak into it.
TEST_F(Registration, OfMemoryThatWasUnmappedAndMappedAnew) {
    const std::size_t length = 1 << 20;
    void* fixed = mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (std::uint32_t round = 0; round < 10; ++round) {
        auto* memory = static_cast<std::uint8_t*>(mmap(
            fixed, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
        ASSERT_EQ(memory, fixed);
        ASSERT_EQ(memory[5000], 0) << "fresh memory is zero";
        auto mr = register_memory(local->pd.get(), memory, length);
        ASSERT_TRUE(mr);
        exercise(memory, length, mr->rkey);
        mr.reset();
        munmap(memory, length);
    }
}

// What the kernel says of the mapping at this address: the two-letter flags of smaps.
std::string flags_of(const void* address) {
    std::ifstream smaps("/proc/self/smaps");
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    bool here = false;
    for (std::string line; std::getline(smaps, line);) {
        std::uintptr_t start, end;
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2)
            here = start <= at && at < end;
        else if (here && line.starts_with("VmFlags:"))
            return line + ' ';
    }
    return {};
}

// Secrets: pages that are not dumped, and pages that children find empty.
TEST_F(Registration, KeepsAdviceAboutDumpsAndChildren) {
    constexpr std::size_t kPart = 8 * 4096;
    for (const int advice : {MADV_DONTDUMP, MADV_WIPEONFORK}) {
        const char* const flag = advice == MADV_DONTDUMP ? " dd " : " wf ";
        SCOPED_TRACE(flag);
        auto* memory = static_cast<std::uint8_t*>(
            mmap(nullptr, 3 * kPart, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        ASSERT_NE(memory, MAP_FAILED);
        std::memset(memory, 0x5a, 3 * kPart);
        std::uint8_t* const secret = memory + kPart;
        ASSERT_EQ(madvise(secret, kPart, advice), 0) << std::strerror(errno);
        ASSERT_NE(flags_of(secret).find(flag), std::string::npos) << flags_of(secret);
        auto mr = register_memory(local->pd.get(), memory, 3 * kPart);
        ASSERT_TRUE(mr) << std::strerror(errno);
        EXPECT_NE(flags_of(secret).find(flag), std::string::npos) << flags_of(secret);
        EXPECT_NE(flags_of(secret + kPart - 1).find(flag), std::string::npos);
        exercise(memory, 3 * kPart, mr->rkey);
        std::memset(memory, 0x5a, 3 * kPart);
        const pid_t child = fork();
        if (child == 0) {
            const bool wiped = secret[0] == 0 && secret[kPart - 1] == 0;
            const bool others = memory[kPart - 1] == 0x5a && secret[kPart] == 0x5a;
            _exit((wiped ? 1 : 0) | (others ? 2 : 0));
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status));
        EXPECT_EQ(WEXITSTATUS(status), advice == MADV_WIPEONFORK ? 3 : 2);
        mr.reset();
        EXPECT_NE(flags_of(secret).find(flag), std::string::npos) << flags_of(secret);
        munmap(memory, 3 * kPart);
    }
}

// Advice that was taken back, and mappings that are gone, are no reason any more.
TEST_F(Registration, SharesAgainWhatMayBeDumpedAgain) {
    constexpr std::size_t kBytes = 16 * 4096;
    auto* memory = static_cast<std::uint8_t*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory, MAP_FAILED);
    const auto is_shared = [&] {
        auto mr = register_memory(local->pd.get(), memory, kBytes);
        EXPECT_TRUE(mr) << std::strerror(errno);
        return flags_of(memory).find(" sh ") != std::string::npos;
    };
    const bool shares = is_shared();  // it may not be possible here, or not wanted
    ASSERT_EQ(madvise(memory, kBytes, MADV_DONTDUMP), 0);
    EXPECT_FALSE(is_shared());
    ASSERT_EQ(madvise(memory, kBytes, MADV_DODUMP), 0);
    EXPECT_EQ(is_shared(), shares);
    munmap(memory, kBytes);
}

TEST_F(Registration, WithAnIovaOfItsOwn) {
    const Memory memory(local->pd.get(), 65536);
    const std::uint64_t iova = 0x12340000;
    const Owned<ibv_mr> mr(
        ibv_reg_mr_iova(local->pd.get(), memory.data(), 65536, iova, kAllAccess));
    ASSERT_TRUE(mr) << std::strerror(errno);
    exercise(memory.data(), 65536, mr->rkey, iova);
    // Local keys take the iova too.
    Pair pair;
    Endpoint sender({}, local.get());
    Endpoint receiver({}, local.get());
    sender.connect(receiver.address());
    receiver.connect(sender.address());
    memory.fill(100, 500, 5);
    Work work;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.sges = {{iova + 100, 500, mr->lkey}};
    ASSERT_TRUE(sender.run(work));
    EXPECT_TRUE(receiver.memory->holds(0, 500, 5));
}

TEST_F(Registration, Again) {
    const Memory first(local->pd.get(), 65536);
    const Memory second(local->pd.get(), 65536);
    Owned<ibv_mr> mr(ibv_reg_mr(local->pd.get(), first.data(), 65536, kAllAccess));
    ASSERT_TRUE(mr);
    exercise(first.data(), 65536, mr->rkey);
    ASSERT_EQ(
        ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, second.data(), 65536, 0),
        0);
    exercise(second.data(), 65536, mr->rkey);
    ASSERT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ),
              0);
    EXPECT_FALSE(peer({second.address(), 64, mr->rkey, 1, false, false})) << "remote write is off";
}

TEST(RegistrationErrors, AreThoseOfTheKernel) {
    Endpoint e;
    ibv_pd* pd = e.pd.get();
    std::uint8_t byte = 0;
    EXPECT_FALSE(register_memory(pd, &byte, 1, IBV_ACCESS_REMOTE_WRITE));
    EXPECT_EQ(errno, EINVAL) << "remote write needs local write";
    EXPECT_FALSE(register_memory(pd, &byte, 1, IBV_ACCESS_REMOTE_ATOMIC));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(register_memory(pd, &byte, 0));
    EXPECT_EQ(errno, EINVAL) << "no length";
    EXPECT_FALSE(register_memory(pd, reinterpret_cast<void*>(0x1000), 4096));
    EXPECT_EQ(errno, EFAULT) << "not mapped";
    EXPECT_FALSE(register_memory(pd, &byte, ~std::size_t{0} - 4096));
    EXPECT_TRUE(errno == EINVAL || errno == EFAULT || errno == ENOMEM) << "wraps around";
    void* hole =
        mmap(nullptr, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(static_cast<char*>(hole) + 4096, 4096);
    EXPECT_FALSE(register_memory(pd, hole, 3 * 4096));
    EXPECT_EQ(errno, EFAULT) << "a hole in the middle";
}

TEST(RegistrationErrors, DomainInUseIsBusy) {
    Endpoint e;
    const Owned<ibv_pd> pd(check(ibv_alloc_pd(e.context.get()), "ibv_alloc_pd"));
    Memory memory(pd.get(), 4096);
    EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
    memory.deregister();
}

// A memory key is not given out again at once: a stale key must fail.
TEST(RegistrationErrors, StaleKeysFail) {
    Pair pair;
    std::vector<std::uint32_t> old;
    Memory memory(pair.b.pd.get(), 4096);
    for (int i = 0; i < 100; ++i) {
        const Owned<ibv_mr> mr(ibv_reg_mr(pair.b.pd.get(), memory.data(), 4096, kAllAccess));
        ASSERT_TRUE(mr);
        for (const std::uint32_t key : old)
            ASSERT_NE(key, mr->rkey);
        old.push_back(mr->rkey);
    }
}

}  // namespace
}  // namespace softhca::test
