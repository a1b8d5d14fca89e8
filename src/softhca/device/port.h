// SPDX-License-Identifier: BSD-2-Clause
// The ports of a fabric's devices, either InfiniBand or Ethernet (RoCE). All are in one subnet: a
// packet arrives at the port that has its destination's LID or GID. An Ethernet port's GID table is
// filled as the kernel fills it for mlx5 (drivers/infiniband/core/roce_gid_mgmt.c). Each address of
// the interface has one entry of RoCE v1 and one of RoCE v2, and the link-local address comes
// first.
//
// The ports of a fabric are counted: the index of a port counts those of all devices from 0, and
// its number those of its own device from 1. The first port has the fabric's GUID and address, and
// the others have those that follow.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "softhca/device/guid.h"
#include "softhca/device/identity.h"

namespace softhca::device {

struct Segment;

enum class PortKind : std::uint32_t {
    kInfiniBand,
    kRoce,
    kRoceV2,  // RoCE with empty v1 entries, as where an administrator allows only v2
};

enum class GidType : std::uint8_t { kNone, kV1, kV2 };  // InfiniBand GIDs are kV1, as in sysfs

struct GidEntry {
    std::uint64_t high = 0, low = 0;  // host byte order
    GidType type = GidType::kNone;
    bool is_ipv4() const noexcept { return high == 0 && low >> 32 == 0xffff; }
    void copy_to(std::uint8_t* raw) const noexcept;  // 16 bytes in network byte order
};

// An address in the form of a GID: IPv6, or ::ffff:a.b.c.d.
struct IpAddress {
    std::uint64_t high = 0, low = 0;  // host byte order
    bool operator==(const IpAddress&) const noexcept = default;
};
constexpr IpAddress ipv4_address(std::uint32_t address) noexcept {
    return {0, 0xffff'0000'0000ULL | address};
}
IpAddress ip_address(const std::uint8_t* raw) noexcept;  // from 16 bytes in network byte order

class Port {
public:
    // `first_guid` and `first_address` are those of the fabric's first port.
    constexpr Port(PortKind kind, std::uint64_t first_guid, std::uint32_t first_address,
                   unsigned index = 0, unsigned ports_of_device = 1) noexcept
        : kind_(kind),
          device_(index / ports_of_device),
          number_(index % ports_of_device + 1),
          index_(index),
          node_guid_(guid_behind(first_guid, device_ * kMaxPorts)),
          guid_(guid_behind(node_guid_, number_ - 1)) {
        // Addresses count upward within their /8.
        const std::uint32_t address =
            (first_address & 0xff00'0000u) | ((first_address + index) & 0x00ff'ffffu);
        slots_[1] = {ipv4_address(address), true};
        if (is_ethernet()) slots_[0] = {{kGidPrefix, interface_identifier()}, true};
    }

    unsigned device() const noexcept { return device_; }
    unsigned number() const noexcept { return number_; }
    unsigned index() const noexcept { return index_; }
    std::uint64_t node_guid() const noexcept { return node_guid_; }
    constexpr bool is_ethernet() const noexcept { return kind_ != PortKind::kInfiniBand; }
    bool is_up() const noexcept { return is_up_; }
    std::uint8_t state() const noexcept;           // enum ibv_port_state
    std::uint8_t physical_state() const noexcept;  // IBTA 14.2.5.6, PortPhysicalState
    GidEntry gid(unsigned index) const noexcept;   // an empty entry if the index is past the table
    std::array<std::uint8_t, 6> mac() const noexcept;
    // 0 on Ethernet, which has no LIDs.
    std::uint16_t lid() const noexcept { return is_ethernet() ? 0 : path(); }
    std::uint16_t sm_lid() const noexcept;
    // The LID, or what stands for it inside of softhca on Ethernet.
    constexpr std::uint16_t path() const noexcept {
        return static_cast<std::uint16_t>(kFirstLid + index_);
    }
    std::uint32_t capabilities() const noexcept;
    std::uint8_t active_mtu() const noexcept;  // enum ibv_mtu
    std::uint32_t ipv4() const noexcept;       // the first; host byte order; 0 if it was removed
    bool has(const IpAddress& address) const noexcept;
    // The entry of the GID table for a path of rdma_cm from that address: of RoCE v2, which cma.c
    // takes since Linux 4.13. That of the port's own address of the family if it has no such one.
    unsigned gid_index_for(const IpAddress& address) const noexcept;
    unsigned pkey_table_length() const noexcept;
    // Whether a path may begin at entry `from` of the GID table. On Ethernet each path is global,
    // and the entry must be in use (mlx5_set_path and rdma_fill_sgid_attr of the kernel).
    bool can_send(bool is_global, unsigned from) const noexcept;

private:
    friend Port port_at(const Segment& segment, unsigned index) noexcept;

