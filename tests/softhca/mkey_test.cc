// SPDX-License-Identifier: BSD-2-Clause
// Indirect memory keys: what a key reaches, what it is refused for, and what ends it.
#include <cerrno>
#include <cstring>
#include <vector>

#include "mkey_fixture.h"

namespace softhca::test {
namespace {

TEST_F(Mkeys, ListIsOneRange) {
    const OwnedMkey mkey = make_mkey(pair_.b.pd.get(), 4);
    ASSERT_NE(mkey, nullptr) << std::strerror(errno);
    const ibv_wc changed =
        by_.list(mkey.get(), kEverything, {part(4096, 100), part(64, 28), part(9000, 300)});
    ASSERT_TRUE(succeeded(changed));
    EXPECT_EQ(changed.wr_id, 31u);
    // From the middle of the first part to that of the third.
    ASSERT_TRUE(succeeded(write(mkey->rkey, 50, 50 + 28 + 200)));
    const std::uint8_t* const sent = pair_.a.memory->data();
    EXPECT_EQ(std::memcmp(memory_.data() + 4096 + 50, sent, 50), 0);
    EXPECT_EQ(std::memcmp(memory_.data() + 64, sent + 50, 28), 0);
    EXPECT_EQ(std::memcmp(memory_.data() + 9000, sent + 78, 200), 0);
    EXPECT_TRUE(memory_.untouched(4096, 50, 0xee));
    EXPECT_TRUE(memory_.untouched(9200, 1000, 0xee));
    EXPECT_TRUE(memory_.untouched(92, 4000, 0xee));
    std::memset(pair_.a.memory->data(), 0, 512);
    ASSERT_TRUE(succeeded(reach(IBV_WR_RDMA_READ, mkey->rkey, 100, 50)));
    EXPECT_EQ(std::memcmp(memory_.data() + 64, sent, 28), 0);
    EXPECT_EQ(std::memcmp(memory_.data() + 9000, sent + 28, 22), 0);
}

TEST_F(Mkeys, EndsWhereItsPartsEnd) {
    const OwnedMkey mkey = make_mkey(pair_.b.pd.get(), 4);
    ASSERT_TRUE(succeeded(by_.list(mkey.get(), kEverything, {part(0, 100), part(1000, 100)})));
    expect_no_access(mkey->rkey, 100, 101);
}

TEST_F(Mkeys, IsNothingBeforeItsFirstChange) {
    const OwnedMkey mkey = make_mkey(pair_.b.pd.get(), 4);
    expect_no_access(mkey->rkey, 0, 8);
}

// The region allows local access only: the rights are the key's.
TEST_F(Mkeys, RightsAreThoseOfTheChange) {
    const OwnedMkey mkey = make_mkey(pair_.b.pd.get(), 4);
    ASSERT_TRUE(succeeded(by_.list(mkey.get(), IBV_ACCESS_REMOTE_READ, {part(0, 64)})));
    ASSERT_TRUE(succeeded(reach(IBV_WR_RDMA_READ, mkey->rkey, 0, 64)));
    EXPECT_TRUE(pair_.a.memory->untouched(0, 64, 0xee));
    ASSERT_TRUE(succeeded(by_.rights(mkey.get(), IBV_ACCESS_REMOTE_WRITE)));
    ASSERT_TRUE(succeeded(write(mkey->rkey, 0, 64)));
    std::memset(memory_.data(), 0xee, 64);
    ASSERT_TRUE(succeeded(by_.rights(mkey.get(), IBV_ACCESS_REMOTE_READ)));
    expect_no_access(mkey->rkey, 0, 64);
}

TEST_F(Mkeys, WritingNeedsARegionThatMayBeWritten) {
    const Memory constant(pair_.b.pd.get(), 4096, 0);
    const OwnedMkey mkey = make_mkey(pair_.b.pd.get(), 4);
    ASSERT_TRUE(succeeded(by_.list(mkey.get(), kEverything, {constant.sge(0, 64)})));
    ASSERT_TRUE(succeeded(reach(IBV_WR_RDMA_READ, mkey->rkey, 0, 64)));
    expect_no_access(mkey->rkey, 0, 64);
}

TEST_F(Mkeys, PartsOfAnotherDomainAreNoParts) {
    const Owned<ibv_pd> other(check(ibv_alloc_pd(pair_.b.context.get()), "a PD"));
    const Memory foreign(other.get(), 4096);
    const OwnedMkey mkey = make_mkey(pair_.b.pd.get(), 4);
    ASSERT_TRUE(succeeded(by_.list(mkey.get(), kEverything, {foreign.sge(0, 64)})));
    expect_no_access(mkey->rkey, 0, 64);
}

// More spans than a message usually has, on both sides.
TEST_F(Mkeys, PatternRepeats) {
    constexpr std::uint32_t kRepeats = 700, kFirst = 5, kSecond = 3, kCycle = kFirst + kSecond;
    const OwnedMkey mkey = make_mkey(pair_.b.pd.get(), 4);
    ASSERT_TRUE(succeeded(by_.interleaved(mkey.get(), kEverything, kRepeats,
                                          {every(0, kFirst, 11), every(100'000, kSecond, 29)})));
    ASSERT_TRUE(succeeded(write(mkey->rkey, 0, std::size_t{kRepeats} * kCycle)));
    const std::uint8_t* const sent = pair_.a.memory->data();
    for (std::size_t i = 0; i < kRepeats; ++i) {
        const std::uint8_t* const cycle = sent + i * kCycle;
        ASSERT_EQ(std::memcmp(memory_.data() + i * (kFirst + 11), cycle, kFirst), 0) << i;
        ASSERT_TRUE(memory_.untouched(i * (kFirst + 11) + kFirst, 11, 0xee)) << i;
        ASSERT_EQ(
            std::memcmp(memory_.data() + 100'000 + i * (kSecond + 29), cycle + kFirst, kSecond), 0)
            << i;
    }
    std::vector<std::uint8_t> before(sent, sent + std::size_t{kRepeats} * kCycle);
    std::memset(pair_.a.memory->data(), 0, before.size());
    // From within a cycle on.
    const std::size_t from = 300 * kCycle + 6;
    ASSERT_TRUE(succeeded(reach(IBV_WR_RDMA_READ, mkey->rkey, from, before.size() - from)));
    EXPECT_EQ(std::memcmp(sent, before.data() + from, before.size() - from), 0);
}

TEST_F(Mkeys, GathersAndScattersLocally) {
    const OwnedMkey mkey = make_mkey(pair_.b.pd.get(), 4);
    ASSERT_TRUE(
        succeeded(by_.interleaved(mkey.get(), IBV_ACCESS_LOCAL_WRITE, 200, {every(0, 16, 16)})));
    fill_pattern(memory_.data(), 6400, 3);
    Work work;
    work.sges = {{0, 3200, mkey->lkey}};
    ASSERT_EQ(pair_.a.post_receive(1, {pair_.a.memory->sge(0, 4096)}), 0);
    ASSERT_EQ(pair_.b.post(work), 0);
    ASSERT_TRUE(succeeded(pair_.b.wait_send()));
    ASSERT_TRUE(succeeded(pair_.a.wait_receive()));
    for (std::size_t i = 0; i < 200; ++i)
        ASSERT_EQ(std::memcmp(pair_.a.memory->data() + i * 16, memory_.data() + i * 32, 16), 0);
    // And the way back.
    std::memset(memory_.data(), 0xee, 6400);
    ibv_sge sge{8, 3192, mkey->lkey};
    ibv_recv_wr receive{}, *bad = nullptr;
    receive.sg_list = &sge;
    receive.num_sge = 1;
    ASSERT_EQ(ibv_post_recv(pair_.b.qp.get(), &receive, &bad), 0);
    work.sges = {pair_.a.memory->sge(0, 3192)};
    ASSERT_EQ(pair_.a.post(work), 0);
    ASSERT_TRUE(succeeded(pair_.b.wait_receive()));
    EXPECT_TRUE(memory_.untouched(0, 8, 0xee));
    EXPECT_EQ(std::memcmp(memory_.data() + 8, pair_.a.memory->data(), 8), 0);
    EXPECT_TRUE(memory_.untouched(16, 16, 0xee));
    EXPECT_EQ(std::memcmp(memory_.data() + 32, pair_.a.memory->data() + 8, 16), 0);
}

TEST_F(Mkeys, SendingFromBeyondItsEndFails) {
    const OwnedMkey mkey = make_mkey(pair_.b.pd.get(), 4);
    ASSERT_TRUE(succeeded(by_.list(mkey.get(), IBV_ACCESS_LOCAL_WRITE, {part(0, 64)})));
    Work work;
    work.sges = {{8, 64, mkey->lkey}};
    ASSERT_EQ(pair_.b.post(work), 0);
    EXPECT_TRUE(has_status(pair_.b.wait_send(), IBV_WC_LOC_PROT_ERR, kVendorLocalProtection));
}

TEST_F(Mkeys, KeysOfKeys) {
    const OwnedMkey inner = make_mkey(pair_.b.pd.get(), 4), outer = make_mkey(pair_.b.pd.get(), 4);
    ASSERT_TRUE(
        succeeded(by_.list(inner.get(), IBV_ACCESS_LOCAL_WRITE, {part(100, 10), part(200, 10)})));
    ASSERT_TRUE(succeeded(by_.list(outer.get(), kEverything,
                                   {{5, 10, inner->lkey}, part(300, 10), {0, 5, inner->lkey}})));
    ASSERT_TRUE(succeeded(write(outer->rkey, 0, 25)));
    const std::uint8_t* const sent = pair_.a.memory->data();
    EXPECT_EQ(std::memcmp(memory_.data() + 105, sent, 5), 0);
    EXPECT_EQ(std::memcmp(memory_.data() + 200, sent + 5, 5), 0);
    EXPECT_EQ(std::memcmp(memory_.data() + 300, sent + 10, 10), 0);
    EXPECT_EQ(std::memcmp(memory_.data() + 100, sent + 20, 5), 0);
    EXPECT_TRUE(memory_.untouched(205, 95, 0xee));
}

TEST_F(Mkeys, KeyOfItselfReachesNothing) {
    const OwnedMkey mkey = make_mkey(pair_.b.pd.get(), 4);
    ASSERT_TRUE(
        succeeded(by_.list(mkey.get(), kEverything, {{0, 64, mkey->lkey}, {0, 64, mkey->lkey}})));
    expect_no_access(mkey->rkey, 0, 64);
}

TEST_F(Mkeys, AtomicsNeedTheirOperandInOnePlace) {
    const OwnedMkey mkey = make_mkey(pair_.b.pd.get(), 4);
    std::memset(memory_.data() + 64, 0, 8);
    ASSERT_TRUE(succeeded(by_.list(mkey.get(), kEverything, {part(64, 12), part(1024, 12)})));
    ASSERT_TRUE(succeeded(reach(IBV_WR_ATOMIC_FETCH_AND_ADD, mkey->rkey, 0, 8)));
    std::memset(memory_.data() + 64, 0xee, 8);
    EXPECT_TRUE(has_status(reach(IBV_WR_ATOMIC_FETCH_AND_ADD, mkey->rkey, 8, 8),
                           IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess));
    EXPECT_TRUE(memory_.untouched(0, memory_.size(), 0xee));
}

TEST_F(Mkeys, InvalidatingEndsItUntilTheNextChange) {
    const OwnedMkey mkey = make_mkey(pair_.b.pd.get(), 4);
    ASSERT_TRUE(succeeded(by_.list(mkey.get(), kEverything, {part(0, 64)})));
    ASSERT_TRUE(succeeded(by_.invalidate(mkey->rkey)));
    ASSERT_TRUE(succeeded(by_.list(mkey.get(), kEverything, {part(64, 64)})));
    ASSERT_TRUE(succeeded(write(mkey->rkey, 0, 64)));
    EXPECT_TRUE(has_pattern(memory_.data() + 64, 64, 99));
    std::memset(memory_.data(), 0xee, 128);
    ASSERT_TRUE(succeeded(by_.invalidate(mkey->rkey)));
    expect_no_access(mkey->rkey, 0, 64);
}

class MkeysThatAPeerEnds : public Mkeys {
protected:
    int send_invalidating(std::uint32_t key) {
        ibv_sge sge = pair_.a.memory->sge(0, 16);
        ibv_send_wr wr{}, *bad;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND_WITH_INV;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.invalidate_rkey = key;
        return ibv_post_send(pair_.a.qp.get(), &wr, &bad);
    }
};

TEST_F(MkeysThatAPeerEnds, IfMadeSo) {
    const OwnedMkey mkey =
        make_mkey(pair_.b.pd.get(), 4, MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE);
    ASSERT_TRUE(succeeded(by_.list(mkey.get(), kEverything, {part(0, 64)})));
    ASSERT_EQ(pair_.b.post_receive(1, {pair_.b.memory->sge(0, 64)}), 0);
    ASSERT_EQ(send_invalidating(mkey->rkey), 0);
    const ibv_wc received = pair_.b.wait_receive();
    ASSERT_TRUE(succeeded(received));
    EXPECT_NE(received.wc_flags & IBV_WC_WITH_INV, 0u);
    EXPECT_EQ(received.invalidated_rkey, mkey->rkey);
    ASSERT_TRUE(succeeded(pair_.a.wait_send()));
    expect_no_access(mkey->rkey, 0, 64);
}

TEST_F(MkeysThatAPeerEnds, NotOtherwise) {
    const OwnedMkey mkey = make_mkey(pair_.b.pd.get(), 4);
    ASSERT_TRUE(succeeded(by_.list(mkey.get(), kEverything, {part(0, 64)})));
    ASSERT_EQ(pair_.b.post_receive(1, {pair_.b.memory->sge(0, 64)}), 0);
    ASSERT_EQ(send_invalidating(mkey->rkey), 0);
    EXPECT_TRUE(has_status(pair_.a.wait_send(), IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess));
}

TEST_F(Mkeys, OnlyItsDomainsQpsMayChangeIt) {
    const Owned<ibv_pd> other(check(ibv_alloc_pd(pair_.b.context.get()), "a PD"));
    const OwnedMkey mkey = make_mkey(other.get(), 4);
    EXPECT_EQ(by_.list(mkey.get(), kEverything, {part(0, 64)}).status, IBV_WC_MW_BIND_ERR);
}

TEST_F(Mkeys, HasRoomForItsParts) {
    const OwnedMkey mkey = make_mkey(pair_.b.pd.get(), 4);
    EXPECT_EQ(by_.error_of_list(mkey.get(), std::vector<ibv_sge>(5, part(0, 8))), ENOMEM);
    EXPECT_EQ(make_mkey(pair_.b.pd.get(), 4000), nullptr);
}

TEST_F(Mkeys, DomainIsInUse) {
    const Owned<ibv_pd> pd(check(ibv_alloc_pd(pair_.b.context.get()), "a PD"));
    const OwnedMkey mkey = make_mkey(pd.get(), 4);
    EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
}

}  // namespace
}  // namespace softhca::test
