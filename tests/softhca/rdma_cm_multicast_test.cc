// SPDX-License-Identifier: BSD-2-Clause
// Multicast by rdma_cm: which group an address stands for, the events of a join, and what the
// kernel's ucma.c and cma.c refuse.
#include <cerrno>
#include <thread>

#include "connection_manager.h"
#include "multicast_fixture.h"

namespace softhca::test {
namespace {

constexpr std::uint64_t kGroupUid = 0x9a9a;

bool on_ethernet() { return is_ethernet(open_device().get()); }

ibv_gid gid_of(const std::string& ipv6) {
    ibv_gid gid = {};
    EXPECT_EQ(inet_pton(AF_INET6, ipv6.c_str(), &gid), 1);
    return gid;
}

// An id of datagrams that knows the device.
std::uint32_t resolved(const Manager& manager, const std::string& ip = "127.0.0.1",
                       std::uint16_t space = RDMA_PS_UDP) {
    const std::uint32_t id = manager.create(kClientUid, space);
    require(manager.resolve(id, address_of(ip)), "RESOLVE_IP");
    manager.expect(kAddressResolved);
    return id;
}

rdma_ucm_event_resp joined(const Manager& manager, std::uint32_t id, const std::string& ip,
                           std::uint32_t* group) {
    require(manager.join(id, ip, kGroupUid, group), "JOIN_MCAST");
    return manager.expect(kMulticastJoin);
}

TEST(RdmaCmMulticast, JoinTellsWhereTheGroupIs) {
    const Manager manager;
    // The address resolves to the device, whether this host has a route to it or not.
    const std::uint32_t id = resolved(manager, "239.1.2.3");
    std::uint32_t group;
    const rdma_ucm_event_resp event = joined(manager, id, "239.1.2.3", &group);
    EXPECT_EQ(event.uid, kGroupUid);
    EXPECT_EQ(event.id, group);
    EXPECT_EQ(event.status, 0u);
    EXPECT_EQ(event.param.ud.qp_num, kGroupQp);
    EXPECT_EQ(event.param.ud.qkey, 0x01234567u);
    EXPECT_EQ(event.param.ud.private_data_len, 0);
    const ib_uverbs_ah_attr& path = event.param.ud.ah_attr;
    EXPECT_EQ(path.is_global, 1);
    EXPECT_EQ(path.port_num, 1);
    const bool ethernet = on_ethernet();
    const ibv_gid gid = gid_of(ethernet ? "::ffff:239.1.2.3" : "ff12:4001:ffff::f01:203");
    EXPECT_EQ(std::memcmp(path.grh.dgid, &gid, 16), 0);
    EXPECT_EQ(path.grh.sgid_index, ethernet ? 3 : 0);
    EXPECT_EQ(path.grh.hop_limit, ethernet ? 64 : 0);
    if (ethernet) {
        EXPECT_EQ(path.dlid, 0);
    } else {
        EXPECT_GT(path.dlid, 0xc000);
        EXPECT_LT(path.dlid, 0xffff);
    }
    std::uint32_t reported = 0;
    EXPECT_EQ(manager.leave(group, &reported), 0);
    EXPECT_EQ(reported, 1u);
    EXPECT_EQ(manager.destroy(id, &reported), 0);
    EXPECT_EQ(reported, 2u) << "an event of a group is one of its id, too";
}

TEST(RdmaCmMulticast, MapsAddressesAsTheKernelDoes) {
    const Manager manager;
    const std::uint32_t id = resolved(manager);
    const std::uint32_t ipoib = resolved(manager, "127.0.0.1", RDMA_PS_IPOIB);
    std::uint32_t group, reported;
    const auto expect_gid = [&](std::uint32_t of, const std::string& ip, const std::string& gid) {
        SCOPED_TRACE(ip);
        const rdma_ucm_event_resp event = joined(manager, of, ip, &group);
        const ibv_gid wanted = gid_of(gid);
        EXPECT_EQ(std::memcmp(event.param.ud.ah_attr.grh.dgid, &wanted, 16), 0);
        EXPECT_EQ(manager.leave(group, &reported), 0);
    };
    if (on_ethernet()) {
        expect_gid(id, "224.0.0.1", "::ffff:224.0.0.1");
        expect_gid(ipoib, "224.0.0.1", "::ffff:224.0.0.1");
        EXPECT_EQ(manager.join(id, "ff0e::1", 1, &group), 524) << "ENOTSUPP of the kernel";
        EXPECT_EQ(manager.join(id, "0.0.0.0", 1, &group), EINVAL);
        EXPECT_EQ(manager.join(id, "::", 1, &group), EINVAL);
        return;
    }
    expect_gid(id, "255.1.2.3", "ff12:4001:ffff::f01:203");
    expect_gid(ipoib, "224.0.0.1", "ff12:401b:ffff::1");
    expect_gid(id, "ff0e::1:2:3", "ff12:6001:ffff:0:0:1:2:3");
    expect_gid(ipoib, "ff0e::1:2:3", "ff12:601b:ffff:0:0:1:2:3");
    expect_gid(id, "ff12:a01b:ffff::5", "ff12:a01b:ffff::5");
    // The wildcard asks for a new group, by whose GID others can join it.
    const rdma_ucm_event_resp first = joined(manager, id, "0.0.0.0", &group);
    const rdma_ucm_event_resp second = joined(manager, id, "::", &group);
    EXPECT_NE(std::memcmp(first.param.ud.ah_attr.grh.dgid, second.param.ud.ah_attr.grh.dgid, 16),
              0);
    char text[INET6_ADDRSTRLEN];
    inet_ntop(AF_INET6, first.param.ud.ah_attr.grh.dgid, text, sizeof text);
    expect_gid(id, text, text);
}

TEST(RdmaCmMulticast, LeaveCountsTheEventsThatWereRead) {
    const Manager manager;
    const std::uint32_t id = resolved(manager);
    std::uint32_t first, second, third, reported;
    ASSERT_EQ(manager.join_ip(id, "239.1.2.1", 1, &first), 0);
    ASSERT_EQ(manager.join_ip(id, "239.1.2.2", 2, &second), 0);
    ASSERT_EQ(manager.join_ip(id, "239.1.2.3", 3, &third), 0);
    EXPECT_EQ(manager.expect(kMulticastJoin).uid, 1u);
    EXPECT_EQ(manager.leave(second, &reported), 0);
    EXPECT_EQ(reported, 0u) << "its event goes with it";
    EXPECT_EQ(manager.expect(kMulticastJoin).uid, 3u);
    EXPECT_TRUE(manager.is_silent());
    EXPECT_EQ(manager.leave(first, &reported), 0);
    EXPECT_EQ(reported, 1u);
    EXPECT_EQ(manager.leave(third, &reported), 0);
    EXPECT_EQ(reported, 1u);
    EXPECT_EQ(manager.leave(third, &reported), ENOENT);
    EXPECT_EQ(manager.destroy(id, &reported), 0);
    EXPECT_EQ(reported, 3u);
}

TEST(RdmaCmMulticast, GroupsGoWithTheirId) {
    const Manager manager;
    const std::uint32_t id = resolved(manager), other = resolved(manager);
    std::uint32_t group, kept, reported;
    ASSERT_EQ(manager.join(other, "239.1.2.3", 2, &kept), 0);
    ASSERT_EQ(manager.join(id, "239.1.2.3", 1, &group), 0);
    ASSERT_EQ(manager.destroy(id), 0);
    EXPECT_EQ(manager.leave(group, &reported), ENOENT);
    EXPECT_EQ(manager.expect(kMulticastJoin).uid, 2u);
    EXPECT_TRUE(manager.is_silent()) << "the event of the other one went";
    Manager second;
    EXPECT_EQ(second.leave(kept, &reported), EINVAL) << "of another channel";
    EXPECT_EQ(second.migrate(other, manager, &reported), 0);
    EXPECT_EQ(manager.leave(kept, &reported), EINVAL);
    EXPECT_EQ(second.leave(kept, &reported), 0);
    EXPECT_EQ(reported, 1u);
    // Closing a channel is the end of its groups.
    ASSERT_EQ(second.join(other, "239.1.2.3", 3, &kept), 0);
    second.close();
    EXPECT_EQ(manager.leave(kept, &reported), ENOENT);
}

TEST(RdmaCmMulticast, JoinsAreRefusedAsTheKernelRefusesThem) {
    const Manager manager;
    std::uint32_t group;
    const std::uint32_t idle = manager.create(1, RDMA_PS_UDP);
    EXPECT_EQ(manager.join(idle, "239.1.2.3", 1, &group), EINVAL) << "no device";
    EXPECT_EQ(manager.join(60000, "239.1.2.3", 1, &group), ENOENT);
    const std::uint32_t connected = resolved(manager, "127.0.0.1", RDMA_PS_TCP);
    EXPECT_EQ(manager.join(connected, "239.1.2.3", 1, &group), EINVAL) << "no datagrams";
    const std::uint32_t id = resolved(manager);
    EXPECT_EQ(manager.join(id, "239.1.2.3", 1, &group, 2), EINVAL) << "no such flag";
    EXPECT_EQ(manager.join(id, "239.1.2.3", 1, &group, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER), 0);
    rdma_ucm_join_mcast wanted{};
    wanted.id = id;
    rdma_ucm_create_id_resp answer{};
    EXPECT_EQ(manager.ask(RDMA_USER_CM_CMD_JOIN_MCAST, wanted, answer), EINVAL) << "no address";
    wanted.addr.ss_family = 27;
    EXPECT_EQ(manager.ask(RDMA_USER_CM_CMD_JOIN_MCAST, wanted, answer), EINVAL)
        << "AF_IB is longer";
    wanted.addr.ss_family = AF_INET;
    wanted.addr_size = sizeof(sockaddr_in6);
    EXPECT_EQ(manager.ask(RDMA_USER_CM_CMD_JOIN_MCAST, wanted, answer), EINVAL) << "a wrong size";
    EXPECT_EQ(manager.run(RDMA_USER_CM_CMD_JOIN_MCAST, wanted), ENOSPC);
    EXPECT_EQ(manager.run(RDMA_USER_CM_CMD_JOIN_IP_MCAST, rdma_ucm_join_ip_mcast{}), ENOSPC);
    EXPECT_EQ(manager.run(RDMA_USER_CM_CMD_LEAVE_MCAST, rdma_ucm_destroy_id{}), ENOSPC);
    rdma_ucm_join_ip_mcast nowhere{};
    nowhere.id = id;
    nowhere.addr = address_of("239.1.2.4");
    nowhere.response = 8;
    manager.expect(kMulticastJoin);
    EXPECT_EQ(manager.run(RDMA_USER_CM_CMD_JOIN_IP_MCAST, nowhere, sizeof answer), EFAULT);
    EXPECT_TRUE(manager.is_silent()) << "it has not joined";
    std::uint32_t reported;
    EXPECT_EQ(manager.leave(60000, &reported), ENOENT);
    ASSERT_EQ(manager.resolve_route(id), 0);
    manager.expect(kRouteResolved);
    EXPECT_EQ(manager.join(id, "239.1.2.3", 1, &group), EINVAL) << "it is too far";
}

// As librdmacm does: the QP is attached where the event says, and messages go there.
TEST(RdmaCmMulticast, EventAttachesTheQpAndLeadsToTheGroup) {
    const Manager manager;
    const std::uint32_t id = resolved(manager);
    std::uint32_t group;
    const rdma_ucm_event_resp event = joined(manager, id, "239.9.9.9", &group);
    const ib_uverbs_ah_attr& path = event.param.ud.ah_attr;
    Group where;
    std::memcpy(&where.gid, path.grh.dgid, 16);
    where.lid = path.dlid;
    Endpoint::Options options;
    options.gid_index = path.grh.sgid_index;
    Member a(1, options), b(1, options);
    for (Member* member : {&a, &b}) {
        member->group = where;
        member->send_to(where);
    }
    ASSERT_EQ(b.join(), 0);
    b.provide(1);
    ASSERT_TRUE(a.run(send_of(a, 20)));
    ASSERT_NO_FATAL_FAILURE(b.expect_message(1, a, 20));
}

}  // namespace
}  // namespace softhca::test
