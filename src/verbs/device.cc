// SPDX-License-Identifier: BSD-2-Clause
// Lists, describes and opens devices: see heddle/device.h.
#include "heddle/device.h"

#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "verbs/device_name.h"
#include "verbs/handles.h"
#include "verbs/local_port.h"
#include "verbs/missing_device.h"
#include "verbs/open_device.h"

namespace heddle {
namespace {

std::string sysfs_path(const ibv_device* device) {
    char path[PATH_MAX];
    const std::string link = std::string(device->ibdev_path) + "/device";
    return ::realpath(link.c_str(), path) != nullptr ? path : std::string();
}

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

const char* transport_of(const ibv_device* device, bool ethernet) noexcept {
    switch (device->transport_type) {
        case IBV_TRANSPORT_IB:
            return ethernet ? "RoCE" : "InfiniBand";
        case IBV_TRANSPORT_IWARP:
            return "iWARP";
        case IBV_TRANSPORT_USNIC:
        case IBV_TRANSPORT_USNIC_UDP:
            return "usNIC";
        default:
            return "other";
    }
}

bool pages_on_demand(const ibv_device_attr_ex& device) noexcept {
    constexpr std::uint32_t kAll =
        IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
    const bool has_xrc = (device.orig_attr.device_cap_flags & IBV_DEVICE_XRC) != 0;
    return (device.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0 &&
           (device.odp_caps.per_transport_caps.rc_odp_caps & kAll) == kAll &&
           (!has_xrc || (device.xrc_odp_caps & kAll) == kAll);
}

// In bits per second, by the codes of IBTA 14.2.5.6 (PortInfo) for speed and width.
std::uint64_t speed_of(const ibv_port_attr& port) noexcept {
    double gigabits = 0;
    switch (port.active_speed) {
        case 1:
            gigabits = 2.5;
            break;  // SDR
        case 2:
            gigabits = 5;
            break;  // DDR
        case 4:
            gigabits = 10;
            break;  // QDR
        case 8:
            gigabits = 10.3125;
            break;  // FDR10
        case 16:
            gigabits = 14.0625;
            break;  // FDR
        case 32:
            gigabits = 25;
            break;  // EDR
        case 64:
            gigabits = 50;
            break;  // HDR
        case 128:
            gigabits = 100;
            break;  // NDR
        default:
            break;
    }
    unsigned width = 0;
    switch (port.active_width) {
        case 1:
            width = 1;
            break;
        case 2:
            width = 4;
            break;
        case 4:
            width = 8;
            break;
        case 8:
            width = 12;
            break;
        case 16:
            width = 2;
            break;
        default:
            break;
    }
    return static_cast<std::uint64_t>(gigabits * width * 1e9);
}

void describe_port(ibv_device* device, ibv_context* context, std::uint8_t number,
                   DeviceInfo& info) {
    info.port = number;
    ibv_port_attr port{};
    if (ibv_query_port(context, number, &port) == 0) {
        info.port_active = port.state == IBV_PORT_ACTIVE;
        info.ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
        info.lid = port.lid;
        info.mtu = 128u << port.active_mtu;
        info.speed = speed_of(port);
    }
    info.transport = transport_of(device, info.ethernet);
    try {
        const verbs::LocalPort used = verbs::local_port(context, number);
        info.gid = used.gid;
        info.roce_v1 = used.roce_v1;
    } catch (const VerbsError&) {  // the GID stays unknown
    }
}

// Describes the ports that `wanted` allows; if it allows none, nothing. A device that this process
// may not open is described by what sysfs has.
std::vector<DeviceInfo> describe(ibv_device* device, const verbs::DeviceChoice& wanted) {
    HEDDLE_ASSERT(device != nullptr);
    DeviceInfo info;
    info.name = ibv_get_device_name(device);
    info.transport = transport_of(device, false);
    const std::string sysfs = sysfs_path(device);
    info.pci = sysfs.empty() ? std::string() : std::filesystem::path(sysfs).filename().string();
    info.board = first_line(std::string(device->ibdev_path) + "/board_id");
    const std::string node = sysfs.empty() ? std::string() : first_line(sysfs + "/numa_node");
    if (!node.empty()) info.numa_node = std::atoi(node.c_str());
    info.mlx5 = mlx5dv_is_supported(device);
    info.software = dlsym(RTLD_DEFAULT, "softhca_doorbell") != nullptr;
    const verbs::Context context(ibv_open_device(device));
    if (!context) return {info};
    ibv_device_attr_ex attributes{};
    if (ibv_query_device_ex(context.get(), nullptr, &attributes) == 0) {
        const ibv_device_attr& a = attributes.orig_attr;
        info.firmware = a.fw_ver;
        info.ports = a.phys_port_cnt;
        info.max_qps = static_cast<std::uint32_t>(a.max_qp);
        info.max_qp_depth = static_cast<std::uint32_t>(a.max_qp_wr);
        info.max_cqs = static_cast<std::uint32_t>(a.max_cq);
        info.max_mrs = static_cast<std::uint32_t>(a.max_mr);
        info.max_pds = static_cast<std::uint32_t>(a.max_pd);
        info.max_srqs = static_cast<std::uint32_t>(a.max_srq);
        info.max_sge = static_cast<std::uint32_t>(a.max_sge);
        info.xrc = (a.device_cap_flags & IBV_DEVICE_XRC) != 0;
        info.atomics = a.atomic_cap != IBV_ATOMIC_NONE;
        info.on_demand_paging = pages_on_demand(attributes);
    }
    info.thread_domains = verbs::has_thread_domains(context.get());
    std::vector<DeviceInfo> all;
    for (unsigned number = 1; number <= info.ports; ++number) {
        const auto port = static_cast<std::uint8_t>(number);
        if (!wanted.allows(info.name, port)) continue;
        all.push_back(info);
        describe_port(device, context.get(), port, all.back());
    }
    return all;
}

// Returns the first of them with an active port, or else the first.
const DeviceInfo* preferred(const std::vector<DeviceInfo>& ports) noexcept {
    const auto active =
        std::ranges::find_if(ports, [](const DeviceInfo& each) { return each.port_active; });
    if (active != ports.end()) return &*active;
    return ports.empty() ? nullptr : &ports.front();
}

// The list of devices and its length. Open devices stay open when the list is freed.
struct DeviceList {
    int count = 0;
    ibv_device** list = nullptr;
    DeviceList() {
        verbs::survive_forks();
        list = ibv_get_device_list(&count);
        // ENOSYS: the kernel has no devices, since ib_uverbs is not loaded.
        if (list == nullptr && errno != ENOSYS) throw VerbsError("listing RDMA devices", errno);
    }
    ~DeviceList() {
        if (list != nullptr) ibv_free_device_list(list);
    }
    DeviceList(const DeviceList&) = delete;
    DeviceList& operator=(const DeviceList&) = delete;
};

std::string names_of(const DeviceList& devices) {
    std::string names;
    for (int i = 0; i < devices.count; ++i)
        names += (i != 0 ? ", " : "") + std::string(ibv_get_device_name(devices.list[i]));
    return names;
}

struct Found {
    ibv_device* device;
    DeviceInfo info;
};

Found find(const DeviceList& devices, const std::string& choice) {
    HEDDLE_ASSERT(devices.count == 0 || devices.list != nullptr);
    if (devices.count == 0)
        throw VerbsError("finding an RDMA device", ENODEV, verbs::missing_device("/sys", "/dev"));
    const verbs::DeviceChoice wanted(choice);
    std::optional<Found> inactive;
    for (int i = 0; i < devices.count; ++i) {
        ibv_device* const device = devices.list[i];
        if (!wanted.allows_device(ibv_get_device_name(device))) continue;
        const std::vector<DeviceInfo> ports = describe(device, wanted);
        const DeviceInfo* const best = preferred(ports);
        if (best == nullptr) continue;
        if (best->port_active) return {device, *best};
        if (!inactive) inactive = Found{device, *best};
    }
    if (inactive && !wanted.allows_all()) return *inactive;
    throw VerbsError(wanted.allows_all() ? "finding a device with an active port"
                                         : "finding the device \"" + choice + "\"",
                     ENODEV, "the devices are: " + names_of(devices));
}

}  // namespace

std::string port_name(const DeviceInfo& device) {
    return verbs::name_of_port(device.name, device.port);
}

std::vector<DeviceInfo> devices() {
    const DeviceList list;
    std::vector<DeviceInfo> all;
    for (int i = 0; i < list.count; ++i)
        if (const auto ports = describe(list.list[i], verbs::DeviceChoice({})); !ports.empty())
            all.push_back(*preferred(ports));
    return all;
}

std::vector<DeviceInfo> device_ports(const std::string& choice) {
    const verbs::DeviceChoice wanted(choice);
    const DeviceList list;
    std::vector<DeviceInfo> all;
    for (int i = 0; i < list.count; ++i) {
        if (!wanted.allows_device(ibv_get_device_name(list.list[i]))) continue;
        const auto ports = describe(list.list[i], wanted);
        all.insert(all.end(), ports.begin(), ports.end());
    }
    return all;
}

DeviceInfo device(const std::string& choice) {
    const DeviceList list;
    return find(list, choice).info;
}

namespace verbs {

bool means_no_thread_domains(int error) noexcept {
    // libibverbs returns these if the driver lacks the function, and before version 22.
    return error == EOPNOTSUPP || error == ENOSYS;
}

bool has_thread_domains(ibv_context* context) noexcept {
    HEDDLE_ASSERT(context != nullptr);
    ibv_td_init_attr nothing{};
    const ThreadDomain domain(ibv_alloc_td(context, &nothing));
    // Any error means that there are none, since nothing else in this context takes registers.
    // libmlx5 returns ENOENT on a kernel that has none.
    return domain != nullptr;
}

std::optional<std::string> why_no_device() {
    if (DeviceList().count != 0) return std::nullopt;
    return missing_device("/sys", "/dev");
}

bool survive_forks() noexcept {
    // ibv_fork_init() returns EINVAL if another library has registered memory before. The status is
    // queried first, since ibv_fork_init() may turn protection on where none is needed.
    static const int error = ibv_is_fork_initialized() == IBV_FORK_UNNEEDED ? 0 : ibv_fork_init();
    return error == 0 || ibv_is_fork_initialized() != IBV_FORK_DISABLED;
}

OpenDevice open_device(const std::string& name) {
    const DeviceList list;
    const Found found = find(list, name);
    OpenDevice opened{Context(ibv_open_device(found.device)), found.info.port};
    if (!opened.context)
        throw VerbsError(std::string("opening ") + ibv_get_device_name(found.device), errno,
                         errno == EMFILE || errno == ENFILE ? "raise `ulimit -n`" : "");
    return opened;
}

}  // namespace verbs
}  // namespace heddle
