// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo: what the provider offers, and that each kind of hint is honoured.
#include "provider/limits.h"
#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

TEST(GetInfo, WithoutHintsOffersEverything) {
    const Info info = ask(nullptr);
    ASSERT_NE(info, nullptr);
    EXPECT_STREQ(info->fabric_attr->prov_name, "heddle");
    EXPECT_STREQ(info->fabric_attr->name, "InfiniBand");
    EXPECT_EQ(info->fabric_attr->api_version, kApi);
    EXPECT_NE(info->domain_attr->name, nullptr);
    const std::uint64_t caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE |
                               FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SEND | FI_RECV |
                               FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE | FI_LOCAL_COMM |
                               FI_REMOTE_COMM;
    EXPECT_EQ(info->caps, caps);
    EXPECT_EQ(info->mode, 0u);
    EXPECT_EQ(info->ep_attr->type, FI_EP_RDM);
    EXPECT_EQ(info->ep_attr->max_msg_size, std::size_t{1} << 40);
    EXPECT_EQ(info->ep_attr->mem_tag_format, ~std::uint64_t{0});
    EXPECT_EQ(info->domain_attr->cq_data_size, 8u);
    EXPECT_EQ(info->domain_attr->av_type, FI_AV_TABLE);
    EXPECT_EQ(info->domain_attr->mr_mode, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY);
    EXPECT_EQ(info->tx_attr->inject_size, 1024u);
    EXPECT_EQ(info->tx_attr->iov_limit, 8u);
    EXPECT_TRUE(info->tx_attr->msg_order & FI_ORDER_SAS);
    EXPECT_TRUE(info->rx_attr->msg_order & FI_ORDER_SAS);
}

// Behind tclass: 8 bytes, 4 bytes and a gap, then the two values that are set. The headers that
// this was compiled with may have some of it.
TEST(GetInfo, WhatLibfabric2AddedIsWhereItHasIt) {
    if (FI_VERSION_LT(fi_version(), FI_VERSION(2, 0)))
        GTEST_SKIP() << "libfabric is of version " << FI_MAJOR(fi_version());
    const Info info = ask(nullptr, FI_VERSION(2, 0));
    ASSERT_NE(info, nullptr);
    std::uint64_t added[4];
    std::memcpy(added, &info->domain_attr->tclass + 2, sizeof added);
    EXPECT_EQ(added[0], 0u);
    EXPECT_EQ(static_cast<std::uint32_t>(added[1]), 0u);
    EXPECT_EQ(added[2], ~std::uint64_t{0});
    EXPECT_EQ(added[3], ~std::uint64_t{0});
}

TEST(GetInfo, AllocatedButEmptyHintsAreNoHints) {
    const Info info = ask(no_hints().get());
    ASSERT_NE(info, nullptr);
    // Nothing was said of memory registration: what needs it is not on offer.
    EXPECT_TRUE(info->caps & FI_TAGGED);
    EXPECT_FALSE(info->caps & FI_RMA);
    EXPECT_EQ(info->domain_attr->mr_mode, 0);
}

TEST(GetInfo, CanBeCopied) {
    const Info info = ask(nullptr);
    ASSERT_NE(info, nullptr);
    const Info copy(fi_dupinfo(info.get()));
    ASSERT_NE(copy, nullptr);
    EXPECT_EQ(copy->caps, info->caps);
    EXPECT_STREQ(copy->domain_attr->name, info->domain_attr->name);
    EXPECT_EQ(copy->domain_attr->mr_cnt, info->domain_attr->mr_cnt);
    ASSERT_EQ(copy->src_addrlen, info->src_addrlen);
    EXPECT_EQ(std::memcmp(copy->src_addr, info->src_addr, info->src_addrlen), 0);
    EXPECT_NE(ask(info.get()), nullptr) << "an answer is a hint that is answered";
}

TEST(GetInfo, CapabilitiesAreThoseAskedForAndWhatComesWithThem) {
    Info hints = no_hints();
    hints->caps = FI_TAGGED;
    Info info = ask(hints.get());
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->caps, FI_TAGGED | FI_SEND | FI_RECV | FI_MULTI_RECV | FI_SOURCE |
                              FI_LOCAL_COMM | FI_REMOTE_COMM);
    hints->caps = FI_TAGGED | FI_SEND;
    info = ask(hints.get());
    ASSERT_NE(info, nullptr);
    EXPECT_FALSE(info->caps & FI_RECV);
    for (const std::uint64_t no : {FI_MULTICAST, FI_COLLECTIVE, FI_TRIGGER, FI_HMEM,
                                   FI_NAMED_RX_CTX, FI_RMA_EVENT, FI_FENCE}) {
        hints->caps = FI_TAGGED | no;
        EXPECT_EQ(ask(hints.get()), nullptr) << fi_tostr(&no, FI_TYPE_CAPS);
    }
}

