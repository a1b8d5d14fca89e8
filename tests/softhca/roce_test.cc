// SPDX-License-Identifier: BSD-2-Clause
// An Ethernet port (SOFTHCA_PORT=roce, variants softhca.roce.*): its attributes and GID table as
// mlx5 has them, which paths it takes and which of them arrive, and the header before a datagram.
#include <netinet/ip.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "chosen_trait.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

// The variant without entries of v1.
bool only_v2() { return chosen(DeviceTrait::kNoRoceV1); }

class Roce : public testing::Test {
protected:
    void SetUp() override {
        const Owned<ibv_context> context = open_device();
        if (!is_ethernet(context.get())) GTEST_SKIP() << "the port is InfiniBand";
    }
    static std::vector<ibv_gid_entry> table(ibv_context* context) {
        std::vector<ibv_gid_entry> entries(64);
        const ssize_t count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
        EXPECT_GE(count, 0) << std::strerror(static_cast<int>(-count));
        entries.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
        return entries;
    }
};

bool is_ipv4(const ibv_gid& gid) {
    static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0;
}

TEST_F(Roce, PortIsAsThoseOfMlx5) {
    const Owned<ibv_context> context = open_device();
    const ibv_port_attr port = port_attributes(context.get());
    EXPECT_EQ(port.lid, 0);
    EXPECT_EQ(port.sm_lid, 0);
    EXPECT_EQ(port.pkey_tbl_len, 1);
    EXPECT_EQ(port.active_mtu, IBV_MTU_1024);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
}

TEST_F(Roce, TableHasBothVersionsOfEachAddress) {
    const Owned<ibv_context> context = open_device();
    const std::vector<ibv_gid_entry> entries = table(context.get());
    ASSERT_EQ(entries.size(), only_v2() ? 2u : 4u);
    for (const ibv_gid_entry& entry : entries) {
        EXPECT_EQ(entry.gid_type,
                  entry.gid_index % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2);
        EXPECT_EQ(is_ipv4(entry.gid), entry.gid_index >= 2);
        ibv_gid_entry one = {};
        EXPECT_EQ(ibv_query_gid_ex(context.get(), 1, entry.gid_index, &one, 0), 0);
        EXPECT_EQ(std::memcmp(&one, &entry, sizeof one), 0);
        ibv_gid gid = {};
        EXPECT_EQ(ibv_query_gid(context.get(), 1, static_cast<int>(entry.gid_index), &gid), 0);
        EXPECT_EQ(std::memcmp(&gid, &entry.gid, sizeof gid), 0) << "sysfs says the same";
    }
    ibv_gid_entry none = {};
    EXPECT_EQ(ibv_query_gid_ex(context.get(), 1, 7, &none, 0), ENODATA) << "an empty entry";
    EXPECT_EQ(ibv_query_gid_ex(context.get(), 1, 200, &none, 0), EINVAL) << "past the end";
    if (only_v2()) {
        EXPECT_EQ(ibv_query_gid_ex(context.get(), 1, 0, &none, 0), ENODATA);
    }
}

TEST_F(Roce, EveryEntryConnects) {
    const Owned<ibv_context> context = open_device();
    for (const ibv_gid_entry& entry : table(context.get())) {
        Endpoint::Options options;
        options.gid_index = static_cast<std::uint8_t>(entry.gid_index);
        Pair pair(options);
        pair.a.memory->fill(0, 5000, entry.gid_index);
        ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 8192)}), 0);
        ASSERT_TRUE(pair.a.run(send_of(pair.a, 5000)));
        ASSERT_TRUE(succeeded(pair.b.wait_receive()));
        EXPECT_TRUE(pair.b.memory->holds(0, 5000, entry.gid_index));
    }
}

