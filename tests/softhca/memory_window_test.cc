// SPDX-License-Identifier: BSD-2-Clause
// Memory windows of types 1 and 2B (IBTA 10.6.7.2, 9.4.1.1.3; ibv_bind_mw(3)): what a bind gives,
// what it is refused for, and that nothing is left after each way to end one.
#include <cerrno>
#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

constexpr int kBindable = kAllAccess | IBV_ACCESS_MW_BIND;
constexpr std::size_t kFrom = 4096, kBytes = 8192;

struct FreeWindow {
    void operator()(ibv_mw* window) const { EXPECT_EQ(ibv_dealloc_mw(window), 0); }
};
using Window = std::unique_ptr<ibv_mw, FreeWindow>;

Window make_window(ibv_pd* pd, ibv_mw_type type) {
    return Window(check(ibv_alloc_mw(pd, type), "a memory window"));
}

// b has the memory and binds its windows by its own QP; a reaches for them.
class MemoryWindows : public testing::Test {
protected:
    MemoryWindows() : pair_(Endpoint::Options{}), memory_(pair_.b.pd.get(), 1 << 16, kBindable) {
        memory_.fill(0, memory_.size(), 7);
    }

    ibv_mw_bind_info part(unsigned access, std::size_t from = kFrom,
                          std::size_t bytes = kBytes) const {
        return {.mr = memory_.mr(),
                .addr = memory_.address(from),
                .length = bytes,
                .mw_access_flags = access};
    }
    // Type 1: returns the status of the bind.
    ibv_wc bind(ibv_mw* window, const ibv_mw_bind_info& info) {
        ibv_mw_bind bind{.wr_id = 11, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
        EXPECT_EQ(ibv_bind_mw(pair_.b.qp.get(), window, &bind), 0);
        return pair_.b.wait_send();
    }
    // Type 2.
    static ibv_wc bind(Endpoint& by, ibv_mw* window, std::uint32_t key,
                       const ibv_mw_bind_info& info) {
        ibv_send_wr wr{}, *bad;
        wr.wr_id = 12;
        wr.opcode = IBV_WR_BIND_MW;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.bind_mw = {.mw = window, .rkey = key, .bind_info = info};
        EXPECT_EQ(ibv_post_send(by.qp.get(), &wr, &bad), 0);
        return by.wait_send();
    }
    static ibv_wc invalidate(Endpoint& by, std::uint32_t key) {
        ibv_send_wr wr{}, *bad;
        wr.wr_id = 13;
        wr.opcode = IBV_WR_LOCAL_INV;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.invalidate_rkey = key;
        EXPECT_EQ(ibv_post_send(by.qp.get(), &wr, &bad), 0);
        return by.wait_send();
    }
    int send_invalidating(std::uint32_t key) {
        ibv_sge sge = pair_.a.memory->sge(0, 16);
        ibv_send_wr wr{}, *bad;
        wr.wr_id = 14;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND_WITH_INV;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.invalidate_rkey = key;
        return ibv_post_send(pair_.a.qp.get(), &wr, &bad);
    }
    ibv_wc reach(ibv_wr_opcode opcode, std::uint32_t key, std::uint64_t address,
                 std::size_t bytes = 64) {
        Work work;
        work.opcode = opcode;
        work.sges = {pair_.a.memory->sge(0, bytes)};
        work.rkey = key;
        work.remote = address;
        EXPECT_EQ(pair_.a.post(work), 0);
        return pair_.a.wait_send();
    }
    ibv_wc write(std::uint32_t key, std::uint64_t address, std::size_t bytes = 64) {
        pair_.a.memory->fill(0, bytes, 99);
        return reach(IBV_WR_RDMA_WRITE, key, address, bytes);
    }
    void expect_no_access(std::uint32_t key, std::uint64_t address, std::size_t bytes = 64) {
        std::memset(memory_.data(), 0xee, memory_.size());
        EXPECT_TRUE(
            has_status(write(key, address, bytes), IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess));
        EXPECT_TRUE(memory_.untouched(0, memory_.size(), 0xee));
    }

    Pair pair_;
    Memory memory_;
};

constexpr unsigned kWrites = IBV_ACCESS_REMOTE_WRITE;

TEST_F(MemoryWindows, DeviceSaysThatItHasThem) {
    ibv_device_attr device{};
    ASSERT_EQ(ibv_query_device(pair_.a.context.get(), &device), 0);
    EXPECT_NE(device.device_cap_flags & IBV_DEVICE_MEM_WINDOW, 0u);
    EXPECT_NE(device.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B, 0u);
    EXPECT_EQ(device.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A, 0u);
    EXPECT_GE(device.max_mw, 1000);
}

TEST_F(MemoryWindows, TypeOneGivesWhatItsBindSays) {
    const Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_1);
    const std::uint32_t before = window->rkey;
    const ibv_wc bound =
        bind(window.get(), part(kWrites | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
    ASSERT_TRUE(succeeded(bound));
    EXPECT_EQ(bound.wr_id, 11u);
    EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);
    EXPECT_NE(window->rkey, before);
    // All of it, to its last byte.
    ASSERT_TRUE(succeeded(write(window->rkey, memory_.address(kFrom), kBytes)));
    EXPECT_TRUE(has_pattern(memory_.data() + kFrom, kBytes, 99));
    EXPECT_TRUE(memory_.holds(0, kFrom, 7));
    ASSERT_TRUE(succeeded(reach(IBV_WR_RDMA_READ, window->rkey, memory_.address(kFrom + 8), 32)));
    EXPECT_EQ(std::memcmp(pair_.a.memory->data(), memory_.data() + kFrom + 8, 32), 0);
    ASSERT_TRUE(
        succeeded(reach(IBV_WR_ATOMIC_FETCH_AND_ADD, window->rkey, memory_.address(kFrom), 8)));
    expect_no_access(window->rkey, memory_.address(kFrom + kBytes - 63));
}

TEST_F(MemoryWindows, BytesBeforeItAreNotItsOwn) {
    const Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_1);
    ASSERT_TRUE(succeeded(bind(window.get(), part(kWrites))));
    expect_no_access(window->rkey, memory_.address(kFrom - 1));
}

