// SPDX-License-Identifier: BSD-2-Clause
// Writes the discovery tree: see tree.h. Counter files exist because monitors expect them, but they
// stay zero: the traffic of the fabric is counted in its segment (`softhca stat`).
#include "softhca/device/tree.h"

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

namespace softhca::device {

namespace {

constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// The values that the kernel shows for this device.
constexpr unsigned kSubsystemVendor = kVendorId;
constexpr unsigned kSubsystemDevice = 0x0008;
constexpr unsigned kPciClass = 0x020700;   // network controller, InfiniBand
constexpr unsigned kUverbsAbiVersion = 6;  // of the command interface
constexpr const char* kDriverName = "mlx5_core";
constexpr const char* kLinkSpeed = "16.0 GT/s PCIe";
constexpr unsigned kLinkWidth = 16;

// Creates the entries of one tree. It keeps the first error and does nothing after it.
class Writer {
public:
    explicit Writer(int root) noexcept : root_(root) { SOFTHCA_ASSERT(root >= 0); }

    int error() const noexcept { return error_; }

    // Creates the directory and its ancestors.
    void directory(const std::string& path) {
        SOFTHCA_ASSERT(!path.empty() && path.front() != '/');
        for (std::size_t slash = path.find('/');; slash = path.find('/', slash + 1)) {
            const std::string part = path.substr(0, slash);
            if (error_ == 0 && libc::mkdirat(root_, part.c_str(), 0700) == 0) {
                if (fchmodat(root_, part.c_str(), 0700, 0) != 0) fail(part);  // despite the umask
            } else if (error_ == 0 && errno != EEXIST) {
                fail(part);
            }
            if (slash == std::string::npos) {
                return;
            }
        }
    }

    void content(const std::string& path, std::string_view bytes) {
        if (error_ != 0) {
            return;
        }
        const int fd = libc::openat(root_, path.c_str(),
                                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0) {
            fail(path);
            return;
        }
        libc::fchmod(fd, 0600);  // despite the umask
        while (!bytes.empty()) {
            const ssize_t written = libc::write(fd, bytes.data(), bytes.size());
            if (written < 0 && errno == EINTR) {
                continue;
            }
            if (written <= 0) {
                fail(path);
                break;
            }
            SOFTHCA_ASSERT(static_cast<std::size_t>(written) <= bytes.size());
            bytes.remove_prefix(static_cast<std::size_t>(written));
        }
        libc::close(fd);
    }

    // One line of text, which is the form of nearly every attribute.
    __attribute__((format(printf, 3, 4))) void line(const std::string& path, const char* format,
                                                    ...) {
        char text[1024];
        va_list arguments;
        va_start(arguments, format);
        const int length = std::vsnprintf(text, sizeof text - 1, format, arguments);
        va_end(arguments);
        if (length < 0 || static_cast<std::size_t>(length) >= sizeof text - 1) {
            errno = EOVERFLOW;
            fail(path);
            return;
        }
        text[length] = '\n';
        content(path, {text, static_cast<std::size_t>(length) + 1});
    }

    void link(const std::string& path, const std::string& target) {
        if (error_ == 0 && libc::symlinkat(target.c_str(), root_, path.c_str()) != 0) {
            fail(path);
        }
    }

private:
    void fail(const std::string& path) {
        if (error_ == 0) {
            error_ = errno != 0 ? errno : EIO;
            LOG_ERROR("cannot create %s of the discovery tree: %s", path.c_str(),
                      std::strerror(error_));
        }
    }

