// SPDX-License-Identifier: BSD-2-Clause
// The null region (ibv_alloc_null_mr(3)): what is stored there is gone, and what is read is zero.
#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

class NullRegion : public testing::Test {
protected:
    NullRegion() : region_(ibv_alloc_null_mr(pair_.b.pd.get())) {}

    ibv_sge nothing(std::uint32_t bytes) const { return {0, bytes, region_->lkey}; }
    ibv_sge some(std::size_t from, std::size_t bytes) const {
        return pair_.b.memory->sge(from, bytes);
    }
    // a sends that many bytes to b.
    void receive(const std::vector<ibv_sge>& sges, std::size_t bytes) {
        ASSERT_EQ(pair_.b.post_receive(1, sges), 0);
        pair_.a.memory->fill(0, bytes, 4);
        Work work;
        work.sges = {pair_.a.memory->sge(0, bytes)};
        ASSERT_EQ(pair_.a.post(work), 0);
        ASSERT_TRUE(succeeded(pair_.a.wait_send()));
        ASSERT_TRUE(succeeded(pair_.b.wait_receive()));
    }

    Pair pair_;
    Owned<ibv_mr> region_;
};

TEST_F(NullRegion, LeavesOutAPartOfAMessage) {
    ASSERT_NE(region_, nullptr);
    std::memset(pair_.b.memory->data(), 0xee, 4096);
    receive({some(0, 100), nothing(1000), some(512, 100)}, 1200);
    const std::uint8_t* const sent = pair_.a.memory->data();
    EXPECT_EQ(std::memcmp(pair_.b.memory->data(), sent, 100), 0);
    EXPECT_TRUE(pair_.b.memory->untouched(100, 412, 0xee));
    EXPECT_EQ(std::memcmp(pair_.b.memory->data() + 512, sent + 1100, 100), 0);
    EXPECT_TRUE(pair_.b.memory->untouched(612, 1000, 0xee));
}

TEST_F(NullRegion, TakesAWholeMessage) {
    ASSERT_NE(region_, nullptr);
    receive({nothing(1 << 16)}, 1 << 16);
}

TEST_F(NullRegion, ReadsAsZeros) {
    ASSERT_NE(region_, nullptr);
    pair_.b.memory->fill(0, 64, 9);
    std::memset(pair_.a.memory->data(), 0xee, pair_.a.memory->size());
    Work work;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.sges = {some(0, 8), nothing(60'000), some(8, 8)};
    work.remote = pair_.a.memory->address();
    work.rkey = pair_.a.memory->mr()->rkey;
    ASSERT_EQ(pair_.b.post(work), 0);
    ASSERT_TRUE(succeeded(pair_.b.wait_send()));
    const std::uint8_t* const got = pair_.a.memory->data();
    EXPECT_EQ(std::memcmp(got, pair_.b.memory->data(), 8), 0);
    EXPECT_TRUE(pair_.a.memory->untouched(8, 60'000, 0));
    EXPECT_EQ(std::memcmp(got + 60'008, pair_.b.memory->data() + 8, 8), 0);
}

TEST_F(NullRegion, IsNotForPeers) {
    ASSERT_NE(region_, nullptr);
    Work work;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.sges = {pair_.a.memory->sge(0, 8)};
    work.remote = 64;
    work.rkey = region_->lkey;
    ASSERT_EQ(pair_.a.post(work), 0);
    EXPECT_TRUE(has_status(pair_.a.wait_send(), IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess));
}

}  // namespace
}  // namespace softhca::test