TEST_F(MemoryWindows, RightsAreThoseOfTheBind) {
    const Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_1);
    ASSERT_TRUE(succeeded(bind(window.get(), part(IBV_ACCESS_REMOTE_READ))));
    ASSERT_TRUE(succeeded(reach(IBV_WR_RDMA_READ, window->rkey, memory_.address(kFrom))));
    expect_no_access(window->rkey, memory_.address(kFrom));
}

// The region itself need not allow remote access: windows are how a peer gets any.
TEST_F(MemoryWindows, RegionNeedsLocalRightsOnly) {
    const Memory plain(pair_.b.pd.get(), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    const Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_1);
    ASSERT_TRUE(succeeded(bind(window.get(), {plain.mr(), plain.address(), 4096, kWrites})));
    ASSERT_TRUE(succeeded(write(window->rkey, plain.address(128))));
    EXPECT_TRUE(has_pattern(plain.data() + 128, 64, 99));
}

TEST_F(MemoryWindows, KeyOfTheBindBeforeIsOver) {
    const Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_1);
    ASSERT_TRUE(succeeded(bind(window.get(), part(kWrites))));
    const std::uint32_t first = window->rkey;
    ASSERT_TRUE(succeeded(bind(window.get(), part(kWrites, 0, 4096))));
    ASSERT_TRUE(succeeded(write(window->rkey, memory_.address(0))));
    expect_no_access(first, memory_.address(0));
}

TEST_F(MemoryWindows, BindOfNothingEndsIt) {
    const Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_1);
    ASSERT_TRUE(succeeded(bind(window.get(), part(kWrites))));
    ASSERT_TRUE(succeeded(write(window->rkey, memory_.address(kFrom))));
    ASSERT_TRUE(succeeded(bind(window.get(), part(0, kFrom, 0))));
    expect_no_access(window->rkey, memory_.address(kFrom));
}

