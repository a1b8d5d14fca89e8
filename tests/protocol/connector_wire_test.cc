// SPDX-License-Identifier: BSD-2-Clause
// The connector's datagrams: what is written is read, and nothing else is.
#include "protocol/wireup/connector_wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace heddle::protocol {
namespace {

using Bytes = std::array<std::byte, kDatagramBytes>;

EndpointAddress name() {
    EndpointAddress name;
    name.flags = EndpointAddress::kXrc;
    name.endpoint = 3;
    name.context = 2;
    name.srqn = 0xabcdef;
    name.process.nonce = 0x123456789abcdef0;
    name.process.ud_qpn = 0x4321;
    name.process.lid = 7;
    return name;
}

Datagram datagram(DatagramKind kind) {
    Datagram d;
    d.kind = kind;
    d.id = 0xfedcba9876543210;
    d.from = name();
    if (kind == DatagramKind::kRequest) d.to = name();
    if (kind == DatagramKind::kBye) return d;
    d.qpn = 0xfffffe;
    d.psn = 0xffffff;
    d.mtu = 5;
    d.reads = 16;
    if (kind == DatagramKind::kReply) d.host = 0xfedc'ba98'7654;
    return d;
}

TEST(DatagramSource, IsComparedWithTheName) {
    EndpointAddress name;
    name.process.ud_qpn = 5;
    name.process.lid = 7;
    EXPECT_TRUE(is_of({5, 7, {}}, name));
    EXPECT_FALSE(is_of({6, 7, {}}, name));
    EXPECT_FALSE(is_of({5, 8, {}}, name));
    // On Ethernet, where there are no LIDs.
    name.flags = EndpointAddress::kEthernet;
    const std::uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 9};
    std::copy_n(mapped, sizeof mapped, name.process.gid);
    std::array<std::byte, DatagramSource::kGrhBytes> grh{};
    EXPECT_FALSE(is_of({5, 7, {}}, name)) << "no GRH";
    EXPECT_FALSE(is_of({5, 7, grh}, name));
    for (std::size_t i = 0; i < sizeof mapped; ++i)
        grh[8 + i] = static_cast<std::byte>(mapped[i]);
    EXPECT_TRUE(is_of({5, 0, grh}, name));
    grh = {};
    grh[20] = std::byte{0x45};  // an IPv4 header, its source at 12
    grh[32] = std::byte{10};
    grh[35] = std::byte{9};
    EXPECT_TRUE(is_of({5, 0, grh}, name));
    name.process.gid[10] = 0;
    EXPECT_FALSE(is_of({5, 0, grh}, name)) << "not one of IPv4";
}

Bytes bytes_of(const Datagram& d) {
    Bytes bytes;
    write(d, bytes);
    return bytes;
}

TEST(ConnectorWire, ReadsWhatItWrites) {
    for (const auto kind : {DatagramKind::kRequest, DatagramKind::kReply, DatagramKind::kBye})
        EXPECT_EQ(parse(bytes_of(datagram(kind))), datagram(kind));
    Datagram refusal = datagram(DatagramKind::kBye);
    refusal.kind = DatagramKind::kReply;
    refusal.error = 111;
    EXPECT_EQ(parse(bytes_of(refusal)), refusal);
}

TEST(ConnectorWire, ReadsNoOtherLength) {
    const Bytes bytes = bytes_of(datagram(DatagramKind::kRequest));
    for (std::size_t length = 0; length < bytes.size(); ++length)
        EXPECT_FALSE(parse(std::span(bytes).first(length))) << length;
    EXPECT_FALSE(parse(std::array<std::byte, kDatagramBytes + 1>{}));
    EXPECT_FALSE(parse({}));
}

TEST(ConnectorWire, ReadsNoValuesThatCannotBe) {
    const auto refuses = [](auto change) {
        Datagram d = datagram(DatagramKind::kRequest);
        change(d);
        return !parse(bytes_of(d));
    };
    EXPECT_FALSE(refuses([](Datagram&) {}));
    EXPECT_TRUE(refuses([](Datagram& d) { d.kind = DatagramKind{0}; }));
    EXPECT_TRUE(refuses([](Datagram& d) { d.kind = DatagramKind{4}; }));
    EXPECT_TRUE(refuses([](Datagram& d) { d.qpn = 0x1000000; }));
    EXPECT_TRUE(refuses([](Datagram& d) { d.qpn = 1; })) << "the management QPs";
    EXPECT_TRUE(refuses([](Datagram& d) { d.psn = 0x1000000; }));
    EXPECT_TRUE(refuses([](Datagram& d) { d.mtu = 0; }));
    EXPECT_TRUE(refuses([](Datagram& d) { d.mtu = 6; }));
    EXPECT_TRUE(refuses([](Datagram& d) { d.reads = 0; }));
    EXPECT_TRUE(refuses([](Datagram& d) { d.reads = 129; }));
    EXPECT_TRUE(refuses([](Datagram& d) { d.error = 1; })) << "a request has none";
    EXPECT_TRUE(refuses([](Datagram& d) { d.from.version = 1; }));
    EXPECT_TRUE(refuses([](Datagram& d) { d.from.flags = 0x80; }));
    EXPECT_FALSE(refuses([](Datagram& d) { d.from.flags = EndpointAddress::kDc; }));
    EXPECT_TRUE(refuses([](Datagram& d) { d.from.flags |= EndpointAddress::kDc; })) << "and XRC";
    EXPECT_TRUE(refuses([](Datagram& d) { d.from.process.ud_qpn = 0; }));
    EXPECT_TRUE(refuses([](Datagram& d) { d.to.magic = 0; }));
    EXPECT_TRUE(refuses([](Datagram& d) { d.to.process.ud_qpn = 0x1000000; }));
}

}  // namespace
}  // namespace heddle::protocol
