// SPDX-License-Identifier: BSD-2-Clause
// Which of several ports a process takes. The devices here are none of this machine's.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "verbs/ip_network.h"
#include "verbs/port_choice.h"

namespace heddle::verbs {
namespace {

using testing::ElementsAre;

constexpr std::uint64_t kGigabit = 1'000'000'000;

// A port of a device that is near to no processor.
DeviceInfo port(const char* name, const char* network, std::uint64_t gigabits) {
    DeviceInfo info;
    info.name = name;
    info.transport = "RoCE";
    info.ethernet = true;
    info.network = network;
    info.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 7, 0, 1};
    if (info.network == "fe80::/64") info.gid = {0xfe, 0x80};
    info.speed = gigabits * kGigabit;
    info.port_active = true;
    info.max_srqs = info.max_qps = 100;
    return info;
}

DeviceInfo infiniband(const char* name, std::uint64_t gigabits, std::uint8_t subnet = 0) {
    DeviceInfo info = port(name, "", gigabits);
    info.ethernet = false;
    info.transport = "InfiniBand";
    info.gid = {0xfe, 0x80, 0, 0, 0, 0, 0, subnet};
    return info;
}

std::vector<std::string> ordered(std::vector<DeviceInfo> ports) {
    put_best_first(ports);
    std::vector<std::string> names;
    for (const DeviceInfo& each : ports)
        names.push_back(each.name);
    return names;
}

class ScopedVariable {
public:
    ScopedVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
    ScopedVariable(const ScopedVariable&) = delete;
    ScopedVariable& operator=(const ScopedVariable&) = delete;
    ~ScopedVariable() { unsetenv(name_); }

private:
    const char* const name_;
};

TEST(PortChoice, AFabricWithAddressesComesFirst) {
    EXPECT_THAT(ordered({port("a", "fe80::/64", 200), port("b", "10.7.0.0/24", 25)}),
                ElementsAre("b", "a"));
}

TEST(PortChoice, TheFabricOfTheFastestPortComesFirstWithAllItsPorts) {
    EXPECT_THAT(ordered({port("a", "10.1.0.0/16", 25), port("b", "10.2.0.0/16", 25),
                         infiniband("c", 100), port("d", "10.2.0.0/16", 200)}),
                ElementsAre("d", "b", "c", "a"));
}

TEST(PortChoice, OfEqualFabricsTheFirstListedComesFirst) {
    EXPECT_THAT(ordered({port("a", "10.2.0.0/16", 100), port("b", "10.1.0.0/16", 100)}),
                ElementsAre("a", "b"));
    EXPECT_THAT(ordered({infiniband("a", 100, 2), infiniband("b", 100, 1)}), ElementsAre("a", "b"));
}

TEST(PortChoice, ProcessesSpreadOverEqualPortsOfOneFabric) {
    const std::vector<DeviceInfo> ports{port("a", "10.1.0.0/16", 100), port("b", "10.2.0.0/16", 50),
                                        port("c", "10.1.0.0/16", 100),
                                        port("d", "10.1.0.0/16", 25)};
    EXPECT_THAT(ordered(ports), ElementsAre("a", "c", "d", "b"));
    for (const char* launcher : {"MPI_LOCALRANKID", "SLURM_LOCALID", "PALS_LOCAL_RANKID"}) {
        const ScopedVariable number(launcher, "1");
        EXPECT_THAT(ordered(ports), ElementsAre("c", "a", "d", "b")) << launcher;
    }
    const ScopedVariable number("MPI_LOCALRANKID", "2");
    EXPECT_THAT(ordered(ports), ElementsAre("a", "c", "d", "b"));
}

// Open MPI counts the ports by the rank itself.
TEST(PortChoice, ProcessesOfOpenMpiSeeOneOrder) {
    const std::vector<DeviceInfo> ports{infiniband("a", 100), infiniband("b", 100)};
    const ScopedVariable slurm("SLURM_LOCALID", "1");
    for (const char* launcher : {"OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_RANK"}) {
        const ScopedVariable number(launcher, "1");
        EXPECT_THAT(ordered(ports), ElementsAre("a", "b")) << launcher;
    }
    EXPECT_THAT(ordered(ports), ElementsAre("b", "a"));
}

TEST(PortChoice, NamesTellNetworksApart) {
    EXPECT_EQ(fabric_name(port("a", "10.7.0.0/24", 1)), "RoCE-10.7.0.0/24");
    EXPECT_EQ(fabric_name(port("a", "", 1)), "RoCE");
    EXPECT_EQ(fabric_name(infiniband("a", 1)), "InfiniBand");
    EXPECT_EQ(fabric_name(infiniband("a", 1, 7)), "InfiniBand-fe80000000000007");
    DeviceInfo old = port("a", "fe80::/64", 1);
    old.roce_v1 = true;
    EXPECT_EQ(fabric_name(old), "RoCEv1-fe80::/64");
    EXPECT_TRUE(is_fabric_name("RoCEv1-fe80::/64"));
    EXPECT_TRUE(is_fabric_name("InfiniBand"));
    EXPECT_FALSE(is_fabric_name("10.7.0.0/24"));
}

TEST(PortChoice, SaysWhyAPortCannotBeUsed) {
    EXPECT_EQ(why_unusable(port("a", "", 1)), nullptr);
    DeviceInfo down = port("a", "", 1);
    down.port_active = false;
    EXPECT_THAT(why_unusable(down), testing::HasSubstr("not active"));
    DeviceInfo iwarp = port("a", "", 1);
    iwarp.transport = "iWARP";
    EXPECT_THAT(why_unusable(iwarp), testing::HasSubstr("transport"));
}

std::string network_of(const char* address) {
    std::array<std::uint8_t, 16> gid{};
    EXPECT_EQ(inet_pton(AF_INET6, address, gid.data()), 1) << address;
    return ip_network(gid);
}

TEST(IpNetwork, IsThatOfTheInterfaceWithTheAddress) {
    EXPECT_EQ(network_of("::ffff:127.0.0.1"), "127.0.0.0/8");
    EXPECT_EQ(network_of("fe80::5054:ff:fe07:1"), "fe80::/64");
    EXPECT_EQ(network_of("::ffff:203.0.113.7"), "") << "no interface has it";
    EXPECT_EQ(network_of("::1"), "") << "a network of one address, if this machine has IPv6";
}

}  // namespace
}  // namespace heddle::verbs
