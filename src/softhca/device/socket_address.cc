// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/device/socket_address.h"

#include <endian.h>
#include <netinet/in.h>

#include <cstring>

namespace softhca::device {

std::size_t write_address(const CmAddress& address, void* to) noexcept {
    if (address.family == AF_INET) {
        sockaddr_in in{};
        in.sin_family = AF_INET;
        in.sin_port = address.port;
        std::memcpy(&in.sin_addr, address.ip, sizeof in.sin_addr);
        std::memcpy(to, &in, sizeof in);
        return sizeof in;
    }
    if (address.family == AF_IB) {
        GidSockaddr in{};
        in.family = AF_IB;
        in.pkey = htobe16(address.pkey);
        in.flow = address.flow;
        std::memcpy(in.gid, address.ip, sizeof in.gid);
        in.service = htobe64(address.service);
        in.service_mask = htobe64(address.service_mask);
        in.scope = address.scope;
        std::memcpy(to, &in, sizeof in);
        return sizeof in;
    }
    if (address.family != AF_INET6) return 0;
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = address.port;
    in.sin6_scope_id = static_cast<std::uint32_t>(address.scope);
    std::memcpy(&in.sin6_addr, address.ip, sizeof in.sin6_addr);
    std::memcpy(to, &in, sizeof in);
    return sizeof in;
}

}  // namespace softhca::device
