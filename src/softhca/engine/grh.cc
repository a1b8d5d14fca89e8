// SPDX-License-Identifier: BSD-2-Clause
// The header before a datagram's payload: see grh.h.
#include "softhca/engine/grh.h"

#include <endian.h>
#include <string.h>

#include "softhca/base/assert.h"
#include "softhca/device/port.h"

namespace softhca::engine {

using device::Fabric;

namespace {

constexpr std::size_t kIpv4Bytes = 20;
constexpr std::uint8_t kUdp = 17, kIbGlobal = 0x1b;         // next header, or protocol
constexpr std::uint16_t kUdpAndTransport = 8 + 12 + 8 + 4;  // UDP, BTH, DETH, ICRC

// IBTA annex A17.4.5.2: the receiver finds the header of RoCE v2 over IPv4 in the last 20 of the 40
// bytes. Programs recognise it by its checksum (RFC 791), so it must be right.
void build_ipv4(const device::Port& port, const Request& request, std::byte* header) noexcept {
    header[0] = std::byte{0x45};
    header[1] = static_cast<std::byte>(request.ud.traffic_class);
    const auto length =
        htobe16(static_cast<std::uint16_t>(kIpv4Bytes + kUdpAndTransport + request.data.bytes));
    memcpy(header + 2, &length, 2);
    header[6] = std::byte{0x40};  // "don't fragment"
    header[8] = static_cast<std::byte>(request.ud.hop_limit);
    header[9] = std::byte{kUdp};
    std::uint8_t source[16];
    port.gid(request.ud.sgid_index).copy_to(source);
    memcpy(header + 12, source + 12, 4);
    memcpy(header + 16, request.ud.dgid + 12, 4);
    std::uint32_t sum = 0;
    for (unsigned i = 0; i < kIpv4Bytes; i += 2) {
        std::uint16_t word;
        memcpy(&word, header + i, 2);
        sum += word;
    }
    sum = (sum & 0xffff) + (sum >> 16);
    const auto checksum = static_cast<std::uint16_t>(~(sum + (sum >> 16)));
    memcpy(header + 10, &checksum, 2);
}

}  // namespace

// IBTA 8.3: the global route header that a receiver of datagrams finds before the payload. On an
// Ethernet port it is the header of RoCE v1, or the IP header of v2.
void build_grh(Fabric& fabric, const device::QueuePair& requester, const Request& request,
               std::byte* grh) noexcept {
    SOFTHCA_DEBUG_ASSERT(request.ud.has_grh, "the datagram comes with a header");
    memset(grh, 0, kGrhBytes);
    const device::Port port = device::port_at(fabric.segment(), port_index(requester));
    if (port.is_ethernet() && request.ud.service_level == kRoceV2OverIpv4)
        return build_ipv4(port, request, grh + kGrhBytes - kIpv4Bytes);
    const bool over_udp = port.is_ethernet() && request.ud.service_level == kRoceV2OverIpv6;
    const std::uint32_t word = htobe32(
        0x6000'0000u | std::uint32_t{request.ud.traffic_class} << 20 | request.ud.flow_label);
    memcpy(grh, &word, 4);
    const auto length = htobe16(static_cast<std::uint16_t>(((request.data.bytes + 3) & ~3u) + 24));
    memcpy(grh + 4, &length, 2);
    grh[6] = std::byte{over_udp ? kUdp : kIbGlobal};
    grh[7] = static_cast<std::byte>(request.ud.hop_limit);
    // An entry of an InfiniBand port that is empty stands for the port's own GID.
    const device::GidEntry source = port.gid(port.is_ethernet() ? request.ud.sgid_index : 0);
    source.copy_to(reinterpret_cast<std::uint8_t*>(grh + 8));
    memcpy(grh + 24, request.ud.dgid, 16);
}

}  // namespace softhca::engine
