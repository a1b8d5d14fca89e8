// SPDX-License-Identifier: BSD-2-Clause
// Connections by rdma_cm with addresses of AF_IB: a GID, a partition key and a service ID.
#include <endian.h>

#include "connection_manager.h"

namespace softhca::test {
namespace {

constexpr std::uint64_t kPortMask = 0xffff, kWhole = ~std::uint64_t{0};
constexpr std::uint64_t kSpaceMask = ~kPortMask;
constexpr std::uint64_t kTcp = RDMA_PS_TCP << 16, kUdp = RDMA_PS_UDP << 16, kIb = RDMA_PS_IB << 16;

struct SockaddrIb {  // struct sockaddr_ib, which only the kernel's and librdmacm's headers have
    std::uint16_t family, pkey;
    std::uint32_t flow;
    ibv_gid gid;
    std::uint64_t service, mask, scope;
    bool operator==(const SockaddrIb& other) const {
        return std::memcmp(this, &other, sizeof other) == 0;
    }
};
static_assert(sizeof(SockaddrIb) == 48);

SockaddrIb wildcard(std::uint64_t service, std::uint64_t mask = kWhole) {
    SockaddrIb out{};
    out.family = AF_IB;
    out.pkey = 0xffff;
    out.service = htobe64(service);
    out.mask = htobe64(mask);
    return out;
}

SockaddrIb at(const ibv_gid& gid, std::uint64_t service, std::uint64_t mask = kWhole) {
    SockaddrIb out = wildcard(service, mask);
    out.gid = gid;
    return out;
}

ibv_gid loopback() {
    ibv_gid out{};
    out.raw[15] = 1;
    return out;
}

// A GID of the fabric's subnet that no port has.
ibv_gid strange(ibv_gid gid) {
    gid.raw[8] ^= 0xff;
    return gid;
}

// The commands as librdmacm gives them if it has found AF_IB.
int bind(const Manager& manager, std::uint32_t id, const SockaddrIb& address,
         std::uint16_t size = sizeof(SockaddrIb)) {
    rdma_ucm_bind wanted{};
    wanted.id = id;
    wanted.addr_size = size;
    std::memcpy(&wanted.addr, &address, sizeof address);
    return manager.run(RDMA_USER_CM_CMD_BIND, wanted);
}

int resolve(const Manager& manager, std::uint32_t id, const SockaddrIb& to,
            const SockaddrIb* from = nullptr) {
    rdma_ucm_resolve_addr wanted{};
    wanted.id = id;
    wanted.dst_size = sizeof to;
    std::memcpy(&wanted.dst_addr, &to, sizeof to);
    if (from != nullptr) {
        wanted.src_size = sizeof *from;
        std::memcpy(&wanted.src_addr, from, sizeof *from);
    }
    wanted.timeout_ms = 2000;
    return manager.run(RDMA_USER_CM_CMD_RESOLVE_ADDR, wanted);
}

struct Addresses {
    SockaddrIb source, destination;
    rdma_ucm_query_addr_resp answer;
    std::uint64_t service() const { return be64toh(source.service); }
};

Addresses query(const Manager& manager, std::uint32_t id, std::uint32_t option) {
    Addresses out{};
    rdma_ucm_query wanted{};
    wanted.id = id;
    wanted.option = option;
    require(manager.ask(RDMA_USER_CM_CMD_QUERY, wanted, out.answer), "QUERY");
    std::memcpy(&out.source, &out.answer.src_addr, sizeof out.source);
    std::memcpy(&out.destination, &out.answer.dst_addr, sizeof out.destination);
    return out;
}
Addresses addresses(const Manager& manager, std::uint32_t id) {
    return query(manager, id, RDMA_USER_CM_QUERY_ADDR);
}

class RdmaCmGid : public testing::Test {
protected:
    void SetUp() override {
        if (is_ethernet(device_.get())) GTEST_SKIP() << "GIDs of AF_IB are those of InfiniBand";
        require(ibv_query_gid(device_.get(), 1, 0, &gid_), "querying the GID");
    }
    SockaddrIb here(std::uint64_t service, std::uint64_t mask = kWhole) const {
        return at(gid_, service, mask);
    }
    // An id that listens there.
    std::uint32_t listener(const SockaddrIb& address, std::uint16_t space = RDMA_PS_TCP) {
        const std::uint32_t id = server_.create(kServerUid, space);
        require(bind(server_, id, address), "BIND");
        require(server_.listen(id), "LISTEN");
        return id;
    }
    // An id that knows the way to that service of the port.
    std::uint32_t routed(std::uint64_t service, std::uint16_t space = RDMA_PS_TCP) {
        const std::uint32_t id = client_.create(kClientUid, space);
        require(resolve(client_, id, here(service)), "RESOLVE_ADDR");
        client_.expect(kAddressResolved);
        require(client_.resolve_route(id), "RESOLVE_ROUTE");
        client_.expect(kRouteResolved);
        return id;
    }
    // The event at the listener of a request with that data.
    rdma_ucm_event_resp request(std::uint32_t id, const std::string& data = {}) {
        require(client_.connect(id, Manager::parameters(0x111, data)), "CONNECT");
        return server_.expect(kConnectRequest);
    }
    const Owned<ibv_context> device_ = open_device();
    ibv_gid gid_{};
    Manager server_, client_;
};

TEST_F(RdmaCmGid, BindsToTheGidOfThePort) {
    const std::uint32_t id = server_.create(1);
    EXPECT_EQ(bind(server_, id, at(strange(gid_), kTcp | 7700)), ENODEV);
    EXPECT_EQ(bind(server_, id, here(kTcp | 7700), 28), EINVAL) << "too short";
    EXPECT_EQ(bind(server_, id, here(kTcp | 7700), 56), EINVAL) << "too long";
    ASSERT_EQ(bind(server_, id, here(kTcp | 7700)), 0);
    EXPECT_EQ(bind(server_, id, here(kTcp | 7700)), EINVAL) << "bound already";
    const Addresses found = addresses(server_, id);
    EXPECT_EQ(found.answer.src_size, sizeof(SockaddrIb));
    EXPECT_EQ(found.source, here(kTcp | 7700));
    EXPECT_NE(found.answer.node_guid, 0U);
    EXPECT_EQ(found.answer.port_num, 1);
    EXPECT_EQ(found.answer.pkey, 0xffff);
}

TEST_F(RdmaCmGid, TheServiceIdNamesThePortSpace) {
    const std::uint32_t any_space = server_.create(1, RDMA_PS_IB);
    ASSERT_EQ(bind(server_, any_space, wildcard(kTcp, kSpaceMask)), 0) << "as librdmacm tries it";
    const Addresses found = addresses(server_, any_space);
    EXPECT_EQ(found.service() & kSpaceMask, kTcp);
    EXPECT_NE(found.service() & kPortMask, 0U) << "a free port";
    EXPECT_EQ(found.source.mask, kWhole);
    EXPECT_EQ(found.answer.node_guid, 0U) << "a wildcard is of no device";

    const std::uint32_t tcp = server_.create(2);
    EXPECT_EQ(bind(server_, tcp, here(kUdp | 7700)), EPROTONOSUPPORT);
    EXPECT_EQ(bind(server_, tcp, here(kIb | 7700)), EPROTONOSUPPORT);
    EXPECT_EQ(bind(server_, tcp, here(0x1234'0000'0000 | kTcp)), EPROTONOSUPPORT);
    ASSERT_EQ(bind(server_, tcp, here(7700, kPortMask)), 0) << "its own space";
    EXPECT_EQ(addresses(server_, tcp).service(), kTcp | 7700);
    const std::uint32_t ipoib = server_.create(3, RDMA_PS_IPOIB);
    EXPECT_EQ(bind(server_, ipoib, wildcard(0, 0)), EPROTONOSUPPORT);

    const std::uint32_t udp = server_.create(4, RDMA_PS_IB);
    EXPECT_EQ(bind(server_, udp, here(kTcp | 7700)), EADDRINUSE) << "of the same space by its SID";
    EXPECT_EQ(bind(server_, udp, here(kUdp | 7700)), 0);
}

TEST_F(RdmaCmGid, ASecondListenerOfTheServiceIsRefused) {
    listener(here(kTcp | 7700));
    const std::uint32_t second = server_.create(2);
    EXPECT_EQ(bind(server_, second, here(kTcp | 7700)), EADDRINUSE);
    EXPECT_EQ(bind(server_, second, wildcard(kTcp | 7700)), EADDRNOTAVAIL);
    EXPECT_EQ(server_.bind(second, address_of("0.0.0.0", 7700)), EADDRNOTAVAIL) << "of IPv4, too";

    const std::uint32_t sharing = server_.create(3), other = server_.create(4);
    ASSERT_EQ(server_.set_option(sharing, RDMA_OPTION_ID_REUSEADDR, 1), 0);
    ASSERT_EQ(server_.set_option(other, RDMA_OPTION_ID_REUSEADDR, 1), 0);
    ASSERT_EQ(bind(server_, sharing, here(kTcp | 7701)), 0);
    ASSERT_EQ(bind(server_, other, here(kTcp | 7701)), 0);
    EXPECT_EQ(server_.listen(sharing), EADDRINUSE);
    ASSERT_EQ(server_.destroy(other), 0);
    EXPECT_EQ(server_.listen(sharing), 0);
}

TEST_F(RdmaCmGid, ConnectsWithTheWholePrivateData) {
    listener(here(kTcp | 7700));
    const std::uint32_t active = routed(kTcp | 7700);
    const std::string longest(92, 'x');
    EXPECT_EQ(client_.connect(active, Manager::parameters(0x111, longest + "x")), EINVAL);
    const rdma_ucm_event_resp asked = request(active, longest);
    EXPECT_EQ(data_of(asked), longest) << "nothing of it is a header";
    EXPECT_EQ(asked.param.conn.qp_num, 0x111U);

    const Addresses own = addresses(client_, active), passive = addresses(server_, asked.id);
    EXPECT_EQ(passive.source, here(kTcp | 7700));
    EXPECT_EQ(passive.destination.gid.global.interface_id, gid_.global.interface_id);
    EXPECT_EQ(passive.destination.family, AF_IB);
    EXPECT_EQ(own.destination, here(kTcp | 7700));
    EXPECT_EQ(own.source.gid.global.interface_id, gid_.global.interface_id);

    ib_uverbs_qp_attr attributes{};
    ASSERT_EQ(server_.qp_attributes(asked.id, IBV_QPS_RTR, attributes), 0);
    EXPECT_EQ(attributes.dest_qp_num, 0x111U);
    EXPECT_EQ(attributes.ah_attr.dlid, port_attributes(device_.get()).lid);
    EXPECT_EQ(attributes.ah_attr.is_global, 0);

    const std::string reply(196, 'y');
    ASSERT_EQ(server_.accept(asked.id, kAcceptedUid, Manager::parameters(0x222, reply)), 0);
    EXPECT_EQ(data_of(client_.expect(kConnectResponse)), reply);
    ASSERT_EQ(client_.confirm(active), 0);
    server_.expect(kEstablished);
    Manager other;
    std::uint32_t reported = 0;
    ASSERT_EQ(other.migrate(asked.id, server_, &reported), 0);
    ASSERT_EQ(client_.disconnect(active), 0);
    EXPECT_EQ(client_.expect(kDisconnected).uid, kClientUid);
    EXPECT_EQ(other.expect(kDisconnected).uid, kAcceptedUid);
}

TEST_F(RdmaCmGid, QueriesAddressPathAndGid) {
    const SockaddrIb from = here(kTcp | 7702);
    const std::uint32_t id = client_.create(kClientUid);
    ASSERT_EQ(resolve(client_, id, here(0x1234'5678'9abc'def0), &from), 0);
    client_.expect(kAddressResolved);
    ASSERT_EQ(client_.resolve_route(id), 0);
    client_.expect(kRouteResolved);
    for (const std::uint32_t option : {RDMA_USER_CM_QUERY_ADDR, RDMA_USER_CM_QUERY_GID}) {
        const Addresses found = query(client_, id, option);
        EXPECT_EQ(found.source, from);
        EXPECT_EQ(found.destination, here(0x1234'5678'9abc'def0)) << "any service";
        EXPECT_EQ(found.answer.dst_size, sizeof(SockaddrIb));
    }
    struct {
        std::uint32_t paths, reserved;
        struct {
            std::uint32_t flags, reserved;
            std::uint8_t record[64];
        } path;
    } path{};
    rdma_ucm_query wanted{};
    wanted.id = id;
    wanted.option = RDMA_USER_CM_QUERY_PATH;
    ASSERT_EQ(client_.ask(RDMA_USER_CM_CMD_QUERY, wanted, path), 0);
    EXPECT_EQ(path.paths, 1U);
    EXPECT_EQ(std::memcmp(path.path.record + 8, gid_.raw, 16), 0) << "the destination's GID";
    EXPECT_EQ(std::memcmp(path.path.record + 24, gid_.raw, 16), 0) << "the source's";
    // QUERY_ROUTE has room for the beginning of an address.
    const rdma_ucm_query_route_resp route = client_.route(id);
    EXPECT_EQ(std::memcmp(&route.src_addr, &from, sizeof route.src_addr), 0);
    EXPECT_EQ(std::memcmp(route.ib_route[0].dgid, gid_.raw, 16), 0);
}

TEST_F(RdmaCmGid, FindsNoWayToAStrangeGid) {
    const std::uint32_t id = client_.create(kClientUid);
    ibv_gid elsewhere = gid_;
    elsewhere.raw[2] = 1;
    EXPECT_EQ(resolve(client_, id, at(elsewhere, kTcp | 7700)), ENODEV) << "of another subnet";
    ASSERT_EQ(resolve(client_, id, at(strange(gid_), kTcp | 7700)), 0);
    client_.expect(kAddressResolved);
    ASSERT_EQ(client_.resolve_route(id), 0);
    EXPECT_EQ(static_cast<int>(client_.expect(kRouteError).status), -EINVAL);
    EXPECT_EQ(client_.connect(id, Manager::parameters(1)), EINVAL);

    SockaddrIb partition = here(kTcp | 7700);
    partition.pkey = htobe16(0x1234);
    const std::uint32_t second = client_.create(2);
    EXPECT_EQ(resolve(client_, second, partition), ENODEV) << "no port is in that partition";
    const std::uint32_t bound = client_.create(3);
    ASSERT_EQ(bind(client_, bound, partition), 0);
    ib_uverbs_qp_attr attributes{};
    EXPECT_EQ(client_.qp_attributes(bound, IBV_QPS_INIT, attributes), ENOENT);
    EXPECT_EQ(client_.resolve(bound, address_of("127.0.0.1", 5)), EINVAL) << "another family";
}

TEST_F(RdmaCmGid, ALostServiceIsRefused) {
    const std::uint32_t nobody = routed(kTcp | 7705);
    ASSERT_EQ(client_.connect(nobody, Manager::parameters(1)), 0);
    EXPECT_EQ(client_.expect(kRejected).status, 8U) << "no such service";
    listener(here(kUdp | 7705), RDMA_PS_UDP);
    const std::uint32_t connected = routed(kUdp | 7705, RDMA_PS_TCP);
    ASSERT_EQ(client_.connect(connected, Manager::parameters(1)), 0);
    EXPECT_EQ(client_.expect(kRejected).status, 28U) << "a service of datagrams";
}

TEST_F(RdmaCmGid, EachPortHasListenersOfItsOwn) {
    ibv_gid second{};
    if (ibv_query_gid(device_.get(), 2, 0, &second) != 0) GTEST_SKIP() << "one port";
    listener(here(kTcp | 7700));
    const std::uint32_t astray = client_.create(kClientUid);
    ASSERT_EQ(resolve(client_, astray, at(second, kTcp | 7700)), 0);
    client_.expect(kAddressResolved);
    ASSERT_EQ(client_.resolve_route(astray), 0);
    client_.expect(kRouteResolved);
    ASSERT_EQ(client_.connect(astray, Manager::parameters(1)), 0);
    EXPECT_EQ(client_.expect(kRejected).status, 28U) << "the service is that of the first port";

    const std::uint32_t there = listener(at(second, kTcp | 7700));
    const SockaddrIb from = at(second, kTcp, kSpaceMask);
    const std::uint32_t id = client_.create(kClientUid);
    ASSERT_EQ(resolve(client_, id, at(second, kTcp | 7700), &from), 0);
    client_.expect(kAddressResolved);
    EXPECT_EQ(addresses(client_, id).answer.port_num, 2);
    ASSERT_EQ(client_.resolve_route(id), 0);
    client_.expect(kRouteResolved);
    const rdma_ucm_event_resp asked = request(id);
    EXPECT_EQ(addresses(server_, asked.id).answer.port_num, 2);
    EXPECT_EQ(addresses(server_, asked.id).source, at(second, kTcp | 7700));
    EXPECT_EQ(server_.destroy(there), 0);
}

TEST_F(RdmaCmGid, WildcardsServeEveryAddress) {
    listener(wildcard(kTcp | 7700));
    // By the GID, by the loopback GID, by the wildcard.
    for (const ibv_gid& to : {gid_, loopback(), ibv_gid{}}) {
        const std::uint32_t id = client_.create(kClientUid);
        ASSERT_EQ(resolve(client_, id, at(to, kTcp | 7700)), 0);
        client_.expect(kAddressResolved);
        ASSERT_EQ(client_.resolve_route(id), 0);
        client_.expect(kRouteResolved);
        const rdma_ucm_event_resp asked = request(id);
        EXPECT_EQ(addresses(server_, asked.id).source, here(kTcp | 7700));
    }
    // An id with an IP address: its header comes first.
    const std::uint32_t by_ip = client_.routed(kClientUid, 7700);
    const std::string data = data_of(request(by_ip, "hello"));
    ASSERT_EQ(data.size(), 92U);
    EXPECT_EQ(data[0], 0);
    EXPECT_EQ(data[1], 0x40);
    EXPECT_EQ(data.substr(16, 4), std::string("\x7f\0\0\1", 4));
    EXPECT_EQ(data.substr(36, 5), "hello");
}

// librdmacm makes such a header if ibacm has found the GIDs of IP addresses.
TEST_F(RdmaCmGid, AHeaderOfIpAddressesReachesTheirListener) {
    std::uint16_t port = 0;
    server_.listener(kServerUid, &port);
    std::string header(36, '\0');
    header[1] = 0x40;
    header.replace(2, 2, "\x12\x34");
    header.replace(16, 4, std::string("\x7f\0\0\2", 4));
    header.replace(32, 4, std::string("\x7f\0\0\1", 4));
    const rdma_ucm_event_resp asked = request(routed(kTcp | port), header + "hello");
    EXPECT_EQ(data_of(asked), padded("hello", 56));
    const rdma_ucm_query_route_resp route = server_.route(asked.id);
    const sockaddr_in6 own = address_of("127.0.0.1", port), far = address_of("127.0.0.2", 0x1234);
    EXPECT_EQ(std::memcmp(&route.src_addr, &own, sizeof(sockaddr_in)), 0);
    EXPECT_EQ(std::memcmp(&route.dst_addr, &far, sizeof(sockaddr_in)), 0);

    const std::uint32_t bare = routed(kTcp | port);
    ASSERT_EQ(client_.connect(bare, Manager::parameters(1, "no header")), 0);
    EXPECT_EQ(client_.expect(kRejected).status, 28U);
}

TEST_F(RdmaCmGid, DatagramsHaveAKeyOfTheirOwn) {
    listener(here(kUdp | 7700), RDMA_PS_UDP);
    const std::string longest(216, 'z');
    const std::uint32_t active = routed(kUdp | 7700, RDMA_PS_UDP);
    const rdma_ucm_event_resp asked = request(active, longest);
    EXPECT_EQ(asked.param.ud.private_data_len, 216);
    EXPECT_EQ(std::memcmp(asked.param.ud.private_data, longest.data(), 216), 0);
    rdma_ucm_conn_param answer = Manager::parameters(0x333);
    answer.qkey = 0x1111'2222;
    ASSERT_EQ(server_.accept(asked.id, kAcceptedUid, answer), 0);
    const rdma_ucm_event_resp established = client_.expect(kEstablished);
    EXPECT_EQ(established.param.ud.qkey, 0x1111'2222U);
    EXPECT_EQ(established.param.ud.ah_attr.dlid, port_attributes(device_.get()).lid);
}

int join(const Manager& manager, std::uint32_t id, const ibv_gid& gid) {
    const SockaddrIb group = at(gid, 0);
    rdma_ucm_join_mcast wanted{};
    wanted.id = id;
    wanted.addr_size = sizeof group;
    wanted.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER;
    std::memcpy(&wanted.addr, &group, sizeof group);
    rdma_ucm_create_id_resp answer{};
    return manager.ask(RDMA_USER_CM_CMD_JOIN_MCAST, wanted, answer);
}

TEST_F(RdmaCmGid, JoinsTheGroupOfAGid) {
    ibv_gid group{};
    group.raw[0] = 0xff;
    group.raw[1] = 0x12;
    group.raw[15] = 7;
    const std::uint32_t by_ip = client_.create(1, RDMA_PS_UDP);
    ASSERT_EQ(client_.resolve(by_ip, address_of("127.0.0.1", 5)), 0);
    client_.expect(kAddressResolved);
    ASSERT_EQ(join(client_, by_ip, group), 0);
    const rdma_ucm_event_resp joined = client_.expect(kMulticastJoin);
    EXPECT_EQ(std::memcmp(joined.param.ud.ah_attr.grh.dgid, group.raw, 16), 0);
    ASSERT_EQ(join(client_, by_ip, gid_), 0);
    EXPECT_EQ(static_cast<int>(client_.expect(kMulticastError).status), -EINVAL) << "no group";
    const std::uint32_t by_gid = client_.create(2, RDMA_PS_UDP);
    ASSERT_EQ(bind(client_, by_gid, here(kUdp, kSpaceMask)), 0);
    EXPECT_EQ(join(client_, by_gid, group), EADDRNOTAVAIL);
}

// An Ethernet port: wildcards can be bound, GIDs and routes are none of AF_IB.
class RdmaCmGidEthernet : public RdmaCmGid {
protected:
    void SetUp() override {
        if (!is_ethernet(device_.get())) GTEST_SKIP() << "the rules of an Ethernet port";
        require(ibv_query_gid(device_.get(), 1, 1, &gid_), "querying the GID");
    }
};

TEST_F(RdmaCmGidEthernet, OnlyWildcardsCanBeBound) {
    const std::uint32_t probe = server_.create(1, RDMA_PS_IB);
    EXPECT_EQ(bind(server_, probe, wildcard(kTcp, kSpaceMask)), 0);
    const std::uint32_t id = server_.create(2);
    EXPECT_EQ(bind(server_, id, here(kTcp | 7700)), ENODEV);
    EXPECT_EQ(resolve(server_, id, here(kTcp | 7700)), ENODEV);
    const std::uint32_t local = client_.create(3);
    ASSERT_EQ(resolve(client_, local, at(loopback(), kTcp | 7700)), 0);
    client_.expect(kAddressResolved);
    EXPECT_EQ(client_.resolve_route(local), ENODEV);
    listener(wildcard(kTcp | 7701));
    const std::uint32_t by_ip = client_.routed(kClientUid, 7701);
    ASSERT_EQ(client_.connect(by_ip, Manager::parameters(1)), 0);
    EXPECT_EQ(client_.expect(kRejected).status, 28U);
}

}  // namespace
}  // namespace softhca::test
