// SPDX-License-Identifier: BSD-2-Clause
// What an endpoint is called on the network: the bytes of fi_getname and fi_av_insert. Connections
// are asked for at the process's UD QP; with XRC one of them reaches every endpoint whose context
// is the same, each by the number of its shared receive queue (docs/reference/protocol.md).
#pragma once

#include <cstdint>
#include <cstring>

namespace heddle::protocol {

// Where a process listens for connections, and which process it is. The nonce tells a process from
// one that had the same UD QP number before it.
struct ProcessName {
    std::uint8_t gid[16] = {};
    std::uint64_t nonce = 0;
    std::uint32_t ud_qpn = 0;
    std::uint16_t lid = 0;
    std::uint16_t pkey = 0;  // of the partition of its QPs, as its port's table has it

    // The Q_Key of the UD QP: only a process that was given the name can send datagrams to it. It
    // is below 2^31, as Q_Keys above are privileged (IBTA 10.2.5).
    std::uint32_t qkey() const noexcept {
        return static_cast<std::uint32_t>(nonce ^ nonce >> 32) & 0x7fff'ffff;
    }
    // The access key of its DC targets, for the same reason.
    std::uint64_t dc_key() const noexcept { return ~nonce; }
    bool operator==(const ProcessName&) const = default;
};

// 48 bytes, little-endian as both architectures are; sent as it stands.
struct EndpointAddress {
    static constexpr unsigned kLidShift = 4;
    static constexpr std::uint16_t kMagic = 0x4e48;  // "HN"
    static constexpr std::uint8_t kVersion = 4;
    // kXrc, kDc: it sends and receives by these; otherwise by RC. kRoceV1: the GID is of RoCE v1;
    // of v2 otherwise. The bits of kLidBits: LMC.
    enum Flags : std::uint8_t {
        kXrc = 1,
        kEthernet = 2,
        kRoceV1 = 4,
        kDc = 8,
        kLidBits = 7 << kLidShift,
        kTransport = kXrc | kDc
    };

    std::uint16_t magic = kMagic;
    std::uint8_t version = kVersion;
    std::uint8_t flags = 0;
    std::uint16_t endpoint = 0;  // of the process: goes into every header
    std::uint16_t context = 0;   // of the process: connections reach what is in one context
    std::uint32_t srqn = 0;      // where its messages are sent to (XRC)
    std::uint32_t channel = 0;   // of the process, never of two: it sends by the QPs of this one
    ProcessName process;

    bool valid() const noexcept { return magic == kMagic && version == kVersion; }
    bool xrc() const noexcept { return flags & kXrc; }
    bool dc() const noexcept { return flags & kDc; }
    bool rc() const noexcept { return (flags & kTransport) == 0; }
    bool ethernet() const noexcept { return flags & kEthernet; }
    bool roce_v1() const noexcept { return flags & kRoceV1; }
    std::uint8_t lid_bits() const noexcept {
        return static_cast<std::uint8_t>((flags & kLidBits) >> kLidShift);
    }
    bool operator==(const EndpointAddress&) const = default;
};
static_assert(sizeof(ProcessName) == 32 && sizeof(EndpointAddress) == 48);

struct ProcessNameHash {
    std::size_t operator()(const ProcessName& name) const noexcept {
        return static_cast<std::size_t>(name.nonce ^ (std::uint64_t{name.ud_qpn} << 32));
    }
};
struct EndpointAddressHash {
    std::size_t operator()(const EndpointAddress& name) const noexcept {
        return ProcessNameHash{}(name.process) * 31 + name.endpoint;
    }
};

}  // namespace heddle::protocol
