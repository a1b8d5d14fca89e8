// SPDX-License-Identifier: BSD-2-Clause
// What the RDMA netlink lists: the objects of the device, in dumps longer than a datagram, and what
// libibverbs makes of it.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "netlink_socket.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

TEST_F(Netlink, QueuePairsAreListedAsTheyAre) {
    Pair pair(Endpoint::Options{});
    std::map<std::uint32_t, AttributeMap> found;
    for (AttributeMap& entry : list(RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP)) {
        const auto qpn = number<std::uint32_t>(entry, RDMA_NLDEV_ATTR_RES_LQPN);
        found.emplace(qpn, std::move(entry));
    }
    for (const Endpoint* endpoint : {&pair.a, &pair.b}) {
        const ibv_qp* qp = endpoint->qp.get();
        ASSERT_EQ(found.count(qp->qp_num), 1u);
        const AttributeMap& entry = found[qp->qp_num];
        ibv_qp_attr attributes;
        ibv_qp_init_attr initial;
        ASSERT_EQ(ibv_query_qp(endpoint->qp.get(), &attributes, IBV_QP_DEST_QPN, &initial), 0);
        EXPECT_EQ(number<std::uint32_t>(entry, RDMA_NLDEV_ATTR_RES_RQPN), attributes.dest_qp_num);
        EXPECT_EQ(number<std::uint32_t>(entry, RDMA_NLDEV_ATTR_RES_SQ_PSN), attributes.sq_psn);
        EXPECT_EQ(number<std::uint8_t>(entry, RDMA_NLDEV_ATTR_RES_TYPE), IBV_QPT_RC);
        EXPECT_EQ(number<std::uint8_t>(entry, RDMA_NLDEV_ATTR_RES_STATE), IBV_QPS_RTS);
        EXPECT_EQ(number<std::uint32_t>(entry, RDMA_NLDEV_ATTR_RES_PID),
                  static_cast<std::uint32_t>(::getpid()));
    }
    // One by its number, which kinds of a port are asked for with the port.
    const std::uint32_t qpn = pair.a.qp->qp_num;
    const auto one = [&](std::uint32_t wanted) {
        return Request(RDMA_NLDEV_CMD_RES_QP_GET).device().u32(RDMA_NLDEV_ATTR_RES_LQPN, wanted);
    };
    const Reply reply = ask(one(qpn).u32(RDMA_NLDEV_ATTR_PORT_INDEX, 1));
    EXPECT_EQ(number<std::uint32_t>(attributes_of(reply.payload), RDMA_NLDEV_ATTR_RES_LQPN), qpn);
    EXPECT_EQ(error_of(one(qpn)), EINVAL);
    EXPECT_EQ(error_of(one(1).u32(RDMA_NLDEV_ATTR_PORT_INDEX, 1)), ENOENT);
    const Request on_port =
        Request(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_DUMP).device().u32(RDMA_NLDEV_ATTR_PORT_INDEX, 1);
    EXPECT_EQ(list(RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP, &on_port).size(), 2u);
}

TEST_F(Netlink, EachKindIsListedAndCounted) {
    const Owned<ibv_context> context = open_device();
    const Owned<ibv_pd> pd(check(ibv_alloc_pd(context.get()), "pd"));
    const Owned<ibv_cq> cq = create_cq(context.get(), 100);
    const Owned<ibv_srq> srq = create_srq(pd.get(), 16);
    const Memory memory(pd.get(), 8192);
    struct Kind {
        int command;
        std::uint16_t table;
        const char* name;
    };
    std::map<std::string, std::size_t> counted;
    for (const Kind& kind : {Kind{RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_ATTR_RES_PD, "pd"},
                             Kind{RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_ATTR_RES_CQ, "cq"},
                             Kind{RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR, "mr"},
                             Kind{22, 86, "ctx"}, Kind{kSrqGet, 88, "srq"}}) {
        const std::vector<AttributeMap> entries = list(kind.command, kind.table);
        EXPECT_EQ(entries.size(), 1u) << kind.name;
        for (const AttributeMap& entry : entries)
            EXPECT_EQ(number<std::uint32_t>(entry, RDMA_NLDEV_ATTR_RES_PID),
                      static_cast<std::uint32_t>(::getpid()));
        counted[kind.name] = entries.size();
    }
    const AttributeMap mr = list(RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR).at(0);
    EXPECT_EQ(number<std::uint32_t>(mr, RDMA_NLDEV_ATTR_RES_LKEY), memory.mr()->lkey);
    EXPECT_EQ(number<std::uint64_t>(mr, RDMA_NLDEV_ATTR_RES_MRLEN), 8192u);
    const AttributeMap queue = list(RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_ATTR_RES_CQ).at(0);
    EXPECT_EQ(number<std::uint32_t>(queue, RDMA_NLDEV_ATTR_RES_CQE),
              static_cast<std::uint32_t>(cq->cqe));
    EXPECT_TRUE(list(RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_ATTR_RES_CM_ID).empty());

    counted["qp"] = counted["cm_id"] = 0;
    const AttributeMap summary =
        attributes_of(ask(Request(RDMA_NLDEV_CMD_RES_GET).device()).payload);
    std::map<std::string, std::size_t> reported;
    for (const auto& [type, entry] :
         attributes_of(summary.find(RDMA_NLDEV_ATTR_RES_SUMMARY)->second)) {
        const AttributeMap values = attributes_of(entry);
        reported[text(values, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME)] =
            number<std::uint64_t>(values, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR);
    }
    EXPECT_EQ(reported, counted);
}

