// SPDX-License-Identifier: BSD-2-Clause
// The device's port: an InfiniBand port, or one of Ethernet (RoCE). All processes of a fabric are
// on this one port, so a packet arrives if it is addressed to a GID of it. The GID table of an
// Ethernet port is as the kernel fills it for mlx5 (drivers/infiniband/core/roce_gid_mgmt.c): for
// each address of the interface an entry of RoCE v1 and one of RoCE v2, the link-local address
// first.
#pragma once

#include <array>
#include <cstdint>

namespace softhca::device {

struct Segment;

enum class PortKind : std::uint32_t {
    kInfiniBand,
    kRoce,
    kRoceV2,  // RoCE whose entries of v1 are empty, as where an administrator allows v2 alone
};

enum class GidType : std::uint8_t { kNone, kV1, kV2 };  // InfiniBand's count as v1, as in sysfs

struct GidEntry {
    std::uint64_t high = 0, low = 0;  // host byte order
    GidType type = GidType::kNone;
    bool is_ipv4() const noexcept { return high == 0 && low >> 32 == 0xffff; }
    void copy_to(std::uint8_t* raw) const noexcept;  // 16 bytes, as they travel
};

class Port {
public:
    constexpr Port(PortKind kind, std::uint64_t node_guid) noexcept
        : kind_(kind), node_guid_(node_guid) {}
    std::uint64_t node_guid() const noexcept { return node_guid_; }
    bool is_ethernet() const noexcept { return kind_ != PortKind::kInfiniBand; }
    GidEntry gid(unsigned index) const noexcept;  // an empty one past the table's end
    std::array<std::uint8_t, 6> mac() const noexcept;
    // 0 on Ethernet, which has none.
    std::uint16_t lid() const noexcept;
    std::uint16_t sm_lid() const noexcept;
    std::uint32_t capabilities() const noexcept;
    unsigned pkey_table_length() const noexcept;
    // May a path begin at that entry of the table? On Ethernet each is global, and the entry used
    // (mlx5_set_path and rdma_fill_sgid_attr of the kernel).
    bool can_send(bool is_global, unsigned from) const noexcept;
    // Does what is sent from that entry of the table arrive at the GID `to` (16 bytes)? Both must
    // be of one version, and of one kind of address.
    bool reaches(unsigned from, const std::uint8_t* to) const noexcept;

private:
    PortKind kind_;
    std::uint64_t node_guid_;
};

Port port_of(const Segment& segment) noexcept;

}  // namespace softhca::device