TEST_F(MemoryWindows, BindsThatAreRefused) {
    const Memory unbindable(pair_.b.pd.get(), 4096);
    const Memory readable(pair_.b.pd.get(), 4096, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND);
    const struct {
        const char* what;
        ibv_mw_bind_info info;
    } cases[] = {
        {"a region without MW_BIND", {unbindable.mr(), unbindable.address(), 64, kWrites}},
        {"writes to a region that is not written",
         {readable.mr(), readable.address(), 64, kWrites}},
        {"bytes behind the region", part(kWrites, memory_.size() - 64, 65)},
        {"bytes before the region", {memory_.mr(), memory_.address() - 1, 64, kWrites}},
    };
    for (const auto& [what, info] : cases) {
        SCOPED_TRACE(what);
        // In the PD of the regions; a QP of its own, as each error ends one.
        Endpoint by({}, &pair_.b), other({}, &pair_.b);
        by.connect(other.address());
        other.connect(by.address());
        const Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_1);
        ibv_mw_bind request{.wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
        ASSERT_EQ(ibv_bind_mw(by.qp.get(), window.get(), &request), 0);
        EXPECT_EQ(by.wait_send().status, IBV_WC_MW_BIND_ERR);
        EXPECT_EQ(state_of(by.qp.get()), IBV_QPS_ERR);
    }
}

TEST_F(MemoryWindows, TypeTwoHasTheKeyThatItsOwnerChose) {
    const Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_2);
    const std::uint32_t key = (window->rkey & ~0xffu) | 0x5a;
    const ibv_wc bound = bind(pair_.b, window.get(), key, part(kWrites));
    ASSERT_TRUE(succeeded(bound));
    EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);
    ASSERT_TRUE(succeeded(write(key, memory_.address(kFrom), kBytes)));
    EXPECT_TRUE(has_pattern(memory_.data() + kFrom, kBytes, 99));
    expect_no_access(key ^ 1, memory_.address(kFrom));
}

TEST_F(MemoryWindows, ZeroBasedBeginsAtZero) {
    const Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_2);
    const std::uint32_t key = ibv_inc_rkey(window->rkey);
    ASSERT_TRUE(succeeded(bind(pair_.b, window.get(), key, part(kWrites | IBV_ACCESS_ZERO_BASED))));
    ASSERT_TRUE(succeeded(write(key, 100)));
    EXPECT_TRUE(has_pattern(memory_.data() + kFrom + 100, 64, 99));
    expect_no_access(key, memory_.address(kFrom));
}

TEST_F(MemoryWindows, TypeTwoIsInvalidatedByItsOwner) {
    const Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_2);
    std::uint32_t key = ibv_inc_rkey(window->rkey);
    ASSERT_TRUE(succeeded(bind(pair_.b, window.get(), key, part(kWrites))));
    ASSERT_TRUE(succeeded(write(key, memory_.address(kFrom))));
    const ibv_wc over = invalidate(pair_.b, key);
    ASSERT_TRUE(succeeded(over));
    EXPECT_EQ(over.opcode, IBV_WC_LOCAL_INV);
    // It may be bound again, and the first key does not come back.
    window->rkey = key;
    const std::uint32_t next = ibv_inc_rkey(key);
    ASSERT_TRUE(succeeded(bind(pair_.b, window.get(), next, part(kWrites, 0))));
    ASSERT_TRUE(succeeded(write(next, memory_.address(0))));
    expect_no_access(key, memory_.address(0));
}

TEST_F(MemoryWindows, TypeTwoIsInvalidatedByAMessage) {
    const Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_2);
    const std::uint32_t key = ibv_inc_rkey(window->rkey);
    ASSERT_TRUE(succeeded(bind(pair_.b, window.get(), key, part(kWrites))));
    ASSERT_TRUE(succeeded(write(key, memory_.address(kFrom))));
    ASSERT_EQ(pair_.b.post_receive(21, {pair_.b.memory->sge(0, 64)}), 0);
    ASSERT_EQ(send_invalidating(key), 0);
    ASSERT_TRUE(succeeded(pair_.a.wait_send()));
    const ibv_wc received = pair_.b.wait_receive();
    ASSERT_TRUE(succeeded(received));
    EXPECT_EQ(received.byte_len, 16u);
    EXPECT_NE(received.wc_flags & IBV_WC_WITH_INV, 0u);
    EXPECT_EQ(received.invalidated_rkey, key);
    expect_no_access(key, memory_.address(kFrom));
}

