// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/ip_network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "heddle/detail/assert.h"

namespace heddle::verbs {
namespace {

using Bytes = std::span<const std::uint8_t>;

// The bytes of an IP address; empty: it is of another family.
Bytes bytes_of(const sockaddr* address) noexcept {
    if (address == nullptr) return {};
    if (address->sa_family == AF_INET) {
        const auto* const v4 = reinterpret_cast<const sockaddr_in*>(address);
        return {reinterpret_cast<const std::uint8_t*>(&v4->sin_addr), sizeof v4->sin_addr};
    }
    if (address->sa_family == AF_INET6) {
        const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(address);
        return {reinterpret_cast<const std::uint8_t*>(&v6->sin6_addr), sizeof v6->sin6_addr};
    }
    return {};
}

std::string network_text(Bytes address, Bytes mask) {
    HEDDLE_ASSERT(address.size() == mask.size() && address.size() <= sizeof(in6_addr));
    std::uint8_t network[sizeof(in6_addr)];
    int bits = 0;
    for (std::size_t k = 0; k < address.size(); ++k) {
        network[k] = address[k] & mask[k];
        bits += std::popcount(mask[k]);
    }
    // RFC 3021 and RFC 6164: a link between two routers, or between a host and its router.
    if (bits >= static_cast<int>(address.size()) * 8 - 1) return "";
    char text[INET6_ADDRSTRLEN] = "?";
    ::inet_ntop(address.size() == sizeof(in_addr) ? AF_INET : AF_INET6, network, text, sizeof text);
    return std::string(text) + "/" + std::to_string(bits);
}

}  // namespace

bool is_link_local(const std::array<std::uint8_t, 16>& gid) noexcept {
    return gid[0] == 0xfe && (gid[1] & 0xc0U) == 0x80;
}

std::string ip_network(const std::array<std::uint8_t, 16>& gid) {
    if (is_link_local(gid)) return "fe80::/64";
    in6_addr raw;
    std::memcpy(&raw, gid.data(), sizeof raw);
    constexpr std::size_t kIpv4 = 12;  // where it begins in an IPv4-mapped address
    const Bytes wanted = IN6_IS_ADDR_V4MAPPED(&raw) ? Bytes(gid).subspan(kIpv4) : Bytes(gid);
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) return "";
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
    for (const ifaddrs* each = all.get(); each != nullptr; each = each->ifa_next)
        if (const Bytes has = bytes_of(each->ifa_addr); std::ranges::equal(has, wanted))
            if (const Bytes mask = bytes_of(each->ifa_netmask); mask.size() == has.size())
                return network_text(has, mask);
    return "";
}

}  // namespace heddle::verbs
