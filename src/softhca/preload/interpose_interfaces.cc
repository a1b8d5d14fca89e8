// SPDX-License-Identifier: BSD-2-Clause
// Interposed getifaddrs. Programs that connect by rdma_cm look for an interface whose address they
// can bind, and many pass over the loopback interface (libfabric's verbs provider). A container or
// a build machine may have no other. There, or if the program was given an address (--address), the
// device's port has an interface of its own at the end of the list.
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
#include "softhca/device/port.h"
#include "softhca/preload/interpose.h"
#include "softhca/preload/next.h"
#include "softhca/preload/process.h"

namespace softhca::preload {
namespace {

constexpr unsigned kFlags = IFF_UP | IFF_RUNNING | IFF_BROADCAST | IFF_MULTICAST;

struct Interface {
    ifaddrs entry{};
    char name[IFNAMSIZ] = "softhca0";
    sockaddr_in address{}, netmask{}, broadcast{};
};

bool has_interface(const ifaddrs* list) noexcept {
    for (; list != nullptr; list = list->ifa_next)
        if (list->ifa_addr != nullptr && list->ifa_addr->sa_family == AF_INET &&
            (list->ifa_flags & IFF_UP) != 0 && (list->ifa_flags & IFF_LOOPBACK) == 0)
            return true;
    return false;
}

void fill(Interface& interface, std::uint32_t address) noexcept {
    interface.address.sin_family = interface.netmask.sin_family = interface.broadcast.sin_family =
        AF_INET;
    interface.address.sin_addr.s_addr = htonl(address);
    interface.netmask.sin_addr.s_addr = htonl(0xff00'0000u);
    interface.broadcast.sin_addr.s_addr = htonl(address | 0x00ff'ffffu);
    interface.entry.ifa_name = interface.name;
    interface.entry.ifa_flags = kFlags;
    interface.entry.ifa_addr = reinterpret_cast<sockaddr*>(&interface.address);
    interface.entry.ifa_netmask = reinterpret_cast<sockaddr*>(&interface.netmask);
    interface.entry.ifa_broadaddr = reinterpret_cast<sockaddr*>(&interface.broadcast);
}

// glibc's freeifaddrs frees the block at the head of the list, in which all entries are. So an
// entry behind them may be one for ever; only an empty list needs one of its own.
bool append(ifaddrs** list, std::uint32_t address) noexcept {
    if (*list == nullptr) {
        void* const memory = std::malloc(sizeof(Interface));
        if (memory == nullptr) return false;
        auto* const only = new (memory) Interface;
        static_assert(offsetof(Interface, entry) == 0, "it is freed by its address");
        fill(*only, address);
        *list = &only->entry;
        return true;
    }
    static Interface* const shared = [address] {
        static Interface interface;
        fill(interface, address);
        return &interface;
    }();
    ifaddrs* last = *list;
    while (last->ifa_next != nullptr)
        last = last->ifa_next;
    last->ifa_next = &shared->entry;
    return true;
}

}  // namespace

SOFTHCA_INTERPOSE(getifaddrs, int, interpose_getifaddrs, (ifaddrs * *list) noexcept);
int interpose_getifaddrs(ifaddrs** list) noexcept {
    const auto real = next<int(ifaddrs**)>(Next::kGetifaddrs);
    const int result = real(list);
    if (result != 0 || in_borrowed_memory()) return result;
    if (options().address == 0 && has_interface(*list)) [[likely]]
        return result;
    device::Fabric* const fabric = device::Fabric::attach();
    if (fabric == nullptr || append(list, device::port_of(fabric->segment()).ipv4())) return result;
    errno = ENOMEM;
    return -1;
}

}  // namespace softhca::preload
