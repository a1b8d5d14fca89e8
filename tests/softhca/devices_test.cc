// SPDX-License-Identifier: BSD-2-Clause
// Several devices with several ports (variants softhca.two.* and softhca.two_roce.*): their names
// and addresses, which QPs reach each other, and what does not cross from one device to another.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstdlib>
#include <set>

#include "port_side.h"

namespace softhca::test {
namespace {

class Devices : public SeveralPorts {};

template <class Visit>
void each_port(const Visit& visit) {
    for (unsigned device = 0; device < 2; ++device)
        for (std::uint8_t port = 1; port <= 2; ++port)
            visit(device, port);
}

TEST_F(Devices, HaveGuidsAndPortsOfTheirOwn) {
    std::set<std::uint64_t> guids, gids;
    std::set<int> lids;
    each_port([&](unsigned device, std::uint8_t port) {
        const Owned<ibv_context> context = open_device_number(device);
        const ibv_device_attr attributes = device_attributes(context.get());
        EXPECT_EQ(attributes.phys_port_cnt, 2);
        EXPECT_EQ(attributes.node_guid, ibv_get_device_guid(context->device)) << "as in sysfs";
        guids.insert(attributes.node_guid);
        ibv_port_attr at{};
        ASSERT_EQ(ibv_query_port(context.get(), port, &at), 0);
        lids.insert(at.lid);
        ibv_gid gid{}, queried{};
        ASSERT_EQ(ibv_query_gid(context.get(), port, 0, &gid), 0);
        gids.insert(gid.global.interface_id);
        ibv_gid_entry entry{};
        ASSERT_EQ(ibv_query_gid_ex(context.get(), port, 0, &entry, 0), 0);
        queried = entry.gid;
        EXPECT_EQ(std::memcmp(&gid, &queried, sizeof gid), 0) << "sysfs says the same";
        EXPECT_EQ(entry.port_num, port);
        EXPECT_EQ(ibv_query_port(context.get(), 3, &at), EINVAL);
        EXPECT_EQ(ibv_query_port(context.get(), 0, &at), EINVAL);
    });
    EXPECT_EQ(guids.size(), 2U);
    EXPECT_EQ(gids.size(), 4U);
    EXPECT_EQ(lids.size(), is_ethernet(open_device().get()) ? 1U : 4U);
}

TEST_F(Devices, FilesHaveNumbersOfTheirOwn) {
    struct stat status {};
    ASSERT_EQ(stat("/dev/infiniband/uverbs1", &status), 0);
    EXPECT_TRUE(S_ISCHR(status.st_mode));
    EXPECT_EQ(minor(status.st_rdev), 193U);
    const Owned<ibv_context> second = open_device_number(1);
    ASSERT_EQ(fstat(second->cmd_fd, &status), 0);
    EXPECT_EQ(minor(status.st_rdev), 193U);
    EXPECT_EQ(stat("/dev/infiniband/uverbs2", &status), -1);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_EQ(open("/dev/infiniband/uverbs2", O_RDWR), -1);
    EXPECT_EQ(errno, ENOENT);
}

TEST_F(Devices, EveryPortReachesEveryPort) {
    each_port([&](unsigned from_device, std::uint8_t from_port) {
        each_port([&](unsigned device, std::uint8_t port) {
            for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
                const PortSide a(from_device, from_port, {type}), b(device, port, {type});
                a.connect(b);
                b.connect(a);
                EXPECT_TRUE(reaches(a, b))
                    << from_device << '/' << int{from_port} << " to " << device << '/' << int{port};
                EXPECT_TRUE(reaches(b, a));
            }
        });
    });
}

TEST_F(Devices, DatagramsGoToThePortOfTheirAddress) {
    each_port([&](unsigned device, std::uint8_t port) {
        const PortSide a(0, 2, {IBV_QPT_UD}), b(device, port, {IBV_QPT_UD});
        a.connect(b);
        b.connect(a);
        ibv_ah_attr path = a.path_to(b);
        const Owned<ibv_ah> ah(check(ibv_create_ah(a.pd.get(), &path), "ibv_create_ah"));
        b.post_receive();
        a.memory->fill(2048, 64, 3);
        a.post_send(2, 64, ah.get(), b.qp->qp_num);
        EXPECT_EQ(a.poll().status, IBV_WC_SUCCESS);
        const ibv_wc received = b.poll();
        ASSERT_EQ(received.status, IBV_WC_SUCCESS);
        EXPECT_TRUE(b.memory->holds(PortSide::kGrh, 64, 3));
        if (!a.ethernet) {
            EXPECT_EQ(received.slid, a.attributes.lid);
        }
    });
}

// The QP's number is right, but not the port.
TEST_F(Devices, AWrongAddressReachesNobody) {
    const PortSide a(0, 1), b(1, 1), other(1, 2);
    a.connect(b, a.path_to(other));
    b.connect(a);
    b.post_receive();
    a.post_send();
    EXPECT_EQ(a.poll().status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(b.poll(std::chrono::milliseconds(20)).wr_id, ~0ull);
}

// The request arrives; its acknowledgement goes elsewhere.
TEST_F(Devices, AnAnswerToAWrongAddressIsLost) {
    const PortSide a(0, 1), b(1, 1), other(0, 2);
    a.connect(b);
    b.connect(a, b.path_to(other));
    b.post_receive();
    a.post_send();
    EXPECT_EQ(a.poll().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Devices, DatagramsToAWrongAddressAreLost) {
    const PortSide a(0, 1, {IBV_QPT_UD}), b(1, 1, {IBV_QPT_UD}), other(1, 2, {IBV_QPT_UD});
    a.connect(b);
    b.connect(a);
    ibv_ah_attr path = a.path_to(other);
    const Owned<ibv_ah> ah(check(ibv_create_ah(a.pd.get(), &path), "ibv_create_ah"));
    b.post_receive();
    a.post_send(2, 64, ah.get(), b.qp->qp_num);
    EXPECT_EQ(a.poll().status, IBV_WC_SUCCESS);
    EXPECT_EQ(b.poll(std::chrono::milliseconds(100)).wr_id, ~0ull);
}

TEST_F(Devices, AGlobalRouteNamesThePortToo) {
    const PortSide a(0, 1), b(1, 1), other(1, 2);
    if (a.ethernet) GTEST_SKIP() << "there it is the only address";
    ibv_ah_attr path = a.path_to(b);
    path.is_global = 1;
    a.connect(b, path);
    b.connect(a);
    EXPECT_TRUE(reaches(a, b));
    const PortSide c(0, 1), d(1, 1);
    path.grh.dgid = other.gid;
    c.connect(d, path);
    d.connect(c);
    d.post_receive();
    c.post_send();
    EXPECT_EQ(c.poll().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Devices, AnAddressVectorHasTheQpsPort) {
    const PortSide a(0, 1), b(1, 2);
    EXPECT_EQ(a.to_init(3), EINVAL);
    EXPECT_EQ(a.to_init(0), EINVAL);
    ASSERT_EQ(a.to_init(1), 0);
    ibv_ah_attr path = a.path_to(b);
    path.port_num = 2;
    EXPECT_EQ(a.to_ready_to_receive(b.qp->qp_num, path), EINVAL);
    path.port_num = 1;
    EXPECT_EQ(a.to_ready_to_receive(b.qp->qp_num, path), 0);
    ibv_ah_attr third = a.path_to(b);
    third.port_num = 3;
    EXPECT_EQ(ibv_create_ah(a.pd.get(), &third), nullptr);
}

TEST_F(Devices, ObjectsStayOnTheirDevice) {
    const PortSide a(0, 1), b(1, 1);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = b.cq.get();
    wanted.recv_cq = a.cq.get();
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {1, 1, 1, 1, 0};
    EXPECT_EQ(ibv_create_qp(a.pd.get(), &wanted), nullptr);
    // A key of the other device is one of another protection domain.
    const PortSide c(0, 1), d(1, 1);
    c.connect(d);
    d.connect(c);
    ibv_sge sge = d.memory->sge(0, 64);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    ASSERT_EQ(ibv_post_send(c.qp.get(), &wr, &bad), 0);
    EXPECT_EQ(c.poll().status, IBV_WC_LOC_PROT_ERR);
}

// Both devices may use one file, but each has a domain of its own for it.
TEST_F(Devices, XrcDomainsStayOnTheirDevice) {
    char name[] = "/tmp/softhca-xrc-XXXXXX";
    const int file = mkstemp(name);
    ASSERT_GE(file, 0);
    const Owned<ibv_context> first = open_device_number(0), second = open_device_number(1);
    ibv_xrcd_init_attr wanted{};
    wanted.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    wanted.fd = file;
    wanted.oflags = O_CREAT;
    const Owned<ibv_xrcd> one(check(ibv_open_xrcd(first.get(), &wanted), "ibv_open_xrcd"));
    wanted.oflags = 0;
    EXPECT_EQ(ibv_open_xrcd(second.get(), &wanted), nullptr) << "there is none of that file";
    wanted.oflags = O_CREAT | O_EXCL;
    const Owned<ibv_xrcd> other(ibv_open_xrcd(second.get(), &wanted));
    EXPECT_NE(other.get(), nullptr);
    close(file);
    unlink(name);
}

}  // namespace
}  // namespace softhca::test
