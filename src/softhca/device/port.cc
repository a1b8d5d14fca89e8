// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/device/port.h"

#include <endian.h>
#include <infiniband/verbs.h>

#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/device/identity.h"
#include "softhca/device/segment.h"

// The port's addresses and tables: see port.h.
namespace softhca::device {

void GidEntry::copy_to(std::uint8_t* raw) const noexcept {
    SOFTHCA_ASSERT(raw != nullptr);
    const std::uint64_t halves[] = {htobe64(high), htobe64(low)};
    std::memcpy(raw, halves, sizeof halves);
}

// A locally administered address, whose end is the end of the GUID, which differs between fabrics.
std::array<std::uint8_t, 6> Port::mac() const noexcept {
    std::array<std::uint8_t, 6> address{0x02};
    for (unsigned i = 1; i < address.size(); ++i)
        address[i] = static_cast<std::uint8_t>(node_guid_ >> 8 * (5 - i));
    return address;
}

std::uint16_t Port::lid() const noexcept { return is_ethernet() ? 0 : kLid; }

std::uint16_t Port::sm_lid() const noexcept { return is_ethernet() ? 0 : kSmLid; }

std::uint32_t Port::capabilities() const noexcept {
    return is_ethernet() ? kRocePortCapMask : kPortCapMask;
}

std::uint8_t Port::active_mtu() const noexcept {
    // The largest MTU that fits an interface of 1500 bytes (mlx5_query_port_roce).
    return is_ethernet() ? IBV_MTU_1024 : IBV_MTU_4096;
}

unsigned Port::pkey_table_length() const noexcept { return is_ethernet() ? 1 : kPkeyTableLength; }

bool Port::can_send(bool is_global, unsigned from) const noexcept {
    if (is_global && from >= kGidTableLength) return false;
    return !is_ethernet() || (is_global && gid(from).type != GidType::kNone);
}

GidEntry Port::gid(unsigned index) const noexcept {
    if (!is_ethernet())
        return index == 0 ? GidEntry{kGidPrefix, node_guid_, GidType::kV1} : GidEntry{};
    if (index >= 4) return {};
    const GidType type = index % 2 == 0 ? GidType::kV1 : GidType::kV2;
    if (type == GidType::kV1 && kind_ == PortKind::kRoceV2) return {};
    if (index / 2 == 1) return {0, 0xffff'0000'0000ULL | address_, type};  // ::ffff:a.b.c.d
    const auto m = mac();  // the modified EUI-64 of RFC 4291, appendix A
    std::uint64_t low = 0;
    for (const unsigned byte :
         {m[0] ^ 2u, 0u + m[1], 0u + m[2], 0xffu, 0xfeu, 0u + m[3], 0u + m[4], 0u + m[5]})
        low = low << 8 | byte;
    return {kGidPrefix, low, type};
}

bool Port::reaches(unsigned from, const std::uint8_t* to) const noexcept {
    SOFTHCA_ASSERT(to != nullptr);
    const GidEntry source = gid(from);
    if (source.type == GidType::kNone) return false;
    for (unsigned i = 0; i < kGidTableLength; ++i) {
        const GidEntry target = gid(i);
        if (target.type != source.type || target.is_ipv4() != source.is_ipv4()) continue;
        std::uint8_t raw[16];
        target.copy_to(raw);
        if (std::memcmp(raw, to, sizeof raw) == 0) return true;
    }
    return false;
}

Port port_of(const Segment& segment) noexcept {
    return {static_cast<PortKind>(segment.port_kind), segment.node_guid, segment.port_address};
}

}  // namespace softhca::device