    struct Slot {
        IpAddress address;
        bool is_used = false;
    };
    static constexpr std::uint64_t guid_behind(std::uint64_t guid, unsigned steps) noexcept {
        constexpr std::uint64_t kCounted = 0xff'ffff'ffffULL;
        return (guid & ~kCounted) | ((guid + steps) & kCounted);
    }
    // The modified EUI-64 (RFC 4291, appendix A) of the MAC address, which ends as the GUID does.
    constexpr std::uint64_t interface_identifier() const noexcept {
        return 0x0000'00ff'fe00'0000ULL | (guid_ & 0xff'ffff) | (guid_ >> 24 & 0xffff) << 40;
    }

    PortKind kind_;
    unsigned device_, number_, index_;
    std::uint64_t node_guid_, guid_;
    bool is_up_ = true;
    std::array<Slot, 4> slots_{};  // Ethernet: two entries of the GID table each
};

// One of 10.0.0.0/8 that differs between fabrics.
constexpr std::uint32_t default_address(std::uint64_t node_guid) noexcept {
    return 0x0a00'0000u | static_cast<std::uint32_t>(node_guid & 0xff'ffff);
}

// What the first process of a fabric decides of its ports.
struct PortPlan {
    PortKind kind;
    std::uint64_t first_guid;
    std::uint32_t first_address;
    unsigned devices, ports_of_device;
};
void lay_out_ports(Segment& segment, const PortPlan& plan) noexcept;

bool has_ethernet(const Segment& segment) noexcept;
// A member of the fabric may have changed the counts: they are never out of range.
unsigned device_count(const Segment& segment) noexcept;
unsigned ports_of_device(const Segment& segment) noexcept;
inline unsigned port_count(const Segment& segment) noexcept {
    return device_count(segment) * ports_of_device(segment);
}
// Whether a device of the fabric has a port of that number.
inline bool has_port(const Segment& segment, std::uint64_t number) noexcept {
    return number >= 1 && number <= ports_of_device(segment);
}

Port port_at(const Segment& segment, unsigned index) noexcept;  // the last one's if it is too large
Port port_of(const Segment& segment, unsigned device, std::uint64_t number) noexcept;

std::vector<Port> ports_of(const Segment& segment);

// The path (Port::path) to the port at which a packet from that entry of a GID table arrives, if it
// is sent to the GID `to` (16 bytes). Both must have the same RoCE version and the same kind of
// address. 0: it arrives nowhere.
std::uint16_t path_to_gid(const Segment& segment, const GidEntry& from,
                          const std::uint8_t* to) noexcept;
// The same of an InfiniBand packet, which goes by the LID, and whose GID is checked where it
// arrives (IBTA 9.6.1: what a port validates of each packet).
std::uint16_t path_to_lid(const Segment& segment, std::uint16_t lid, bool is_global,
                          const std::uint8_t* gid) noexcept;

// Whether the link of the port with that path is up.
bool link_is_up(const Segment& segment, std::uint16_t path) noexcept;

}  // namespace softhca::device
