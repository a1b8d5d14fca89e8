// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/rdmacm/address.h"

#include <endian.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/device/port.h"
#include "softhca/device/socket_address.h"
#include "softhca/rdmacm/abi.h"
#include "softhca/rdmacm/gid_address.h"

namespace softhca::rdmacm {
namespace {

constexpr std::uint16_t kFirstPort = 32768, kLastPort = 60999;  // as ip_local_port_range has them

std::size_t ip_bytes(const CmAddress& address) noexcept {
    return address.family == AF_INET ? sizeof(in_addr) : sizeof(in6_addr);
}

// A socket to ask the host with. Bare system calls, as a program's own library may take the place
// of bind() and connect() (librspreload.so).
class Question {
public:
    explicit Question(int family) noexcept
        : fd_(libc::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
    ~Question() {
        if (fd_ >= 0) libc::close(fd_);
    }
    Question(const Question&) = delete;
    Question& operator=(const Question&) = delete;

    bool may_bind(const CmAddress& address) const noexcept {
        sockaddr_storage text{};
        const std::size_t size = write_address(address, &text);
        return ::syscall(SYS_bind, fd_, &text, size) == 0;
    }
    bool source_towards(const CmAddress& address, CmAddress* out) const noexcept {
        sockaddr_storage text{};
        std::size_t size = write_address(address, &text);
        if (::syscall(SYS_connect, fd_, &text, size) != 0) return false;
        socklen_t room = sizeof text;
        return ::syscall(SYS_getsockname, fd_, &text, &room) == 0 &&
               read_address(&text, room, out) == 0;
    }

private:
    const int fd_;
};

device::IpAddress ip_of(const CmAddress& address) noexcept {
    if (address.family != AF_INET) return device::ip_address(address.ip);
    std::uint32_t number;
    std::memcpy(&number, address.ip, sizeof number);
    return device::ipv4_address(be32toh(number));
}

// The index of the device's port that has the address, or kNone.
std::uint32_t find_device_port(const device::Segment& segment, const CmAddress& address) noexcept {
    if (address.family == AF_IB) return find_port_of_gid(segment, address.ip);
    const device::IpAddress ip = ip_of(address);
    for (unsigned index = 0; index < device::port_count(segment); ++index)
        if (device::port_at(segment, index).has(ip)) return index;
    return kNone;
}

CmAddress own_address(const device::Segment& segment, std::uint16_t family) noexcept {
    const device::Port port = device::port_at(segment, 0);
    CmAddress out{};
    out.family = family;
    if (family == AF_INET) {
        const std::uint32_t own = htobe32(port.ipv4());
        std::memcpy(out.ip, &own, sizeof own);
    } else if (port.is_ethernet()) {
        port.gid(1).copy_to(out.ip);
    } else {
        std::memcpy(out.ip, &in6addr_loopback, sizeof in6addr_loopback);  // it has no other of IPv6
    }
    return out;
}

std::uint16_t random_port() noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    std::uint64_t mixed = static_cast<std::uint64_t>(now.tv_nsec) * 0x9e37'79b9'7f4a'7c15ULL;
    mixed ^= mixed >> 29;
    return static_cast<std::uint16_t>(kFirstPort + mixed % (kLastPort - kFirstPort + 1));
}

}  // namespace

int read_address(const void* from, std::size_t size, CmAddress* out) noexcept {
    sa_family_t family;
    if (size < sizeof family) return EINVAL;
    std::memcpy(&family, from, sizeof family);
    *out = {};
    if (family == AF_INET) {
        sockaddr_in in;
        if (size < sizeof in) return EINVAL;
        std::memcpy(&in, from, sizeof in);
        out->port = in.sin_port;
        std::memcpy(out->ip, &in.sin_addr, sizeof in.sin_addr);
    } else if (family == AF_INET6) {
        sockaddr_in6 in;
        if (size < sizeof in) return EINVAL;
        std::memcpy(&in, from, sizeof in);
        out->port = in.sin6_port;
        out->scope = in.sin6_scope_id;
        std::memcpy(out->ip, &in.sin6_addr, sizeof in.sin6_addr);
    } else if (family == AF_IB) {
        device::GidSockaddr in;
        if (size < sizeof in) return EINVAL;
        std::memcpy(&in, from, sizeof in);
        out->pkey = be16toh(in.pkey);
        out->flow = in.flow;
        std::memcpy(out->ip, in.gid, sizeof in.gid);
        out->service = be64toh(in.service);
        out->service_mask = be64toh(in.service_mask);
        out->scope = in.scope;
        out->port = htobe16(static_cast<std::uint16_t>(out->service & out->service_mask));
    } else {
        return EINVAL;
    }
    out->family = family;
    return 0;
}

std::size_t address_bytes(std::uint16_t family) noexcept {
    switch (family) {
        case AF_INET:
            return sizeof(sockaddr_in);
        case AF_INET6:
            return sizeof(sockaddr_in6);
        case AF_IB:
            return sizeof(device::GidSockaddr);
        default:
            return 0;
    }
}

int read_whole_address(const void* from, std::size_t size, CmAddress* out) noexcept {
    const int error = read_address(from, size, out);
    return error == 0 && size != address_bytes(out->family) ? EINVAL : error;
}

bool is_any(const CmAddress& address) noexcept {
    for (std::size_t i = 0; i < ip_bytes(address); ++i)
        if (address.ip[i] != 0) return false;
    return true;
}

bool is_loopback(const CmAddress& address) noexcept {
    if (address.family == AF_INET) return address.ip[0] == 127;
    return std::memcmp(address.ip, &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

bool is_wild(const CmAddress& address) noexcept { return is_any(address) || is_loopback(address); }

bool is_multicast(const CmAddress& address) noexcept {
    return address.family == AF_INET ? (address.ip[0] & 0xf0) == 0xe0
                                     : address.family == AF_INET6 && address.ip[0] == 0xff;
}

bool is_same_host(const CmAddress& a, const CmAddress& b) noexcept {
    return a.family == b.family && std::memcmp(a.ip, b.ip, ip_bytes(a)) == 0;
}

bool is_of_fabric(Locked& connections, const CmAddress& address) noexcept {
    if (is_any(address) || is_loopback(address) ||
        find_device_port(connections.segment(), address) != kNone ||
        Question(address.family).may_bind([&] {
            CmAddress host = address;
            host.port = 0;
            return host;
        }()))
        return true;
    // Containers that share a fabric have addresses of their own.
    bool found = false;
    connections.each([&](const CmId& id) {
        found = found || (id.has_device && is_same_host(id.source, address));
    });
    return found;
}

unsigned device_port_of(const device::Segment& segment, const CmAddress& address) noexcept {
    const std::uint32_t index = find_device_port(segment, address);
    return index == kNone ? 0 : index;
}

CmAddress source_towards(const device::Segment& segment, const CmAddress& destination) noexcept {
    CmAddress source = destination;
    // An address of this host is reached from itself. The host does not know those of the ports
    // behind the first; the first is reached by any address of the host.
    if (!is_loopback(destination) && !is_any(destination) &&
        device_port_of(segment, destination) == 0 &&
        !Question(destination.family).source_towards(destination, &source) &&
        is_multicast(destination))
        source = own_address(segment, destination.family);
    source.port = 0;
    return source;
}

// As cma.c: cma_check_port. AF_IB shares the ports of its space with IP addresses. Wildcards, which
// the loopback address is, too, take the port of all addresses of both families, unless both ids
// keep to theirs.
int check_port(Locked& connections, const CmId& id, const CmAddress& address,
               bool may_share) noexcept {
    const std::uint32_t space = space_of(id, address);
    int error = 0;
    connections.each([&](const CmId& other) {
        if (error != 0 || &other == &id || other.state == CmState::kIdle || other.is_passive ||
            space_of(other, other.source) != space || other.source.port != address.port ||
            (may_share && other.reuse_address) ||
            (id.one_family && other.one_family && other.source.family != address.family))
            return;
        if (is_wild(address) || is_wild(other.source))
            error = EADDRNOTAVAIL;
        else if (is_same_host(other.source, address))
            error = EADDRINUSE;
    });
    return error;
}

int bind(Locked& connections, CmId& id, const CmAddress& address) noexcept {
    CmAddress wanted = address;
    // The loopback address, too, belongs to no device until it is resolved.
    const bool is_of_port = !is_wild(address);
    if (address.family == AF_IB) {
        if (is_of_port && find_port_of_gid(connections.segment(), address.ip) == kNone)
            return ENODEV;
        if (const int error = choose_space(id, &wanted)) return error;
    } else if (!is_of_fabric(connections, address)) {
        return EADDRNOTAVAIL;
    }
    if (address.port != 0) {
        if (const int error = check_port(connections, id, wanted, id.reuse_address)) return error;
    } else {
        constexpr unsigned kPorts = kLastPort - kFirstPort + 1;
        std::uint16_t port = random_port();
        unsigned tried = 0;
        for (; tried < kPorts; ++tried) {
            wanted.port = htobe16(port);
            if (check_port(connections, id, wanted, false) == 0) break;
            port = port == kLastPort ? kFirstPort : static_cast<std::uint16_t>(port + 1);
        }
        if (tried == kPorts) return EADDRNOTAVAIL;
    }
    id.source = with_port(wanted, wanted.port);
    id.source_port = device_port_of(connections.segment(), wanted);
    id.state = CmState::kBound;
    id.has_device = is_of_port;
    return 0;
}

CmId* find_listener(Locked& connections, std::uint32_t port_space,
                    const CmAddress& destination) noexcept {
    CmId *exact = nullptr, *wild = nullptr;
    connections.each([&](CmId& id) {
        if (id.state != CmState::kListening || id.source.family == AF_IB ||
            id.port_space != port_space || id.source.port != destination.port)
            return;
        if (id.source.family != destination.family) {
            if (id.source.family == AF_INET6 && is_any(id.source) && !id.one_family) wild = &id;
        } else if (is_same_host(id.source, destination)) {
            exact = &id;
        } else if (is_any(id.source)) {
            wild = &id;
        }
    });
    return exact != nullptr ? exact : wild;
}

unsigned gid_index_of(const device::Port& port, const CmAddress& address) noexcept {
    return port.gid_index_for(ip_of(address));
}

}  // namespace softhca::rdmacm