// A dump goes on as it is read, whatever room the socket has; a second one has to wait for it.
TEST_F(Netlink, LongDumpsComeInManyDatagrams) {
    constexpr int kQps = 300;
    const Owned<ibv_context> context = open_device();
    const Owned<ibv_pd> pd(check(ibv_alloc_pd(context.get()), "pd"));
    const Owned<ibv_cq> cq = create_cq(context.get(), 16);
    const Owned<ibv_srq> srq = create_srq(pd.get(), 16);
    std::vector<Owned<ibv_qp>> qps;
    std::set<std::uint32_t> made;
    ibv_qp_init_attr initial = {};
    initial.send_cq = initial.recv_cq = cq.get();
    initial.srq = srq.get();
    initial.cap.max_send_wr = initial.cap.max_send_sge = 1;
    initial.qp_type = IBV_QPT_RC;
    for (int i = 0; i < kQps; ++i) {
        qps.emplace_back(check(ibv_create_qp(pd.get(), &initial), "qp"));
        made.insert(qps.back()->qp_num);
    }
    const int size = 1;  // the kernel makes it the least there is
    ASSERT_EQ(::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &size, sizeof size), 0);
    std::multiset<std::uint32_t> listed;
    for (const AttributeMap& entry : list(RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP))
        listed.insert(number<std::uint32_t>(entry, RDMA_NLDEV_ATTR_RES_LQPN));
    EXPECT_TRUE(std::equal(made.begin(), made.end(), listed.begin(), listed.end()));

    // The ranges of the SRQ's QPs are all of them.
    std::set<std::uint32_t> receivers;
    const AttributeMap entry = list(kSrqGet, 88).at(0);
    EXPECT_EQ(number<std::uint8_t>(entry, RDMA_NLDEV_ATTR_RES_TYPE), IBV_SRQT_BASIC);
    EXPECT_NE(number<std::uint32_t>(entry, kSrqNumber), 0u);
    for (const auto& [type, range] : attributes_of(entry.find(RDMA_NLDEV_ATTR_RES_QP)->second)) {
        const AttributeMap values = attributes_of(range);
        const bool single = values.count(RDMA_NLDEV_ATTR_RES_LQPN) != 0;
        const auto first = number<std::uint32_t>(values, single ? RDMA_NLDEV_ATTR_RES_LQPN : 91);
        const auto last = single ? first : number<std::uint32_t>(values, 92);
        EXPECT_EQ(receivers.count(first - 1), 0u) << "it belongs to the range before";
        for (std::uint32_t qpn = first; qpn <= last; ++qpn)
            receivers.insert(qpn);
    }
    EXPECT_EQ(receivers, made);

    send(Request(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_DUMP).device().bytes());
    send(Request(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_DUMP).device().bytes());
    bool busy = false;
    for (bool done = false; !done && !HasFailure();)
        for (const Reply& reply : receive()) {
            busy = busy || (reply.header.nlmsg_type == NLMSG_ERROR && reply.error() == EBUSY);
            done = done || reply.header.nlmsg_type == NLMSG_DONE;
        }
    EXPECT_TRUE(busy);
}

TEST_F(Netlink, SubsystemCopiesOnFork) {
    const AttributeMap answer = attributes_of(ask(Request(RDMA_NLDEV_CMD_SYS_GET)).payload);
    EXPECT_EQ(number<std::uint8_t>(answer, RDMA_NLDEV_SYS_ATTR_NETNS_MODE), 1);
    EXPECT_EQ(number<std::uint8_t>(answer, kCopyOnFork), 1);
    EXPECT_EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

// sysfs does not tell libibverbs an index.
TEST_F(Netlink, LibibverbsFindsItsDevicesHere) {
    int count = 0;
    ibv_device** devices = ibv_get_device_list(&count);
    ASSERT_NE(devices, nullptr);
    ASSERT_EQ(count, 1);
    EXPECT_EQ(ibv_get_device_index(devices[0]), 0);
    EXPECT_STREQ(ibv_get_device_name(devices[0]), "mlx5_0");
    ibv_free_device_list(devices);
}

}  // namespace
}  // namespace softhca::test