TEST_F(Roce, PathsWithoutAGlobalRouteOrFromAnEmptyEntryAreRefused) {
    Endpoint e;
    e.to_init();
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = e.qp->qp_num;
    attributes.ah_attr = e.path_to(e.address());
    constexpr int kMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    attributes.ah_attr.is_global = 0;
    EXPECT_EQ(ibv_modify_qp(e.qp.get(), &attributes, kMask), EINVAL);
    EXPECT_EQ(ibv_create_ah(e.pd.get(), &attributes.ah_attr), nullptr);
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.grh.sgid_index = 6;
    EXPECT_EQ(ibv_modify_qp(e.qp.get(), &attributes, kMask), EINVAL);
    EXPECT_EQ(ibv_create_ah(e.pd.get(), &attributes.ah_attr), nullptr);
    attributes.ah_attr.grh.sgid_index = e.options.gid_index;
    EXPECT_EQ(ibv_modify_qp(e.qp.get(), &attributes, kMask), 0);
    EXPECT_NE(Owned<ibv_ah>(ibv_create_ah(e.pd.get(), &attributes.ah_attr)), nullptr);
}

// A GID that nobody has, and a path from an entry of another kind of address: as on a wire, no
// answer ever comes.
TEST_F(Roce, WhatIsSentToAnotherAddressIsLost) {
    for (const bool mixed : {false, true}) {
        Endpoint::Options options;
        options.timeout = 10;
        options.retry_count = 1;
        Endpoint a(options), b(options);
        Address to = b.address();
        if (mixed)
            a.options.gid_index = 1;
        else
            to.gid.raw[15] ^= 1;
        b.connect(a.address());
        a.connect(to);
        ASSERT_EQ(b.post_receive(1, {b.memory->sge(0, 64)}), 0);
        ASSERT_EQ(a.post(send_of(a, 8)), 0);
        EXPECT_EQ(a.wait_send().status, IBV_WC_RETRY_EXC_ERR) << mixed;
    }
}

TEST_F(Roce, DatagramsBeginWithTheHeaderOfTheirVersion) {
    const Owned<ibv_context> context = open_device();
    for (const ibv_gid_entry& entry : table(context.get())) {
        Endpoint::Options options;
        options.transport = Transport::kUd;
        options.gid_index = static_cast<std::uint8_t>(entry.gid_index);
        Pair pair(options);
        pair.a.memory->fill(0, 64, 2);
        ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 256)}), 0);
        ASSERT_TRUE(pair.a.run(send_of(pair.a, 64)));
        ibv_wc wc = pair.b.wait_receive();
        ASSERT_TRUE(succeeded(wc));
        EXPECT_EQ(wc.byte_len, 104u);
        EXPECT_NE(wc.wc_flags & IBV_WC_GRH, 0u) << "always there on Ethernet";
        EXPECT_TRUE(pair.b.memory->holds(40, 64, 2));
        ibv_grh grh;
        std::memcpy(&grh, pair.b.memory->data(), sizeof grh);
        if (entry.gid_type == IBV_GID_TYPE_ROCE_V1) {
            EXPECT_EQ(grh.next_hdr, 0x1b);
        } else if (!is_ipv4(entry.gid)) {
            EXPECT_EQ(grh.next_hdr, IPPROTO_UDP);
        } else {
            iphdr ip;
            std::memcpy(&ip, pair.b.memory->data() + 20, sizeof ip);
            EXPECT_EQ(ip.version, 4u);
            EXPECT_EQ(ip.protocol, IPPROTO_UDP);
            EXPECT_EQ(ip.ttl, 64);
            EXPECT_EQ(std::memcmp(&ip.saddr, entry.gid.raw + 12, 4), 0);
            EXPECT_EQ(std::memcmp(&ip.daddr, entry.gid.raw + 12, 4), 0);
        }
        if (entry.gid_type == IBV_GID_TYPE_ROCE_V1) continue;  // libibverbs looks for v2
        ASSERT_NO_FATAL_FAILURE(expect_answer(pair, wc, grh));
    }
}

TEST_F(Roce, AddressHandlesComeAndGo) {
    Endpoint e;
    ibv_ah_attr path = e.path_to(e.address());
    for (unsigned i = 0; i < 1000; ++i) {
        Owned<ibv_ah> handle(ibv_create_ah(e.pd.get(), &path));
        ASSERT_TRUE(handle) << std::strerror(errno);
        ibv_ah* const raw = handle.release();
        ASSERT_EQ(ibv_destroy_ah(raw), 0);
    }
}

}  // namespace
}  // namespace softhca::test
