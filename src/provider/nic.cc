// SPDX-License-Identifier: BSD-2-Clause
#include "provider/nic.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "provider/guarded.h"
#include "provider/object.h"
#include "provider/unsupported.h"

namespace heddle::provider {
namespace {

// The attributes and the texts they point to are one object.
struct Nic : fid_nic {
    using Fid = fid_nic;
    explicit Nic(const DeviceInfo& of);
    Nic(const Nic&) = delete;
    Nic& operator=(const Nic&) = delete;

    DeviceInfo device;
    std::string driver;
    fi_device_attr device_attributes{};
    fi_bus_attr bus_attributes{};
    fi_link_attr link_attributes{};
};

int close_nic(fid* handle) {
    delete &object<Nic>(handle);
    return 0;
}

int control_nic(fid* handle, int command, void* argument) {
    if (command != FI_DUP) return -FI_ENOSYS;
    return guarded("fi_dupinfo", [&] {
        *static_cast<fid_nic**>(argument) = make_nic(object<Nic>(handle).device);
        return 0;
    });
}

// Appends to the text, as libfabric's own function does. The size is that of the whole buffer, or
// in newer versions of what is left of it.
int print_nic(const fid* handle, char* text, std::size_t size) {
    const DeviceInfo& device = object<Nic>(const_cast<fid*>(handle)).device;
    const std::size_t used = strnlen(text, size);
    std::snprintf(text + used, size - used,
                  "    nic: %s, PCI address %s, firmware %s, %s, MTU %u, %.1f Gb/s, %s\n",
                  port_name(device).c_str(), device.pci.empty() ? "unknown" : device.pci.c_str(),
                  device.firmware.empty() ? "unknown" : device.firmware.c_str(),
                  device.transport.c_str(), device.mtu, static_cast<double>(device.speed) / 1e9,
                  device.port_active ? "up" : "down");
    return 0;
}

fi_ops nic_operations = {
    .size = sizeof(fi_ops),
    .close = close_nic,
    .bind = unsupported,
    .control = control_nic,
    .ops_open = unsupported,
    .tostr = print_nic,
    .ops_set = unsupported,
};

// Reads "0000:07:00.0". MPICH ends the program over an address that hwloc does not know, and hwloc
// knows those that the kernel lists. The kernel itself is asked, as libc's functions may show a
// software device.
fi_bus_attr bus_of(const std::string& pci) noexcept {
    fi_bus_attr bus{};
    unsigned domain = 0, number = 0, device = 0, function = 0;
    if (std::sscanf(pci.c_str(), "%x:%x:%x.%x", &domain, &number, &device, &function) != 4 ||
        ::syscall(SYS_faccessat, AT_FDCWD, ("/sys/bus/pci/devices/" + pci).c_str(), F_OK) != 0)
        return bus;
    bus.bus_type = FI_BUS_PCI;
    bus.attr.pci = {static_cast<std::uint16_t>(domain), static_cast<std::uint8_t>(number),
                    static_cast<std::uint8_t>(device), static_cast<std::uint8_t>(function)};
    return bus;
}

Nic::Nic(const DeviceInfo& of)
    : fid_nic{}, device(of), driver(of.mlx5 ? "mlx5_core" : ""), bus_attributes(bus_of(of.pci)) {
    describe(fid, FI_CLASS_NIC, nullptr, nic_operations);
    const auto text = [](std::string& from) { return from.empty() ? nullptr : from.data(); };
    device_attributes.name = text(device.name);
    device_attributes.driver = text(driver);
    device_attributes.firmware = text(device.firmware);
    link_attributes.mtu = device.mtu;
    link_attributes.speed = device.speed;
    link_attributes.state = device.port_active ? FI_LINK_UP : FI_LINK_DOWN;
    // As the provider verbs calls them.
    link_attributes.network_type =
        device.ethernet ? const_cast<char*>("Ethernet") : const_cast<char*>("InfiniBand");
    device_attr = &device_attributes;
    bus_attr = &bus_attributes;
    link_attr = &link_attributes;
}

}  // namespace

fid_nic* make_nic(const DeviceInfo& device) { return new Nic(device); }

}  // namespace heddle::provider
