// SPDX-License-Identifier: BSD-2-Clause
// The connector's datagrams, and reading them: bytes that anybody on the network can have sent.
// A request's number is drawn at random by the asking process and stays its connection's number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "heddle/address.h"
#include "protocol/common/endpoint_address.h"
#include "verbs/local_port.h"

namespace heddle::protocol {

enum class DatagramKind : std::uint8_t {
    kRequest = 1,  // from, to, qpn, psn, mtu, reads: of the QP that sends
    kReply,        // error, or of the QP that was made for it: qpn, psn, mtu, reads
    kBye,          // the connection is over, or nobody wants it any more
};

// One struct for all kinds; what a kind has not is zero, but that each name has its magic and
// version.
struct Datagram {
    DatagramKind kind = DatagramKind::kRequest;
    std::uint64_t id = 0;
    EndpointAddress from;   // of a reply and a BYE: `process` and the flags of the sender
    EndpointAddress to;     // of a request
    std::uint32_t qpn = 0;  // 24 bits; of a reply by DC: the number of the target
    std::uint32_t psn = 0;  // 24 bits; of a reply by DC: the ticket
    std::uint16_t error = 0;
    std::uint8_t mtu = 0;    // enum ibv_mtu
    std::uint8_t reads = 0;  // RDMA reads and atomics on their way; from 1
    std::uint64_t host = 0;  // 48 bits; of a reply without error: Connector::Options::host

    bool operator==(const Datagram&) const = default;
};

// The BYE for the connection with that id.
Datagram bye_of(std::uint64_t id, const EndpointAddress& from) noexcept;

// A datagram of any kind has this length, so that it can be checked before all else.
inline constexpr std::size_t kDatagramBytes = 128;

// Where a QP of a name's process is.
QpAddress address_of(const EndpointAddress& name, std::uint32_t qpn) noexcept;
// A name with what a port has in it, and nothing else.
EndpointAddress name_of(const verbs::LocalPort& port) noexcept;

// Where a datagram came from, as the device tells: nobody can write it into a datagram.
struct DatagramSource {
    static constexpr std::size_t kGrhBytes = 40;
    std::uint32_t qpn = 0;
    std::uint16_t lid = 0;
    std::span<const std::byte> grh;  // kGrhBytes, or nothing: the datagram had none
};
// Is that the port and the UD QP of the name? By LID on InfiniBand; on Ethernet by the GID in the
// GRH, in whose place RoCEv2 has an IPv4 header behind 20 undefined bytes (IBTA annex A17.4.5).
bool is_of(const DatagramSource& source, const EndpointAddress& name) noexcept;

void write(const Datagram& datagram, std::span<std::byte, kDatagramBytes> to) noexcept;
// Nothing if anything in it cannot be so.
std::optional<Datagram> parse(std::span<const std::byte> bytes) noexcept;

}  // namespace heddle::protocol