TEST_F(MemoryWindows, MessageThatNamesNoWindowEndsTheConnection) {
    std::memset(pair_.b.memory->data(), 0xee, 64);
    ASSERT_EQ(pair_.b.post_receive(21, {pair_.b.memory->sge(0, 64)}), 0);
    ASSERT_EQ(send_invalidating(memory_.mr()->rkey), 0);
    EXPECT_EQ(pair_.a.wait_send().status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_NE(pair_.b.wait_receive().status, IBV_WC_SUCCESS);
    EXPECT_EQ(state_of(pair_.b.qp.get()), IBV_QPS_ERR);
    EXPECT_TRUE(pair_.b.memory->untouched(0, 64, 0xee));
}

// Type 2B belongs to the QP that bound it.
TEST_F(MemoryWindows, TypeTwoIsOfOneQueuePair) {
    Endpoint mine({}, &pair_.b), peer({}, &pair_.a);
    mine.connect(peer.address());
    peer.connect(mine.address());
    const Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_2);
    const std::uint32_t key = ibv_inc_rkey(window->rkey);
    ASSERT_TRUE(succeeded(bind(mine, window.get(), key, part(kWrites))));
    Work work;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.sges = {peer.memory->sge(0, 64)};
    work.rkey = key;
    work.remote = memory_.address(kFrom);
    EXPECT_TRUE(peer.run(work));
    // Neither writes nor invalidations of another QP.
    EXPECT_EQ(invalidate(pair_.b, key).status, IBV_WC_MW_BIND_ERR);
    EXPECT_TRUE(peer.run(work));
    Endpoint owner({}, &pair_.b), stranger({}, &pair_.a);
    owner.connect(stranger.address());
    stranger.connect(owner.address());
    work.sges = {stranger.memory->sge(0, 64)};
    ASSERT_EQ(stranger.post(work), 0);
    EXPECT_TRUE(has_status(stranger.wait_send(), IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess));
}

TEST_F(MemoryWindows, BoundTypeTwoIsNotBoundAgain) {
    const Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_2);
    const std::uint32_t key = ibv_inc_rkey(window->rkey);
    ASSERT_TRUE(succeeded(bind(pair_.b, window.get(), key, part(kWrites))));
    window->rkey = key;
    EXPECT_EQ(bind(pair_.b, window.get(), ibv_inc_rkey(key), part(kWrites, 0)).status,
              IBV_WC_MW_BIND_ERR);
}

TEST_F(MemoryWindows, InvalidationOfNoWindowIsAnError) {
    EXPECT_EQ(invalidate(pair_.b, memory_.mr()->rkey).status, IBV_WC_MW_BIND_ERR);
}

TEST_F(MemoryWindows, EndWithTheirRegion) {
    const Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_1);
    {
        const Memory region(pair_.b.pd.get(), 1 << 16, kBindable);
        ASSERT_TRUE(succeeded(bind(window.get(), {region.mr(), memory_.address(), 0, 0})));
        ASSERT_TRUE(succeeded(bind(window.get(), {region.mr(), region.address(), 4096, kWrites})));
        ASSERT_TRUE(succeeded(write(window->rkey, region.address())));
    }
    const Memory next(pair_.b.pd.get(), 1 << 16, kBindable);  // likely the same record
    EXPECT_TRUE(has_status(write(window->rkey, next.address()), IBV_WC_REM_ACCESS_ERR,
                           kVendorRemoteAccess));
}

