// SPDX-License-Identifier: BSD-2-Clause
// Which device, port and path a process takes, and what keeps it from a peer. Without a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "heddle/error.h"
#include "protocol/wireup/connector_report.h"
#include "protocol/wireup/connector_wire.h"
#include "verbs/connection.h"
#include "verbs/device_name.h"

namespace heddle {
namespace {

using protocol::EndpointAddress;
using protocol::Obstacle;
using verbs::DeviceChoice;
using verbs::LocalPort;

TEST(DeviceChoice, TakesNamesPatternsAndPorts) {
    const DeviceChoice all("");
    EXPECT_TRUE(all.allows_all());
    EXPECT_TRUE(all.allows("rxe0", 7));
    const DeviceChoice some("mlx5_0,mlx5_1:2,rxe*:1,");
    EXPECT_FALSE(some.allows_all());
    EXPECT_TRUE(some.allows("mlx5_0", 1));
    EXPECT_TRUE(some.allows("mlx5_0", 2));
    EXPECT_FALSE(some.allows("mlx5_00", 1));
    EXPECT_FALSE(some.allows("mlx5_1", 1));
    EXPECT_TRUE(some.allows("mlx5_1", 2));
    EXPECT_TRUE(some.allows("rxe12", 1));
    EXPECT_FALSE(some.allows("rxe12", 2));
    EXPECT_TRUE(some.allows_device("rxe12"));
    EXPECT_FALSE(some.allows_device("siw0"));
    EXPECT_EQ(verbs::name_of_port("mlx5_0", 1), "mlx5_0");
    EXPECT_EQ(verbs::name_of_port("mlx5_0", 2), "mlx5_0:2");
}

TEST(DeviceChoice, RefusesWhatIsNoPort) {
    for (const char* text : {"mlx5_0:", "mlx5_0:0", "mlx5_0:256", "mlx5_0:x", "mlx5_0:1x", ":1"}) {
        try {
            const DeviceChoice choice(text);
            ADD_FAILURE() << text;
        } catch (const VerbsError& error) {
            EXPECT_EQ(error.error(), EINVAL);
            EXPECT_NE(std::string(error.what()).find(text), std::string::npos);
        }
    }
}

LocalPort infiniband_port(std::uint16_t lid) {
    LocalPort port;
    port.number = 2;
    port.lid = lid;
    port.gid = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, static_cast<std::uint8_t>(lid)};
    port.gid_index = 3;
    port.service_level = 5;
    port.traffic_class = 104;
    port.flow_label = 77;
    return port;
}

QpAddress qp_at(const LocalPort& port) { return address_of(protocol::name_of(port), 17); }

TEST(Paths, GoByLidWithinASubnet) {
    const LocalPort own = infiniband_port(4), peer = infiniband_port(9);
    const ibv_ah_attr path = verbs::path_to(qp_at(peer), own);
    EXPECT_EQ(path.dlid, 9);
    EXPECT_EQ(path.is_global, 0);
    EXPECT_EQ(path.port_num, 2);
    EXPECT_EQ(path.sl, 5);
    EXPECT_EQ(path.src_path_bits, 0);
}

TEST(Paths, HaveAGrhToOtherSubnetsAndWhereThePortRequiresIt) {
    LocalPort own = infiniband_port(4), peer = infiniband_port(9);
    peer.gid[7] = 1;
    const ibv_ah_attr routed = verbs::path_to(qp_at(peer), own);
    EXPECT_EQ(routed.is_global, 1);
    EXPECT_EQ(routed.dlid, 9);
    EXPECT_TRUE(std::equal(peer.gid.begin(), peer.gid.end(), routed.grh.dgid.raw));
    EXPECT_EQ(routed.grh.sgid_index, 3);
    EXPECT_EQ(routed.grh.traffic_class, 104);
    EXPECT_EQ(routed.grh.flow_label, 77u);
    EXPECT_GT(routed.grh.hop_limit, 1);
    peer.gid[7] = 0;
    own.grh_required = true;
    EXPECT_EQ(verbs::path_to(qp_at(peer), own).is_global, 1);
    own = {};
    own.ethernet = true;
    peer.ethernet = true;
    const ibv_ah_attr ethernet = verbs::path_to(qp_at(peer), own);
    EXPECT_EQ(ethernet.is_global, 1);
    EXPECT_EQ(ethernet.dlid, 0);
}

TEST(Paths, SpreadOverTheLidsThatBothPortsHave) {
    LocalPort own = infiniband_port(4), peer = infiniband_port(16);
    own.lid_bits = 1;
    peer.lid_bits = 3;
    EXPECT_EQ(protocol::name_of(peer).lid_bits(), 3);
    const ibv_ah_attr odd = verbs::path_to(qp_at(peer), own, 7);
    EXPECT_EQ(odd.dlid, 17);
    EXPECT_EQ(odd.src_path_bits, 1);
    const ibv_ah_attr even = verbs::path_to(qp_at(peer), own, 6);
    EXPECT_EQ(even.dlid, 16);
    EXPECT_EQ(even.src_path_bits, 0);
}

std::string obstacle_text(const EndpointAddress& self, const EndpointAddress& peer) {
    const std::string device = "mlx5_0";
    return protocol::unreachable_text({device, self, peer, EHOSTUNREACH, {}, 0});
}

TEST(Obstacles, AreFoundInTheNames) {
    const LocalPort own = infiniband_port(4), other = infiniband_port(9);
    const EndpointAddress self = protocol::name_of(own);
    EXPECT_EQ(obstacle_to(self, protocol::name_of(other)), Obstacle::kNone);
    EXPECT_EQ(obstacle_to(self, self), Obstacle::kNone);

    LocalPort ethernet = other;
    ethernet.ethernet = true;
    ethernet.roce_v1 = true;
    const EndpointAddress v1 = protocol::name_of(ethernet);
    EXPECT_EQ(obstacle_to(self, v1), Obstacle::kLinkLayer);
    EXPECT_NE(obstacle_text(self, v1).find("its port is Ethernet, and this one is InfiniBand"),
              std::string::npos);
    ethernet.roce_v1 = false;
    EXPECT_EQ(obstacle_to(protocol::name_of(ethernet), v1), Obstacle::kRoceVersion);
    EXPECT_NE(
        obstacle_text(protocol::name_of(ethernet), v1).find("of RoCE v1, and this one of RoCE v2"),
        std::string::npos);

    LocalPort same_lid = other;
    same_lid.lid = own.lid;
    EXPECT_EQ(obstacle_to(self, protocol::name_of(same_lid)), Obstacle::kAnotherFabric);
    same_lid.gid[7] = 1;
    EXPECT_EQ(obstacle_to(self, protocol::name_of(same_lid)), Obstacle::kNone) << "routed";
}

TEST(Obstacles, ArePartitions) {
    LocalPort own = infiniband_port(4), other = infiniband_port(9);
    const auto obstacle_between = [&](unsigned a, unsigned b) {
        own.pkey = static_cast<std::uint16_t>(a);
        other.pkey = static_cast<std::uint16_t>(b);
        return obstacle_to(protocol::name_of(own), protocol::name_of(other));
    };
    EXPECT_EQ(obstacle_between(0x8001, 0x8001), Obstacle::kNone);
    EXPECT_EQ(obstacle_between(0x8001, 0x0001), Obstacle::kNone);
    EXPECT_EQ(obstacle_between(0x0001, 0x0001), Obstacle::kPartition) << "two limited members";
    EXPECT_EQ(obstacle_between(0x8001, 0x8002), Obstacle::kPartition);
    EXPECT_NE(obstacle_text(protocol::name_of(own), protocol::name_of(other))
                  .find("it is in partition 0x8002, and this process in 0x8001"),
              std::string::npos);
}

}  // namespace
}  // namespace heddle
