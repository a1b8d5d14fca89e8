// SPDX-License-Identifier: BSD-2-Clause
// The device's port, either InfiniBand or Ethernet (RoCE). All processes of a fabric use this one
// port, so a packet arrives if its destination is one of the port's GIDs. An Ethernet port's GID
// table is filled as the kernel fills it for mlx5 (drivers/infiniband/core/roce_gid_mgmt.c). Each
// address of the interface has one entry of RoCE v1 and one of RoCE v2, and the link-local address
// comes first.
#pragma once

#include <array>
#include <cstdint>

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

class Port {
public:
    constexpr Port(PortKind kind, std::uint64_t node_guid, std::uint32_t address) noexcept
        : kind_(kind), node_guid_(node_guid), address_(address) {}
    std::uint64_t node_guid() const noexcept { return node_guid_; }
    bool is_ethernet() const noexcept { return kind_ != PortKind::kInfiniBand; }
    GidEntry gid(unsigned index) const noexcept;  // an empty entry if the index is past the table
    std::array<std::uint8_t, 6> mac() const noexcept;
    // 0 on Ethernet, which has no LIDs.
    std::uint16_t lid() const noexcept;
    std::uint16_t sm_lid() const noexcept;
    std::uint32_t capabilities() const noexcept;
    std::uint8_t active_mtu() const noexcept;                 // enum ibv_mtu
    std::uint32_t ipv4() const noexcept { return address_; }  // host byte order
    unsigned pkey_table_length() const noexcept;
    // Whether a path may begin at entry `from` of the GID table. On Ethernet each path is global,
    // and the entry must be in use (mlx5_set_path and rdma_fill_sgid_attr of the kernel).
    bool can_send(bool is_global, unsigned from) const noexcept;
    // Whether a packet sent from entry `from` of the GID table arrives at the GID `to` (16 bytes).
    // Both must have the same RoCE version and the same kind of address.
    bool reaches(unsigned from, const std::uint8_t* to) const noexcept;

private:
    PortKind kind_;
    std::uint64_t node_guid_;
    std::uint32_t address_;
};

// One of 10.0.0.0/8 that differs between fabrics.
constexpr std::uint32_t default_address(std::uint64_t node_guid) noexcept {
    return 0x0a00'0000u | static_cast<std::uint32_t>(node_guid & 0xff'ffff);
}

Port port_of(const Segment& segment) noexcept;

}  // namespace softhca::device
