// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/wireup/connector_wire.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

namespace heddle::protocol {
namespace {

constexpr std::uint32_t kMagic = 0x4e4f'4348;  // "HCON"
constexpr std::uint8_t kVersion = 2;
constexpr std::uint32_t kMost24 = 0xff'ffff;
constexpr std::uint8_t kMtu256 = 1, kMtu4096 = 5, kMostReads = 128;
constexpr std::uint16_t kMostErrno = 4095;

struct Wire {
    std::uint32_t magic = kMagic;
    std::uint8_t version = kVersion;
    std::uint8_t kind = 0;
    std::uint16_t error = 0;
    std::uint64_t id = 0;
    EndpointAddress from;
    EndpointAddress to;
    std::uint32_t qpn = 0;
    std::uint32_t psn = 0;
    std::uint8_t mtu = 0;
    std::uint8_t reads = 0;
    std::uint8_t host[6] = {};
};
static_assert(sizeof(Wire) == kDatagramBytes && std::is_trivially_copyable_v<Wire>);

bool plausible(const EndpointAddress& name) noexcept {
    constexpr std::uint8_t kKnown = EndpointAddress::kXrc | EndpointAddress::kEthernet |
                                    EndpointAddress::kRoceV1 | EndpointAddress::kDc |
                                    EndpointAddress::kLidBits;
    return name.valid() && (name.flags & ~kKnown) == 0 && !(name.xrc() && name.dc()) &&
           name.srqn <= kMost24 && name.process.ud_qpn > 1 && name.process.ud_qpn <= kMost24;
}

bool plausible_qp(const Wire& wire) noexcept {
    return wire.qpn > 1 && wire.qpn <= kMost24 && wire.psn <= kMost24 && wire.mtu >= kMtu256 &&
           wire.mtu <= kMtu4096 && wire.reads >= 1 && wire.reads <= kMostReads;
}

}  // namespace

QpAddress address_of(const EndpointAddress& name, std::uint32_t qpn) noexcept {
    QpAddress address;
    address.qpn = qpn;
    address.lid = name.process.lid;
    address.lid_bits = name.lid_bits();
    address.ethernet = name.ethernet();
    std::copy_n(name.process.gid, sizeof address.gid, address.gid);
    return address;
}

EndpointAddress name_of(const verbs::LocalPort& port) noexcept {
    EndpointAddress name;
    name.flags = static_cast<std::uint8_t>((port.ethernet ? EndpointAddress::kEthernet : 0) |
                                           (port.roce_v1 ? EndpointAddress::kRoceV1 : 0) |
                                           port.lid_bits << EndpointAddress::kLidShift);
    std::copy(port.gid.begin(), port.gid.end(), name.process.gid);
    name.process.lid = port.lid;
    name.process.pkey = port.pkey;
    return name;
}

bool is_of(const DatagramSource& source, const EndpointAddress& name) noexcept {
    if (source.qpn != name.process.ud_qpn) return false;
    // A router leaves its own LID in the packet, but the sender's GID.
    const bool has_grh = source.grh.size() == DatagramSource::kGrhBytes;
    if (!name.ethernet() && !has_grh) return source.lid == name.process.lid;
    if (!has_grh) return false;
    const auto* const gid = reinterpret_cast<const std::byte*>(name.process.gid);
    constexpr std::size_t kSourceGid = 8, kIpv4 = 20, kSourceIpv4 = kIpv4 + 12;
    if (std::equal(gid, gid + sizeof name.process.gid, source.grh.begin() + kSourceGid))
        return true;
    constexpr std::byte kMapped[12] = {
        {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::byte{0xff}, std::byte{0xff}};
    return source.grh[kIpv4] == std::byte{0x45} && std::equal(kMapped, std::end(kMapped), gid) &&
           std::equal(gid + sizeof kMapped, gid + sizeof name.process.gid,
                      source.grh.begin() + kSourceIpv4);
}

Datagram bye_of(std::uint64_t id, const EndpointAddress& from) noexcept {
    Datagram bye;
    bye.kind = DatagramKind::kBye;
    bye.id = id;
    bye.from = from;
    return bye;
}

void write(const Datagram& datagram, std::span<std::byte, kDatagramBytes> to) noexcept {
    Wire wire;
    wire.kind = static_cast<std::uint8_t>(datagram.kind);
    wire.error = datagram.error;
    wire.id = datagram.id;
    wire.from = datagram.from;
    wire.to = datagram.to;
    wire.qpn = datagram.qpn;
    wire.psn = datagram.psn;
    wire.mtu = datagram.mtu;
    wire.reads = datagram.reads;
    std::memcpy(wire.host, &datagram.host, sizeof wire.host);
    std::memcpy(to.data(), &wire, sizeof wire);
}

std::optional<Datagram> parse(std::span<const std::byte> bytes) noexcept {
    if (bytes.size() != kDatagramBytes) return {};
    Wire wire;
    std::memcpy(&wire, bytes.data(), sizeof wire);
    if (wire.magic != kMagic || wire.version != kVersion || !plausible(wire.from)) return {};
    if (wire.error > kMostErrno) return {};
    switch (static_cast<DatagramKind>(wire.kind)) {
        case DatagramKind::kRequest:
            if (wire.error != 0 || !plausible(wire.to) || !plausible_qp(wire)) return {};
            break;
        case DatagramKind::kReply:
            if (wire.error == 0 && !plausible_qp(wire)) return {};
            break;
        case DatagramKind::kBye:
            if (wire.error != 0) return {};
            break;
        default:
            return {};
    }
    Datagram datagram;
    datagram.kind = static_cast<DatagramKind>(wire.kind);
    datagram.id = wire.id;
    datagram.from = wire.from;
    if (datagram.kind == DatagramKind::kRequest) datagram.to = wire.to;
    datagram.error = wire.error;
    if (datagram.kind == DatagramKind::kRequest ||
        (datagram.kind == DatagramKind::kReply && wire.error == 0)) {
        datagram.qpn = wire.qpn;
        datagram.psn = wire.psn;
        datagram.mtu = wire.mtu;
        datagram.reads = wire.reads;
    }
    if (datagram.kind == DatagramKind::kReply && wire.error == 0)
        std::memcpy(&datagram.host, wire.host, sizeof wire.host);
    return datagram;
}

}  // namespace heddle::protocol
