// SPDX-License-Identifier: BSD-2-Clause
// Interposed getifaddrs. Programs that connect by rdma_cm look for an interface whose address they
// can bind, and many pass over the loopback interface (libfabric's verbs provider). A container or
// a build machine may have no other. There, or if the program was given an address (--address) or
// several ports, each port has an interface of its own at the end of the list.
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

#include "softhca/base/options.h"
#include "softhca/device/fabric.h"
#include "softhca/device/identity.h"
#include "softhca/device/port.h"
#include "softhca/preload/interpose.h"
#include "softhca/preload/next.h"
#include "softhca/preload/process.h"

namespace softhca::preload {
namespace {

constexpr unsigned kFlags = IFF_UP | IFF_RUNNING | IFF_BROADCAST | IFF_MULTICAST;

struct Interface {
    ifaddrs entry{};
    device::DeviceText name = device::interface_name(0);
    sockaddr_in address{}, netmask{}, broadcast{};
};

// Those of all ports, in order.
struct Interfaces {
    Interface each[device::kMaxFabricPorts];
    unsigned count = 0;
};

bool has_interface(const ifaddrs* list) noexcept {
    for (; list != nullptr; list = list->ifa_next)
        if (list->ifa_addr != nullptr && list->ifa_addr->sa_family == AF_INET &&
            (list->ifa_flags & IFF_UP) != 0 && (list->ifa_flags & IFF_LOOPBACK) == 0)
            return true;
    return false;
}

void fill(Interface& interface, unsigned index, std::uint32_t address) noexcept {
    interface.name = device::interface_name(index);
    interface.address.sin_family = interface.netmask.sin_family = interface.broadcast.sin_family =
        AF_INET;
    interface.address.sin_addr.s_addr = htonl(address);
    interface.netmask.sin_addr.s_addr = htonl(0xff00'0000u);
    interface.broadcast.sin_addr.s_addr = htonl(address | 0x00ff'ffffu);
    interface.entry.ifa_name = const_cast<char*>(interface.name.c_str());
    interface.entry.ifa_flags = kFlags;
    interface.entry.ifa_addr = reinterpret_cast<sockaddr*>(&interface.address);
    interface.entry.ifa_netmask = reinterpret_cast<sockaddr*>(&interface.netmask);
    interface.entry.ifa_broadaddr = reinterpret_cast<sockaddr*>(&interface.broadcast);
}

// A port whose IPv4 addresses were removed has no entry.
void fill(Interfaces& interfaces, const device::Segment& segment) noexcept {
    for (unsigned index = 0; index < device::port_count(segment); ++index)
        if (const std::uint32_t address = device::port_at(segment, index).ipv4(); address != 0)
            fill(interfaces.each[interfaces.count++], index, address);
    for (unsigned i = 1; i < interfaces.count; ++i)
        interfaces.each[i - 1].entry.ifa_next = &interfaces.each[i].entry;
}

// glibc's freeifaddrs frees the block at the head of the list, in which all entries are. So entries
// behind them may be some for ever; only an empty list needs a block of its own.
bool append(ifaddrs** list, const device::Segment& segment) noexcept {
    if (*list == nullptr) {
        void* const memory = std::malloc(sizeof(Interfaces));
        if (memory == nullptr) return false;
        auto* const only = new (memory) Interfaces;
        static_assert(offsetof(Interfaces, each) == 0 && offsetof(Interface, entry) == 0,
                      "it is freed by its address");
        fill(*only, segment);
        if (only->count != 0)
            *list = &only->each[0].entry;
        else
            std::free(memory);
        return true;
    }
    static Interfaces* const shared = [&segment] {
        static Interfaces interfaces;
        fill(interfaces, segment);
        return &interfaces;
    }();
    if (shared->count == 0) return true;
    ifaddrs* last = *list;
    while (last->ifa_next != nullptr)
        last = last->ifa_next;
    last->ifa_next = &shared->each[0].entry;
    return true;
}

}  // namespace

SOFTHCA_INTERPOSE(getifaddrs, int, interpose_getifaddrs, (ifaddrs * *list) noexcept);
int interpose_getifaddrs(ifaddrs** list) noexcept {
    const auto real = next<int(ifaddrs**)>(Next::kGetifaddrs);
    const int result = real(list);
    if (result != 0 || in_borrowed_memory()) return result;
    if (options().address == 0 && options().devices * options().ports == 1 && has_interface(*list))
        [[likely]]
        return result;
    device::Fabric* const fabric = device::Fabric::attach();
    if (fabric == nullptr || append(list, fabric->segment())) return result;
    errno = ENOMEM;
    return -1;
}

}  // namespace softhca::preload
