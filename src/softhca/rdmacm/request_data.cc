// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/rdmacm/request_data.h"

#include <endian.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/rdmacm/gid_address.h"

namespace softhca::rdmacm {
namespace {

constexpr std::size_t kReqBytes = 92, kSidrReqBytes = 216;  // ib_cm.h

struct CmaHeader {
    std::uint8_t version, ip_version;  // 0; 4 or 6, in the high bits
    std::uint16_t port;                // of the source
    std::uint8_t source[16], destination[16];
};
static_assert(sizeof(CmaHeader) == 36);

constexpr std::size_t kIpv4Bytes = 4, kBeforeIpv4 = 12;

std::size_t header_bytes(std::uint16_t family) noexcept {
    return family == AF_IB ? 0 : sizeof(CmaHeader);
}

void put_ip(const CmAddress& from, std::uint8_t* to) noexcept {
    if (from.family == AF_INET)
        std::memcpy(to + kBeforeIpv4, from.ip, kIpv4Bytes);
    else
        std::memcpy(to, from.ip, sizeof from.ip);
}

CmAddress ip_from(std::uint16_t family, const std::uint8_t* from, std::uint16_t port) noexcept {
    CmAddress out{};
    out.family = family;
    out.port = port;
    if (family == AF_INET)
        std::memcpy(out.ip, from + kBeforeIpv4, kIpv4Bytes);
    else
        std::memcpy(out.ip, from, sizeof out.ip);
    return out;
}

}  // namespace

std::size_t RequestData::room_for(const CmId& id, std::uint16_t family) noexcept {
    return (id.qp_type == IBV_QPT_UD ? kSidrReqBytes : kReqBytes) - header_bytes(family);
}

RequestData::RequestData(const CmId& id, const void* data, std::size_t bytes) noexcept
    : service_(service_of(id, id.destination)) {
    const std::uint16_t family = id.source.family;
    SOFTHCA_ASSERT(bytes <= room_for(id, family));
    if (bytes != 0) std::memcpy(bytes_.data() + header_bytes(family), data, bytes);
    if (family == AF_IB) return;
    CmaHeader header{};
    header.ip_version = family == AF_INET ? 0x40 : 0x60;
    header.port = id.source.port;
    put_ip(id.source, header.source);
    put_ip(id.destination, header.destination);
    std::memcpy(bytes_.data(), &header, sizeof header);
}

const void* RequestData::data_for(std::uint16_t family) const noexcept {
    return bytes_.data() + header_bytes(family);
}

bool RequestData::read_header(CmAddress* source, CmAddress* destination) const noexcept {
    CmaHeader header;
    std::memcpy(&header, bytes_.data(), sizeof header);
    const unsigned version = header.ip_version >> 4;
    if (header.version != 0 || (version != 4 && version != 6)) return false;
    const std::uint16_t family = version == 4 ? AF_INET : AF_INET6;
    *source = ip_from(family, header.source, header.port);
    *destination =
        ip_from(family, header.destination, htobe16(static_cast<std::uint16_t>(service_)));
    return true;
}

}  // namespace softhca::rdmacm