TEST(GetInfo, EndpointTypes) {
    for (const fi_ep_type type : {FI_EP_MSG, FI_EP_DGRAM, FI_EP_SOCK_STREAM}) {
        if (type == FI_EP_UNSPEC) continue;  // what libfabric 2 has for the last
        Info hints = usual_hints();
        hints->ep_attr->type = type;
        EXPECT_EQ(ask(hints.get()), nullptr) << type;
    }
}

TEST(GetInfo, ThreadingAndProgressAreToldBack) {
    for (const fi_threading level : {FI_THREAD_SAFE, FI_THREAD_FID, FI_THREAD_DOMAIN,
                                     FI_THREAD_COMPLETION, FI_THREAD_ENDPOINT})
        for (const fi_progress progress : {FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL}) {
            Info hints = usual_hints();
            hints->domain_attr->threading = level;
            hints->domain_attr->data_progress = progress;
            hints->domain_attr->control_progress = progress;
            const Info info = ask(hints.get());
            ASSERT_NE(info, nullptr);
            EXPECT_EQ(info->domain_attr->threading, level);
            EXPECT_EQ(info->domain_attr->data_progress, progress);
            EXPECT_EQ(info->domain_attr->control_progress, progress);
        }
}

TEST(GetInfo, AddressVectorTypes) {
    for (const fi_av_type type : {FI_AV_MAP, FI_AV_TABLE}) {
        Info hints = usual_hints();
        hints->domain_attr->av_type = type;
        const Info info = ask(hints.get());
        ASSERT_NE(info, nullptr);
        EXPECT_EQ(info->domain_attr->av_type, type);
    }
}

TEST(GetInfo, RegistrationModes) {
    constexpr int kNeeded = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    struct Case {
        std::uint64_t caps;
        int asked, answer;  // -1: none
    };
    for (const Case& each : {
             Case{FI_TAGGED, 0, 0},
             Case{FI_TAGGED, kNeeded, 0},
             Case{FI_TAGGED, kNeeded | FI_MR_LOCAL, FI_MR_LOCAL},
             Case{FI_TAGGED | FI_RMA, kNeeded, kNeeded},
             Case{FI_TAGGED | FI_RMA, kNeeded | FI_MR_LOCAL, kNeeded | FI_MR_LOCAL},
             Case{FI_TAGGED | FI_RMA, kNeeded | FI_MR_ENDPOINT | FI_MR_HMEM, kNeeded},
             Case{FI_TAGGED | FI_RMA, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED, -1},
             Case{FI_TAGGED | FI_ATOMIC, provider::kMrScalable, -1},
             Case{FI_TAGGED | FI_RMA, provider::kMrBasic, provider::kMrBasic},
         }) {
        Info hints = no_hints();
        hints->caps = each.caps;
        hints->domain_attr->mr_mode = each.asked;
        const Info info = ask(hints.get());
        ASSERT_EQ(info == nullptr, each.answer == -1) << each.caps << " " << each.asked;
        if (info != nullptr) {
            EXPECT_EQ(info->domain_attr->mr_mode, each.answer) << each.caps << " " << each.asked;
        }
    }
}

TEST(GetInfo, ProgramsOfBeforeRegistrationModes) {
    Info hints = no_hints();
    hints->caps = FI_MSG | FI_RMA;
    const Info info = ask(hints.get(), FI_VERSION(1, 4));
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->domain_attr->mr_mode, provider::kMrBasic);
}

