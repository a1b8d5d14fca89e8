// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/device/port.h"

#include <endian.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/device/segment.h"

// The ports' addresses and tables: see port.h.
namespace softhca::device {

namespace {

// PortPhysicalState.
constexpr std::uint8_t kPolling = 2, kDisabled = 3, kLinkUp = 5;

bool is_down(const PortRecord& record) noexcept {
    return record.link_changes.load(std::memory_order_acquire) % 2 != 0;
}

}  // namespace

void GidEntry::copy_to(std::uint8_t* raw) const noexcept {
    SOFTHCA_ASSERT(raw != nullptr);
    const std::uint64_t halves[] = {htobe64(high), htobe64(low)};
    std::memcpy(raw, halves, sizeof halves);
}

IpAddress ip_address(const std::uint8_t* raw) noexcept {
    SOFTHCA_ASSERT(raw != nullptr);
    std::uint64_t halves[2];
    std::memcpy(halves, raw, sizeof halves);
    return {be64toh(halves[0]), be64toh(halves[1])};
}

// A locally administered address, whose end is the end of the GUID, which differs between ports.
std::array<std::uint8_t, 6> Port::mac() const noexcept {
    std::array<std::uint8_t, 6> address{0x02};
    for (unsigned i = 1; i < address.size(); ++i)
        address[i] = static_cast<std::uint8_t>(guid_ >> 8 * (5 - i));
    return address;
}

// mlx5_query_port_roce of the kernel: an Ethernet port whose interface has no carrier is disabled.
std::uint8_t Port::state() const noexcept { return is_up_ ? IBV_PORT_ACTIVE : IBV_PORT_DOWN; }

std::uint8_t Port::physical_state() const noexcept {
    return is_up_ ? kLinkUp : is_ethernet() ? kDisabled : kPolling;
}

std::uint16_t Port::sm_lid() const noexcept { return is_ethernet() ? 0 : kSmLid; }

std::uint32_t Port::capabilities() const noexcept {
    return is_ethernet() ? kRocePortCapMask : kPortCapMask;
}

std::uint8_t Port::active_mtu() const noexcept {
    // The largest MTU that fits an interface of 1500 bytes (mlx5_query_port_roce).
    return is_ethernet() ? IBV_MTU_1024 : IBV_MTU_4096;
}

std::uint32_t Port::ipv4() const noexcept {
    for (const Slot& slot : slots_)
        if (slot.is_used && GidEntry{slot.address.high, slot.address.low}.is_ipv4())
            return static_cast<std::uint32_t>(slot.address.low);
    return 0;
}

bool Port::has(const IpAddress& address) const noexcept {
    return std::any_of(slots_.begin(), slots_.end(),
                       [&](const Slot& slot) { return slot.is_used && slot.address == address; });
}

unsigned Port::gid_index_for(const IpAddress& address) const noexcept {
    if (!is_ethernet()) return 0;
    for (unsigned i = 0; i < slots_.size(); ++i)
        if (slots_[i].is_used && slots_[i].address == address) return 2 * i + 1;
    return GidEntry{address.high, address.low}.is_ipv4() ? 3 : 1;
}

unsigned Port::pkey_table_length() const noexcept { return is_ethernet() ? 1 : kPkeyTableLength; }

bool Port::can_send(bool is_global, unsigned from) const noexcept {
    if (is_global && from >= kGidTableLength) return false;
    return !is_ethernet() || (is_global && gid(from).type != GidType::kNone);
}

GidEntry Port::gid(unsigned index) const noexcept {
    if (!is_ethernet()) return index == 0 ? GidEntry{kGidPrefix, guid_, GidType::kV1} : GidEntry{};
    static_assert(kGidTableLength == 2 * std::tuple_size_v<decltype(slots_)>);
    if (index >= kGidTableLength) return {};
    const Slot& slot = slots_[index / 2];
    const GidType type = index % 2 == 0 ? GidType::kV1 : GidType::kV2;
    if (!slot.is_used || (type == GidType::kV1 && kind_ == PortKind::kRoceV2)) return {};
    return {slot.address.high, slot.address.low, type};
}

void lay_out_ports(Segment& segment, const PortPlan& plan) noexcept {
    SOFTHCA_ASSERT(plan.devices >= 1 && plan.devices <= kMaxDevices);
    SOFTHCA_ASSERT(plan.ports_of_device >= 1 && plan.ports_of_device <= kMaxPorts);
    segment.node_guid = plan.first_guid;
    segment.port_kind = static_cast<std::uint32_t>(plan.kind);
    segment.port_address = plan.first_address;
    segment.devices = plan.devices;
    segment.ports = plan.ports_of_device;
    for (unsigned index = 0; index < port_count(segment); ++index) {
        const Port port(plan.kind, plan.first_guid, plan.first_address, index,
                        plan.ports_of_device);
        PortRecord& record = segment.port_records[index];
        const IpAddress own = ipv4_address(port.ipv4());
        record.addresses[1].high = own.high;
        record.addresses[1].low = own.low;
        record.addresses[1].is_used = 1;
        if (!port.is_ethernet()) continue;
        const GidEntry local = port.gid(1);
        record.addresses[0].high = local.high;
        record.addresses[0].low = local.low;
        record.addresses[0].is_used = 1;
    }
}

bool has_ethernet(const Segment& segment) noexcept {
    return static_cast<PortKind>(segment.port_kind) != PortKind::kInfiniBand;
}

unsigned device_count(const Segment& segment) noexcept {
    return std::clamp(segment.devices, 1u, kMaxDevices);
}

unsigned ports_of_device(const Segment& segment) noexcept {
    return std::clamp(segment.ports, 1u, kMaxPorts);
}

Port port_at(const Segment& segment, unsigned index) noexcept {
    static_assert(kPortAddresses == std::tuple_size_v<decltype(Port::slots_)>);
    const unsigned at = std::min(index, port_count(segment) - 1);
    Port port(static_cast<PortKind>(segment.port_kind), segment.node_guid, segment.port_address, at,
              ports_of_device(segment));
    const PortRecord& record = segment.port_records[at];
    port.is_up_ = !is_down(record);
    for (unsigned i = 0; i < kPortAddresses; ++i) {
        const PortAddress& from = record.addresses[i];
        port.slots_[i].is_used = from.is_used.load(std::memory_order_acquire) != 0;
        port.slots_[i].address = {from.high.load(std::memory_order_relaxed),
                                  from.low.load(std::memory_order_relaxed)};
    }
    return port;
}

Port port_of(const Segment& segment, unsigned device, std::uint64_t number) noexcept {
    SOFTHCA_ASSERT(has_port(segment, number), "the caller has checked the number");
    return port_at(segment, device * ports_of_device(segment) + static_cast<unsigned>(number) - 1);
}

std::vector<Port> ports_of(const Segment& segment) {
    std::vector<Port> ports;
    for (unsigned index = 0; index < port_count(segment); ++index)
        ports.push_back(port_at(segment, index));
    return ports;
}

std::uint16_t path_to_gid(const Segment& segment, const GidEntry& from,
                          const std::uint8_t* to) noexcept {
    const IpAddress wanted = ip_address(to);
    const bool is_ipv4 = GidEntry{wanted.high, wanted.low}.is_ipv4();
    // All ports of a fabric have entries of the same versions.
    if (from.type == GidType::kNone || from.is_ipv4() != is_ipv4) return 0;
    for (unsigned index = 0; index < port_count(segment); ++index)
        for (const PortAddress& each : segment.port_records[index].addresses)
            if (each.is_used.load(std::memory_order_acquire) != 0 &&
                each.high.load(std::memory_order_relaxed) == wanted.high &&
                each.low.load(std::memory_order_relaxed) == wanted.low)
                return static_cast<std::uint16_t>(kFirstLid + index);
    return 0;
}

std::uint16_t path_to_lid(const Segment& segment, std::uint16_t lid, bool is_global,
                          const std::uint8_t* gid) noexcept {
    const unsigned index = static_cast<unsigned>(lid) - kFirstLid;
    if (lid < kFirstLid || index >= port_count(segment)) return 0;
    if (!is_global) return lid;
    const GidEntry there = port_at(segment, index).gid(0);
    return ip_address(gid) == IpAddress{there.high, there.low} ? lid : 0;
}

bool link_is_up(const Segment& segment, std::uint16_t path) noexcept {
    const unsigned index = static_cast<unsigned>(path) - kFirstLid;
    return index < port_count(segment) && !is_down(segment.port_records[index]);
}

}  // namespace softhca::device
