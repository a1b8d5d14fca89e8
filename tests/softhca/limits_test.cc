// SPDX-License-Identifier: BSD-2-Clause
// What the query calls say is what can be had (IBTA 11.2.1): exactly as many objects as reported
// and then ENOMEM, queue sizes up to the limit and no further, and caps that ibv_create_qp reports
// are usable. Everything that was used up can be had again after it is freed.

#include <endian.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

TEST(Limits, ProtectionDomains) {
    const auto context = open_device();
    const auto most = static_cast<std::size_t>(device_attributes(context.get()).max_pd);
    ASSERT_LE(most, 1u << 20) << "a test of more takes too long";
    for (int round = 0; round < 2; ++round) {
        std::vector<Owned<ibv_pd>> list;
        for (;;) {
            Owned<ibv_pd> pd(ibv_alloc_pd(context.get()));
            if (!pd) break;
            list.push_back(std::move(pd));
            ASSERT_LE(list.size(), most);
        }
        EXPECT_EQ(errno, ENOMEM) << std::strerror(errno);
        EXPECT_GE(list.size() + 16, most) << "fewer than the device says";
    }
}

TEST(Limits, XrcDomains) {
    const auto context = open_device();
    std::vector<Owned<ibv_xrcd>> list;
    ibv_xrcd_init_attr attributes = {};
    attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attributes.fd = -1;
    attributes.oflags = O_CREAT;
    for (;;) {
        Owned<ibv_xrcd> domain(ibv_open_xrcd(context.get(), &attributes));
        if (!domain) break;
        list.push_back(std::move(domain));
        ASSERT_LE(list.size(), 1u << 17);
    }
    EXPECT_EQ(errno, ENOMEM);
    list.resize(list.size() - 1);
    EXPECT_TRUE(Owned<ibv_xrcd>(ibv_open_xrcd(context.get(), &attributes)));
}

TEST(Limits, LongMemoryRegions) {
    Endpoint e;
    const auto most = static_cast<std::size_t>(device_attributes(e.context.get()).max_mr);
    std::vector<ibv_mr*> list;
    while (list.size() <= most) {
        ibv_mr* mr = ibv_reg_mr(e.pd.get(), e.memory->data(), 4096, kAllAccess);
        if (mr == nullptr) break;
        list.push_back(mr);
    }
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_LE(list.size(), most);
    EXPECT_GE(list.size() + 64, most);
    for (ibv_mr* mr : list)
        ibv_dereg_mr(mr);
    EXPECT_TRUE(Owned<ibv_mr>(ibv_reg_mr(e.pd.get(), e.memory->data(), 4096, kAllAccess)));
}

// Many QPs at once, not all: 65536 would take gigabytes.
TEST(Limits, ThousandsOfQueuePairs) {
    Endpoint e;
    ASSERT_GE(device_attributes(e.context.get()).max_qp, 4000);
    std::vector<Owned<ibv_qp>> list;
    ibv_qp_init_attr attributes = {};
    attributes.send_cq = attributes.recv_cq = e.send_cq.get();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {1, 1, 1, 1, 0};
    for (int i = 0; i < 4000; ++i) {
        list.emplace_back(ibv_create_qp(e.pd.get(), &attributes));
        ASSERT_TRUE(list.back()) << "QP " << i << ": " << std::strerror(errno);
    }
    std::vector<std::uint32_t> numbers;
    for (const auto& qp : list)
        numbers.push_back(qp->qp_num);
    std::sort(numbers.begin(), numbers.end());
    EXPECT_EQ(std::adjacent_find(numbers.begin(), numbers.end()), numbers.end())
        << "a QP number was given twice";
    EXPECT_GT(numbers.front(), 1u) << "QP 0 and 1 are special";
    EXPECT_LT(numbers.back(), 1u << 24);
}

Owned<ibv_qp> plain_qp(const Endpoint& e, std::uint32_t depth, std::uint32_t inline_size) {
    ibv_qp_init_attr_ex attributes = {};
    attributes.send_cq = attributes.recv_cq = e.send_cq.get();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {depth, 1, 1, 1, inline_size};
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.pd = e.pd.get();
    attributes.send_ops_flags = IBV_QP_EX_WITH_SEND;  // the smallest WQE: one block
    return Owned<ibv_qp>(ibv_create_qp_ex(e.context.get(), &attributes));
}

TEST(Limits, QueueDepth) {
    Endpoint e;
    const auto most = static_cast<std::uint32_t>(device_attributes(e.context.get()).max_qp_wr);
    EXPECT_TRUE(plain_qp(e, most, 0)) << std::strerror(errno);
    EXPECT_FALSE(plain_qp(e, most + 1, 0));
    EXPECT_TRUE(errno == EINVAL || errno == ENOMEM) << std::strerror(errno);
}

TEST(Limits, SharedReceiveQueueDepth) {
    Endpoint e;
    const ibv_device_attr device = device_attributes(e.context.get());
    ibv_srq_init_attr attributes = {};
    attributes.attr.max_wr = static_cast<std::uint32_t>(device.max_srq_wr);
    attributes.attr.max_sge = 1;
    EXPECT_TRUE(Owned<ibv_srq>(ibv_create_srq(e.pd.get(), &attributes))) << std::strerror(errno);
    attributes.attr.max_wr = static_cast<std::uint32_t>(device.max_srq_wr) + 1;
    EXPECT_FALSE(Owned<ibv_srq>(ibv_create_srq(e.pd.get(), &attributes)));
    attributes.attr.max_wr = 16;
    attributes.attr.max_sge = static_cast<std::uint32_t>(device.max_srq_sge);
    EXPECT_TRUE(Owned<ibv_srq>(ibv_create_srq(e.pd.get(), &attributes))) << std::strerror(errno);
}