    int root_;
    int error_ = 0;
};

std::string pci_path() {
    char path[64];
    std::snprintf(path, sizeof path, "sys/devices/%s/%s", kPciDomainBus, kPciAddress);
    return path;
}

std::string number(unsigned value) { return std::to_string(value); }

// The eight groups of a GID.
std::string groups(std::uint64_t high, std::uint64_t low) {
    char text[64];
    const auto group = [](std::uint64_t half, int index) {
        return static_cast<unsigned>(half >> (48 - 16 * index)) & 0xffffU;
    };
    std::snprintf(text, sizeof text, "%04x:%04x:%04x:%04x:%04x:%04x:%04x:%04x", group(high, 0),
                  group(high, 1), group(high, 2), group(high, 3), group(low, 0), group(low, 1),
                  group(low, 2), group(low, 3));
    return text;
}

std::string guid(std::uint64_t value) { return groups(0, value).substr(20); }

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

void write_pci(Writer& w, const std::string& pci) {
    const HostProcessors host = host_processors();
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
           kPciAddress, modalias);
    w.content(pci + "/config", pci_config());
    std::string resources;
    for (int bar = 0; bar < 13; ++bar) {  // PCI_NUM_RESOURCES: softhca has no memory on the bus
        resources += "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
    }
    w.content(pci + "/resource", resources);
    // Programs look for the addresses of the device's interface by its name (pyverbs, for rdma_cm).
    // All addresses of this host are the device's, so it is the host's first interface.
    if (const std::string interface = host_interface(); !interface.empty())
        w.directory(pci + "/net/" + interface);
    w.link(pci + "/subsystem", "../../../bus/pci");
    w.link(pci + "/driver", std::string("../../../bus/pci/drivers/") + kDriverName);
}

void write_port(Writer& w, const std::string& port, const Port& described) {
    const bool ethernet = described.is_ethernet();
    w.directory(port);
    w.line(port + "/state", "4: ACTIVE");
    w.line(port + "/phys_state", "5: LinkUp");
    w.line(port + "/rate", "200 Gb/sec (4X HDR)");
    w.line(port + "/lid", "0x%x", described.lid());
    w.line(port + "/sm_lid", "0x%x", described.sm_lid());
    w.line(port + "/lid_mask_count", "0");
    w.line(port + "/sm_sl", "0");
    w.line(port + "/cap_mask", "0x%08x", described.capabilities());
    w.line(port + "/link_layer", ethernet ? "Ethernet" : "InfiniBand");

    // InfiniBand GIDs have the type name of RoCE v1, for historical reasons. None of them has a
    // network device, so gid_attrs/ndevs has no readable entry.
    w.directory(port + "/gids");
    w.directory(port + "/gid_attrs/types");
    w.directory(port + "/gid_attrs/ndevs");
    for (unsigned i = 0; i < kGidTableLength; ++i) {
        const GidEntry entry = described.gid(i);
        w.line(port + "/gids/" + number(i), "%s", groups(entry.high, entry.low).c_str());
        if (ethernet && entry.type == GidType::kNone) continue;  // the kernel answers EINVAL here
        w.line(port + "/gid_attrs/types/" + number(i),
               entry.type == GidType::kV2 ? "RoCE v2" : "IB/RoCE v1");
    }
    w.directory(port + "/pkeys");
    for (unsigned i = 0; i < described.pkey_table_length(); ++i) {
        w.line(port + "/pkeys/" + number(i), "0x%04x", i == 0 ? kDefaultPkey : 0);
    }

    // The IBTA counters PortCounters and PortCountersExtended, then those that mlx5_ib adds.
    w.directory(port + "/counters");
    for (const char* name : {"VL15_dropped",
                             "excessive_buffer_overrun_errors",
                             "link_downed",
                             "link_error_recovery",
                             "local_link_integrity_errors",
                             "multicast_rcv_packets",
                             "multicast_xmit_packets",
                             "port_rcv_constraint_errors",
                             "port_rcv_data",
                             "port_rcv_errors",
                             "port_rcv_packets",
                             "port_rcv_remote_physical_errors",
                             "port_rcv_switch_relay_errors",
                             "port_xmit_constraint_errors",
                             "port_xmit_data",
                             "port_xmit_discards",
                             "port_xmit_packets",
                             "port_xmit_wait",
                             "symbol_error",
                             "unicast_rcv_packets",
                             "unicast_xmit_packets"}) {
        w.line(port + "/counters/" + name, "0");
    }
    w.directory(port + "/hw_counters");
    for (const char* name :
         {"duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "out_of_buffer",
          "out_of_sequence", "packet_seq_err", "req_cqe_error", "req_cqe_flush_error",
          "req_remote_access_errors", "req_remote_invalid_request", "resp_cqe_error",
          "resp_cqe_flush_error", "resp_local_length_error", "resp_remote_access_errors",
          "rnr_nak_retry_err", "rx_atomic_requests", "rx_read_requests", "rx_write_requests"}) {
        w.line(port + "/hw_counters/" + name, "0");
    }
    w.line(port + "/hw_counters/lifespan", "10");
}

void write_rdma_device(Writer& w, const std::string& pci, const Port& described) {
    const std::uint64_t node_guid = described.node_guid();
    const std::string device = pci + "/infiniband/" + kDeviceName;
    w.directory(device);
    w.line(device + "/node_type", "1: CA");
    w.line(device + "/node_guid", "%s", guid(node_guid).c_str());
    w.line(device + "/sys_image_guid", "%s", guid(node_guid).c_str());
    w.line(device + "/node_desc", "softhca %s", kDeviceName);
    w.line(device + "/fw_ver", "%d.%d.%04d", kFirmwareMajor, kFirmwareMinor, kFirmwareSub);
    w.line(device + "/hw_rev", "%x", kHardwareRevision);
    w.line(device + "/hca_type", "%s", kHcaType);
    w.line(device + "/board_id", "%s", kBoardId);
    w.line(device + "/uevent", "NAME=%s", kDeviceName);
    w.link(device + "/device", std::string("../../../") + kPciAddress);
    w.link(device + "/subsystem", "../../../../../class/infiniband");
    for (unsigned port = 1; port <= kPorts; ++port) {
        write_port(w, device + "/ports/" + number(port), described);
    }
}

void write_uverbs(Writer& w, const std::string& pci) {
    const std::string uverbs = pci + "/infiniband_verbs/" + kCharDevice;
    w.directory(uverbs);
    w.line(uverbs + "/ibdev", "%s", kDeviceName);
    w.line(uverbs + "/abi_version", "%u", kDriverAbiVersion);
    w.line(uverbs + "/dev", "%u:%u", kCharMajor, kCharMinor);
    w.line(uverbs + "/uevent", "MAJOR=%u\nMINOR=%u\nDEVNAME=infiniband/%s", kCharMajor, kCharMinor,
           kCharDevice);
    w.link(uverbs + "/device", std::string("../../../") + kPciAddress);
    w.link(uverbs + "/subsystem", "../../../../../class/infiniband_verbs");
}

// rdma_cm is a device of no hardware. Its ABI version is where librdmacm looks for it; the name
// class/misc/rdma_cm belongs to the host.
void write_manager(Writer& w) {
    w.directory("sys/class/infiniband_ucma");
    w.line("sys/class/infiniband_ucma/abi_version", "%u", kManagerAbiVersion);
    w.directory("dev/infiniband");
    w.content(std::string("dev/infiniband/") + kManagerDevice, "");
}

// The names under which programs find the device.
void write_names(Writer& w, const std::string& pci) {
    const std::string below_sys = pci.substr(std::strlen("sys/"));
    const std::string numbers = number(kCharMajor) + ":" + number(kCharMinor);

    w.directory("sys/class/infiniband");
    w.link(std::string("sys/class/infiniband/") + kDeviceName,
           "../../" + below_sys + "/infiniband/" + kDeviceName);
    w.directory("sys/class/infiniband_verbs");
    w.line("sys/class/infiniband_verbs/abi_version", "%u", kUverbsAbiVersion);
    w.link(std::string("sys/class/infiniband_verbs/") + kCharDevice,
           "../../" + below_sys + "/infiniband_verbs/" + kCharDevice);

    w.directory("sys/bus/pci/devices");
    w.link(std::string("sys/bus/pci/devices/") + kPciAddress, "../../../" + below_sys);
    w.directory(std::string("sys/bus/pci/drivers/") + kDriverName);
    w.link(std::string("sys/bus/pci/drivers/") + kDriverName + "/" + kPciAddress,
           "../../../../" + below_sys);

    w.directory("sys/dev/char");
    w.link("sys/dev/char/" + numbers, "../../" + below_sys + "/infiniband_verbs/" + kCharDevice);
    w.directory("dev/infiniband");
    w.content(std::string("dev/infiniband/") + kCharDevice, "");
    w.directory("dev/char");
    w.link("dev/char/" + numbers, std::string("../infiniband/") + kCharDevice);
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
            const int below = libc::openat(directory, entry->d_name, kDirectoryFlags);
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

int write_tree(const std::string& root, const Port& port) noexcept {
    SOFTHCA_ASSERT(!root.empty() && root.front() == '/');
    remove_tree(root);
    if (libc::mkdir(root.c_str(), 0700) != 0) {
        const int error = errno;
        LOG_ERROR("cannot create the discovery tree %s: %s", root.c_str(), std::strerror(error));
        return error;
    }
    // Despite the umask, the owner must be able to read the tree.
    chmod(root.c_str(), 0700);
    const int fd = libc::open(root.c_str(), kDirectoryFlags);
    int error = fd < 0 ? errno : 0;
    if (fd >= 0) {
        try {
            Writer w(fd);
            const std::string pci = pci_path();
            write_pci(w, pci);
            write_rdma_device(w, pci, port);
            write_uverbs(w, pci);
            write_names(w, pci);
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
    const int fd = libc::open(root.c_str(), kDirectoryFlags);
    if (fd >= 0) {
        remove_below(fd);
        libc::rmdir(root.c_str());
    }
}

}  // namespace softhca::device
