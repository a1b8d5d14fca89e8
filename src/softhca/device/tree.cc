// SPDX-License-Identifier: BSD-2-Clause
// Writes the discovery tree: see tree.h.
#include "softhca/device/tree.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/device/identity.h"
#include "softhca/device/tree_host.h"
#include "softhca/device/tree_port.h"
#include "softhca/device/tree_writer.h"

namespace softhca::device {

namespace {

// The values that the kernel shows for this device.
constexpr unsigned kSubsystemVendor = kVendorId;
constexpr unsigned kSubsystemDevice = 0x0008;
constexpr unsigned kPciClass = 0x020700;   // network controller, InfiniBand
constexpr unsigned kUverbsAbiVersion = 6;  // of the command interface
constexpr const char* kDriverName = "mlx5_core";
constexpr const char* kLinkSpeed = "16.0 GT/s PCIe";
constexpr unsigned kLinkWidth = 16;

constexpr unsigned kExpressCapability = 0x60;
constexpr unsigned kSixteenGigatransfers = 4;
constexpr unsigned kLinkField = kLinkWidth << 4 | kSixteenGigatransfers;

// The header of the configuration space, and the PCI Express capability, whose link fields topology
// libraries read.
std::string pci_config() {
    std::string space(256, '\0');
    const auto put = [&space](std::size_t offset, unsigned value, unsigned bytes) {
        SOFTHCA_ASSERT(offset + bytes <= space.size() && bytes <= sizeof value);
        for (unsigned i = 0; i < bytes; ++i) {
            space[offset + i] = static_cast<char>(value >> (8 * i));
        }
    };
    put(0x00, kVendorId, 2);
    put(0x02, kPartId, 2);
    put(0x04, 0x0406, 2);  // memory space, bus master, no INTx
    put(0x06, 0x0010, 2);  // has capabilities
    put(0x09, kPciClass, 3);
    put(0x2c, kSubsystemVendor, 2);
    put(0x2e, kSubsystemDevice, 2);
    put(0x34, kExpressCapability, 1);
    put(kExpressCapability, 0x10, 1);
    put(kExpressCapability + 0x02, 0x0002, 2);      // version 2, endpoint
    put(kExpressCapability + 0x0c, kLinkField, 4);  // link capabilities
    put(kExpressCapability + 0x12, kLinkField, 2);  // link status
    put(kExpressCapability + 0x2c, 0x1e, 4);        // speeds up to 16 GT/s
    return space;
}

// `ports` are those of one device here and below.
void write_pci(TreeWriter& w, const std::string& pci, std::span<const Port> ports,
               unsigned devices) {
    const unsigned device = ports.front().device();
    const HostProcessors host = processors_near(device, devices);
    char modalias[80];
    std::snprintf(modalias, sizeof modalias, "pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X",
                  kVendorId, kPartId, kSubsystemVendor, kSubsystemDevice, kPciClass >> 16,
                  kPciClass >> 8 & 0xff, kPciClass & 0xff);
    w.directory(pci);
    w.line(pci + "/vendor", "0x%04x", kVendorId);
    w.line(pci + "/device", "0x%04x", kPartId);
    w.line(pci + "/subsystem_vendor", "0x%04x", kSubsystemVendor);
    w.line(pci + "/subsystem_device", "0x%04x", kSubsystemDevice);
    w.line(pci + "/class", "0x%06x", kPciClass);
    w.line(pci + "/revision", "0x00");
    w.line(pci + "/irq", "0");
    w.line(pci + "/enable", "1");
    w.line(pci + "/modalias", "%s", modalias);
    w.line(pci + "/numa_node", "%d", host.numa_node);
    w.line(pci + "/local_cpus", "%s", host.online_mask.c_str());
    w.line(pci + "/local_cpulist", "%s", host.online_list.c_str());
    for (const char* which : {"max", "current"}) {
        w.line(pci + "/" + which + "_link_speed", "%s", kLinkSpeed);
        w.line(pci + "/" + which + "_link_width", "%u", kLinkWidth);
    }
    w.line(pci + "/uevent",
           "DRIVER=%s\nPCI_CLASS=%X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\n"
           "PCI_SLOT_NAME=%s\nMODALIAS=%s",
           kDriverName, kPciClass, kVendorId, kPartId, kSubsystemVendor, kSubsystemDevice,
           pci_address(device).c_str(), modalias);
    w.content(pci + "/config", pci_config());
    std::string resources;
    for (int bar = 0; bar < 13; ++bar) {  // PCI_NUM_RESOURCES: softhca has no memory on the bus
        resources += "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
    }
    w.content(pci + "/resource", resources);
    // Programs look for the addresses of the device's interface by its name (pyverbs, for rdma_cm).
    // All addresses of this host are the first port's, so it is the host's first interface. Where
    // there are several ports, each has one that getifaddrs() shows.
    if (devices == 1 && ports.size() == 1) {
        if (const std::string interface = host_interface(); !interface.empty())
            w.directory(pci + "/net/" + interface);
    } else {
        for (const Port& port : ports)
            w.directory(pci + "/net/" + interface_name(port.index()).c_str());
    }
    w.link(pci + "/subsystem", "../../../bus/pci");
    w.link(pci + "/driver", std::string("../../../bus/pci/drivers/") + kDriverName);
}

void write_rdma_device(TreeWriter& w, const std::string& pci, std::span<const Port> ports) {
    const std::string node_guid = guid_groups(ports.front().node_guid());
    const unsigned number = ports.front().device();
    const DeviceText name = device_name(number);
    const std::string device = pci + "/infiniband/" + name.c_str();
    w.directory(device);
    w.line(device + "/node_type", "1: CA");
    w.line(device + "/node_guid", "%s", node_guid.c_str());
    w.line(device + "/sys_image_guid", "%s", node_guid.c_str());
    w.line(device + "/node_desc", "softhca %s", name.c_str());
    w.line(device + "/fw_ver", "%d.%d.%04d", kFirmwareMajor, kFirmwareMinor, kFirmwareSub);
    w.line(device + "/hw_rev", "%x", kHardwareRevision);
    w.line(device + "/hca_type", "%s", kHcaType);
    w.line(device + "/board_id", "%s", kBoardId);
    w.line(device + "/uevent", "NAME=%s", name.c_str());
    w.link(device + "/device", std::string("../../../") + pci_address(number).c_str());
    w.link(device + "/subsystem", "../../../../../class/infiniband");
    for (const Port& port : ports)
        write_port(w, port);
}

void write_uverbs(TreeWriter& w, const std::string& pci, unsigned device) {
    const std::string uverbs = pci + "/infiniband_verbs/" + char_device(device).c_str();
    w.directory(uverbs);
    w.line(uverbs + "/ibdev", "%s", device_name(device).c_str());
    w.line(uverbs + "/abi_version", "%u", kDriverAbiVersion);
    w.line(uverbs + "/dev", "%s", char_number(device).c_str());
    w.line(uverbs + "/uevent", "MAJOR=%u\nMINOR=%u\nDEVNAME=infiniband/%s", kCharMajor,
           char_minor(device), char_device(device).c_str());
    w.link(uverbs + "/device", std::string("../../../") + pci_address(device).c_str());
    w.link(uverbs + "/subsystem", "../../../../../class/infiniband_verbs");
}

// rdma_cm is a device of no hardware. Its ABI version is where librdmacm looks for it; the name
// class/misc/rdma_cm belongs to the host.
void write_manager(TreeWriter& w) {
    w.directory("sys/class/infiniband_ucma");
    w.line("sys/class/infiniband_ucma/abi_version", "%u", kManagerAbiVersion);
    w.directory("dev/infiniband");
    w.content(std::string("dev/infiniband/") + kManagerDevice, "");
}

// The names under which programs find a device.
void write_names(TreeWriter& w, const std::string& pci, unsigned device) {
    const std::string below_sys = pci.substr(std::strlen("sys/"));
    const std::string name = device_name(device).c_str(), file = char_device(device).c_str();
    const std::string address = pci_address(device).c_str();
    const std::string numbers = char_number(device).c_str();

    w.directory("sys/class/infiniband");
    w.link("sys/class/infiniband/" + name, "../../" + below_sys + "/infiniband/" + name);
    w.directory("sys/class/infiniband_verbs");
    w.link("sys/class/infiniband_verbs/" + file,
           "../../" + below_sys + "/infiniband_verbs/" + file);

    w.directory("sys/bus/pci/devices");
    w.link("sys/bus/pci/devices/" + address, "../../../" + below_sys);
    w.directory(std::string("sys/bus/pci/drivers/") + kDriverName);
    w.link(std::string("sys/bus/pci/drivers/") + kDriverName + "/" + address,
           "../../../../" + below_sys);

    w.directory("sys/dev/char");
    w.link("sys/dev/char/" + numbers, "../../" + below_sys + "/infiniband_verbs/" + file);
    w.directory("dev/infiniband");
    w.content("dev/infiniband/" + file, "");
    w.directory("dev/char");
    w.link("dev/char/" + numbers, "../infiniband/" + file);
}

// Removes everything below `directory` and closes it. An entry that cannot be removed stays,
// together with its ancestors.
void remove_below(int directory) noexcept {
    alignas(dirent64) char buffer[4096];
    for (;;) {
        const ssize_t size = libc::getdents64(directory, buffer, sizeof buffer);
        bool removed = false;
        for (ssize_t at = 0; at < size;) {
            const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
            at += entry->d_reclen;
            const std::string_view name = entry->d_name;
            if (name == "." || name == "..") {
                continue;
            }
            if (libc::unlinkat(directory, entry->d_name, 0) == 0) {
                removed = true;
                continue;
            }
            const int below = libc::openat(directory, entry->d_name, kTreeDirectoryFlags);
            if (below >= 0) {
                remove_below(below);
                removed = libc::unlinkat(directory, entry->d_name, AT_REMOVEDIR) == 0 || removed;
            }
        }
        if (size <= 0) {
            break;
        }
        if (removed) {
            libc::lseek(directory, 0, SEEK_SET);  // removals invalidate the position
        }
    }
    libc::close(directory);
}

}  // namespace

int write_tree(const std::string& root, std::span<const Port> ports) noexcept {
    SOFTHCA_ASSERT(!root.empty() && root.front() == '/' && !ports.empty());
    remove_tree(root);
    if (libc::mkdir(root.c_str(), 0700) != 0) {
        const int error = errno;
        LOG_ERROR("cannot create the discovery tree %s: %s", root.c_str(), std::strerror(error));
        return error;
    }
    // Despite the umask, the owner must be able to read the tree.
    chmod(root.c_str(), 0700);
    const int fd = libc::open(root.c_str(), kTreeDirectoryFlags);
    int error = fd < 0 ? errno : 0;
    if (fd >= 0) {
        try {
            TreeWriter w(fd);
            const unsigned devices = ports.back().device() + 1;
            for (unsigned device = 0; device < devices; ++device) {
                const std::size_t each = ports.size() / devices;
                const auto its = ports.subspan(device * each, each);
                SOFTHCA_ASSERT(its.front().device() == device, "they come in order");
                const std::string pci = pci_path(device);
                write_pci(w, pci, its, devices);
                write_rdma_device(w, pci, its);
                write_uverbs(w, pci, device);
                write_names(w, pci, device);
            }
            w.line("sys/class/infiniband_verbs/abi_version", "%u", kUverbsAbiVersion);
            write_manager(w);
            error = w.error();
        } catch (const std::bad_alloc&) {
            error = ENOMEM;
        }
        libc::close(fd);
    }
    if (error != 0) {
        remove_tree(root);
    }
    return error;
}

void remove_tree(const std::string& root) noexcept {
    const int fd = libc::open(root.c_str(), kTreeDirectoryFlags);
    if (fd >= 0) {
        remove_below(fd);
        libc::rmdir(root.c_str());
    }
}

}  // namespace softhca::device