TEST(Limits, CompletionVectorsAndEntries) {
    const auto context = open_device();
    for (int vector = 0; vector < context->num_comp_vectors; ++vector)
        EXPECT_TRUE(Owned<ibv_cq>(ibv_create_cq(context.get(), 16, nullptr, nullptr, vector)));
    EXPECT_FALSE(Owned<ibv_cq>(
        ibv_create_cq(context.get(), 16, nullptr, nullptr, context->num_comp_vectors)));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(Owned<ibv_cq>(ibv_create_cq(context.get(), 0, nullptr, nullptr, 0)));
    EXPECT_FALSE(Owned<ibv_cq>(ibv_create_cq(context.get(), (1 << 24) + 1, nullptr, nullptr, 0)));
}

// The largest available inline size is usable to the last byte.
TEST(Limits, LargestInlineSizeIsUsable) {
    std::uint32_t usable = 0;
    std::uint32_t fails = 1 << 16;
    {
        Endpoint e;
        while (fails - usable > 1) {
            const std::uint32_t middle = (usable + fails) / 2;
            (plain_qp(e, 4, middle) ? usable : fails) = middle;
        }
    }
    EXPECT_GE(usable, 828u) << "a ConnectX takes WQEs of at least 16 blocks";
    Endpoint::Options options;
    options.inline_size = 700;
    options.send_sges = 1;
    Pair pair(options);
    const std::uint32_t size = pair.a.options.inline_size;
    ASSERT_GE(size, 700u);
    std::vector<std::uint8_t> data(size);
    fill_pattern(data.data(), size, 8);
    Work work;
    work.flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.sges = {{reinterpret_cast<std::uint64_t>(data.data()), size, 0}};
    ASSERT_TRUE(pair.a.run(work));
    EXPECT_TRUE(pair.b.memory->holds(0, size, 8));
}

TEST(Limits, TablesOfThePort) {
    const auto context = open_device();
    const ibv_port_attr port = port_attributes(context.get());
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    ibv_gid gid = {};
    ASSERT_EQ(ibv_query_gid(context.get(), 1, 0, &gid), 0);
    EXPECT_EQ(be64toh(gid.global.subnet_prefix), 0xfe80000000000000ULL);
    EXPECT_EQ(gid.global.interface_id, ibv_get_device_guid(context->device));
    ibv_device_attr device = {};
    ASSERT_EQ(ibv_query_device(context.get(), &device), 0);
    EXPECT_EQ(gid.global.interface_id, device.node_guid);
    EXPECT_EQ(be64toh(device.node_guid) >> 40, 0x02504fu);
    EXPECT_NE(ibv_query_gid(context.get(), 1, port.gid_tbl_len, &gid), 0);
    __be16 pkey = 0;
    ASSERT_EQ(ibv_query_pkey(context.get(), 1, 0, &pkey), 0);
    EXPECT_EQ(pkey, 0xffff);
    EXPECT_NE(ibv_query_pkey(context.get(), 1, port.pkey_tbl_len, &pkey), 0);
    ibv_port_attr none = {};
    EXPECT_NE(ibv_query_port(context.get(), 0, &none), 0);
    EXPECT_NE(ibv_query_port(context.get(), 2, &none), 0);
}

// What is not there is refused with a proper error, not taken and ignored.
TEST(Limits, WhatTheDeviceLacksIsRefused) {
    Endpoint e;
    const ibv_device_attr device = device_attributes(e.context.get());
    if (device.max_mw == 0) {
        ibv_mw* mw = ibv_alloc_mw(e.pd.get(), IBV_MW_TYPE_1);
        EXPECT_EQ(mw, nullptr) << "max_mw is 0";
        if (mw != nullptr) ibv_dealloc_mw(mw);
    }
    ibv_device_attr_ex extended = {};
    ASSERT_EQ(ibv_query_device_ex(e.context.get(), nullptr, &extended), 0);
    if (extended.odp_caps.general_caps == 0) {
        EXPECT_FALSE(Owned<ibv_mr>(
            ibv_reg_mr(e.pd.get(), e.memory->data(), 4096, kAllAccess | IBV_ACCESS_ON_DEMAND)));
    }
    if (extended.max_dm_size == 0) {
        ibv_alloc_dm_attr attributes = {};
        attributes.length = 64;
        EXPECT_EQ(ibv_alloc_dm(e.context.get(), &attributes), nullptr);
    }
    if (extended.raw_packet_caps == 0) {
        ibv_qp_init_attr attributes = {};
        attributes.send_cq = attributes.recv_cq = e.send_cq.get();
        attributes.qp_type = IBV_QPT_RAW_PACKET;
        attributes.cap = {1, 1, 1, 1, 0};
        EXPECT_FALSE(Owned<ibv_qp>(ibv_create_qp(e.pd.get(), &attributes)));
    }
}

}  // namespace
}  // namespace softhca::test