TEST(GetInfo, Sizes) {
    struct Case {
        const char* what;
        void (*set)(fi_info&);
        bool is_offered;
    };
    for (const Case& each : {
             Case{"inject", [](fi_info& i) { i.tx_attr->inject_size = 1024; }, true},
             Case{"inject", [](fi_info& i) { i.tx_attr->inject_size = 1025; }, false},
             Case{"iov", [](fi_info& i) { i.tx_attr->iov_limit = 8; }, true},
             Case{"iov", [](fi_info& i) { i.tx_attr->iov_limit = 9; }, false},
             Case{"receive iov", [](fi_info& i) { i.rx_attr->iov_limit = 9; }, false},
             Case{"rma iov", [](fi_info& i) { i.tx_attr->rma_iov_limit = 9; }, false},
             Case{"message", [](fi_info& i) { i.ep_attr->max_msg_size = 1ULL << 40; }, true},
             Case{"message", [](fi_info& i) { i.ep_attr->max_msg_size = 1ULL << 41; }, false},
             Case{"cq data", [](fi_info& i) { i.domain_attr->cq_data_size = 8; }, true},
             Case{"cq data", [](fi_info& i) { i.domain_attr->cq_data_size = 16; }, false},
             Case{"contexts", [](fi_info& i) { i.ep_attr->tx_ctx_cnt = 2; }, false},
             Case{"shared context", [](fi_info& i) { i.ep_attr->rx_ctx_cnt = SIZE_MAX; }, false},
             Case{"order", [](fi_info& i) { i.tx_attr->msg_order = FI_ORDER_SAS; }, true},
             Case{"order", [](fi_info& i) { i.tx_attr->msg_order = FI_ORDER_RMA_WAR; }, false},
             Case{"flags", [](fi_info& i) { i.tx_attr->op_flags = FI_DELIVERY_COMPLETE; }, true},
             Case{"flags", [](fi_info& i) { i.tx_attr->op_flags = FI_COMMIT_COMPLETE; }, false},
             Case{"buffered", [](fi_info& i) { i.rx_attr->total_buffered_recv = 1; }, false},
             Case{"format", [](fi_info& i) { i.addr_format = FI_SOCKADDR_IN; }, false},
             Case{"protocol", [](fi_info& i) { i.ep_attr->protocol = FI_PROTO_RXM; }, false},
         }) {
        Info hints = usual_hints();
        each.set(*hints);
        EXPECT_EQ(ask(hints.get()) != nullptr, each.is_offered) << each.what;
    }
}

TEST(GetInfo, FlagsAreToldBack) {
    Info hints = usual_hints();
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE | FI_COMPLETION;
    hints->rx_attr->op_flags = FI_COMPLETION;
    const Info info = ask(hints.get());
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->tx_attr->op_flags, FI_DELIVERY_COMPLETE | FI_COMPLETION);
    EXPECT_EQ(info->rx_attr->op_flags, FI_COMPLETION);
}

TEST(GetInfo, Names) {
    const Info any = ask(nullptr);
    ASSERT_NE(any, nullptr);
    Info hints = usual_hints();
    hints->domain_attr->name = strdup(any->domain_attr->name);
    EXPECT_NE(ask(hints.get()), nullptr);
    free(hints->domain_attr->name);
    hints->domain_attr->name = strdup("mlx5_77");
    EXPECT_EQ(ask(hints.get()), nullptr);
    hints = usual_hints();
    hints->fabric_attr->name = strdup(any->fabric_attr->name);
    EXPECT_NE(ask(hints.get()), nullptr);
    free(hints->fabric_attr->name);
    hints->fabric_attr->name = strdup("token ring");
    EXPECT_EQ(ask(hints.get()), nullptr);
}

TEST(GetInfo, OpenDomain) {
    World world;
    Info hints = usual_hints();
    hints->domain_attr->domain = world.domain.get();
    const Info info = ask(hints.get());
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->domain_attr->domain, world.domain.get());
    hints->domain_attr->domain = nullptr;
}

// fi_getinfo(3): an address that corresponds to the domain, for opening endpoints there.
TEST(GetInfo, SourceIsTheDevice) {
    World world;
    fi_info& info = *world.info;
    ASSERT_EQ(info.src_addrlen, kNameBytes);
    ASSERT_NE(info.src_addr, nullptr);
    EXPECT_EQ(info.dest_addr, nullptr);
    auto* const source = static_cast<unsigned char*>(info.src_addr);
    constexpr std::size_t kGid = 16;  // where it begins, in any name
    Station station(world);
    station.enable();
    EXPECT_EQ(std::memcmp(source + kGid, station.name + kGid, 16), 0);

    EXPECT_NE(ask(&info), nullptr);
    std::memcpy(source, station.name, kNameBytes);
    EXPECT_NE(ask(&info), nullptr);
    source[kGid + 15] ^= 1;
    EXPECT_EQ(ask(&info), nullptr) << "another device";
    fi_info* again = nullptr;
    ASSERT_EQ(fi_getinfo(kApi, nullptr, "7471", FI_SOURCE, &info, &again), 0)
        << "the hint counts no more";
    fi_freeinfo(again);
    source[kGid + 15] ^= 1;
    --info.src_addrlen;
    EXPECT_EQ(ask(&info), nullptr) << "no name";
}

TEST(GetInfo, HostsAreNotResolved) {
    fi_info* info = nullptr;
    EXPECT_EQ(fi_getinfo(kApi, "localhost", "7471", 0, nullptr, &info), -FI_ENODATA);
    // Programs that exchange names themselves pass a port of their own.
    ASSERT_EQ(fi_getinfo(kApi, nullptr, "7471", FI_SOURCE, usual_hints().get(), &info), 0);
    fi_freeinfo(info);
}

}  // namespace
}  // namespace heddle::test