TEST_F(MemoryWindows, EndWhenTheyAreFreed) {
    Window window = make_window(pair_.b.pd.get(), IBV_MW_TYPE_1);
    ASSERT_TRUE(succeeded(bind(window.get(), part(kWrites))));
    const std::uint32_t key = window->rkey;
    EXPECT_EQ(ibv_dealloc_pd(pair_.b.pd.get()), EBUSY);
    window.reset();
    const Window next = make_window(pair_.b.pd.get(), IBV_MW_TYPE_1);
    expect_no_access(key, memory_.address(kFrom));
}

TEST_F(MemoryWindows, OnlyTypesOneAndTwo) {
    for (const int type : {0, 3, 255}) {
        errno = 0;
        EXPECT_EQ(ibv_alloc_mw(pair_.b.pd.get(), static_cast<ibv_mw_type>(type)), nullptr);
        EXPECT_EQ(errno, EINVAL) << type;
    }
}

// Type 1 is of no QP, so the other transports that have RDMA reach it, too.
class TypeOneWindow : public testing::TestWithParam<Transport> {};

TEST_P(TypeOneWindow, IsWritten) {
    Endpoint::Options options;
    options.transport = GetParam();
    Pair pair(options);
    const Memory memory(pair.b.pd.get(), 1 << 16, kBindable);
    const Window window = make_window(pair.b.pd.get(), IBV_MW_TYPE_1);
    ibv_mw_bind bind{.wr_id = 1,
                     .send_flags = IBV_SEND_SIGNALED,
                     .bind_info = {memory.mr(), memory.address(kFrom), kBytes, kWrites}};
    ASSERT_EQ(ibv_bind_mw(pair.b.qp.get(), window.get(), &bind), 0);
    ASSERT_TRUE(succeeded(pair.b.wait_send()));
    pair.a.memory->fill(0, kBytes, 3);
    Work work = write_of(pair.a, kBytes);
    work.rkey = window->rkey;
    work.remote = memory.address(kFrom);
    EXPECT_TRUE(pair.a.run(work));
    EXPECT_TRUE(has_pattern(memory.data() + kFrom, kBytes, 3));
}

INSTANTIATE_TEST_SUITE_P(Each, TypeOneWindow, testing::Values(Transport::kUc, Transport::kXrc),
                         [](const auto& info) { return name(info.param); });

// A peer in another process, for both memory paths: a window over memory that is shared, and over
// memory that is not.
TEST(MemoryWindowsOfProcesses, AreWrittenByAPeer) {
    constexpr std::uint32_t kSeed = 5;
    run_sides(
        Placement::kProcesses,
        [](Channel& channel) {
            Endpoint e;
            connect_over(channel, e);
            const Memory memory(e.pd.get(), 1 << 16, kBindable);
            const Window window = make_window(e.pd.get(), IBV_MW_TYPE_2);
            ibv_send_wr wr{}, *bad;
            wr.opcode = IBV_WR_BIND_MW;
            wr.send_flags = IBV_SEND_SIGNALED;
            wr.bind_mw = {window.get(),
                          ibv_inc_rkey(window->rkey),
                          {memory.mr(), memory.address(kFrom), kBytes, kWrites}};
            ASSERT_EQ(ibv_post_send(e.qp.get(), &wr, &bad), 0);
            ASSERT_TRUE(succeeded(e.wait_send()));
            channel.send(wr.bind_mw.rkey);
            channel.send(memory.address(kFrom));
            channel.meet();
            EXPECT_TRUE(memory.holds(kFrom, kBytes, kSeed));
            channel.meet();
        },
        [](Channel& channel) {
            Endpoint e;
            connect_over(channel, e);
            Work work;
            work.opcode = IBV_WR_RDMA_WRITE;
            work.rkey = channel.receive<std::uint32_t>();
            work.remote = channel.receive<std::uint64_t>();
            work.sges = {e.memory->sge(0, kBytes)};
            e.memory->fill(0, kBytes, kSeed);
            EXPECT_TRUE(e.run(work));
            channel.meet();
            channel.meet();
            work.remote += 1;
            ASSERT_EQ(e.post(work), 0);
            EXPECT_NE(e.wait_send().status, IBV_WC_SUCCESS);
        });
}

}  // namespace
}  // namespace softhca::test
