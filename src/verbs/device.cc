// SPDX-License-Identifier: BSD-2-Clause
// Lists, describes and opens devices: see heddle/device.h.
#include "heddle/device.h"

#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <bit>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "verbs/device_name.h"
#include "verbs/handles.h"
#include "verbs/ip_network.h"
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
    // Each code is a bit: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR; and 1, 4, 8, 12 and 2 wide.
    constexpr double kGigabits[] = {2.5, 5, 10, 10.3125, 14.0625, 25, 50, 100};
    constexpr unsigned kWidths[] = {1, 4, 8, 12, 2};
    const auto speed = static_cast<std::size_t>(std::countr_zero(port.active_speed));
    const auto width = static_cast<std::size_t>(std::countr_zero(port.active_width));
    if (speed >= std::size(kGigabits) || width >= std::size(kWidths)) return 0;
    return static_cast<std::uint64_t>(kGigabits[speed] * kWidths[width] * 1e9);
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
        if (info.ethernet) info.network = verbs::ip_network(used.gid);
    } catch (const VerbsError&) {  // the GID stays unknown
    }
}

// Describes a device without its ports. A null context: by what sysfs has.
DeviceInfo describe(ibv_device* device, ibv_context* context) {
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
    if (context == nullptr) return info;
    ibv_device_attr_ex attributes{};
    if (ibv_query_device_ex(context, nullptr, &attributes) == 0) {
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
    info.thread_domains = verbs::has_thread_domains(context);
    return info;
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

// A device that was opened to look at its ports, and the one that is used.
struct Found {
    ibv_device* device;
    verbs::Context context;  // null: `error` says why
    int error;
    std::uint8_t port;
    bool is_active;

    DeviceInfo describe() const {
        DeviceInfo info = heddle::describe(device, context.get());
        if (context) describe_port(device, context.get(), port, info);
        return info;
    }
};

// Returns the first of the ports that `wanted` allows which is active, or else the first of them.
// A device that this process may not open has port 1. nullopt: it allows none.
std::optional<Found> look_at(ibv_device* device, const verbs::DeviceChoice& wanted) {
    Found found{device, verbs::Context(ibv_open_device(device)), errno, 0, false};
    if (!found.context) {
        found.port = 1;
        return found;
    }
    ibv_device_attr attributes{};
    const bool is_known = ibv_query_device(found.context.get(), &attributes) == 0;
    for (unsigned k = 1; k <= (is_known ? attributes.phys_port_cnt : 1u); ++k) {
        const auto number = static_cast<std::uint8_t>(k);
        if (!wanted.allows(ibv_get_device_name(device), number)) continue;
        ibv_port_attr port{};
        found.is_active = ibv_query_port(found.context.get(), number, &port) == 0 &&
                          port.state == IBV_PORT_ACTIVE;
        if (found.is_active || found.port == 0) found.port = number;
        if (found.is_active) break;
    }
    if (found.port == 0) return {};
    return found;
}

Found find(const DeviceList& devices, const std::string& choice) {
    HEDDLE_ASSERT(devices.count == 0 || devices.list != nullptr);
    if (devices.count == 0)
        throw VerbsError("finding an RDMA device", ENODEV, verbs::missing_device("/sys", "/dev"));
    const verbs::DeviceChoice wanted(choice);
    std::optional<Found> inactive;
    for (int i = 0; i < devices.count; ++i) {
        ibv_device* const device = devices.list[i];
        if (!wanted.allows_device(ibv_get_device_name(device))) continue;
        std::optional<Found> found = look_at(device, wanted);
        if (!found) continue;
        if (found->is_active) return std::move(*found);
        if (!inactive) inactive = std::move(found);
    }
    if (inactive && !wanted.allows_all()) return std::move(*inactive);
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
    const verbs::DeviceChoice all_of_them("");
    std::vector<DeviceInfo> all;
    for (int i = 0; i < list.count; ++i)
        if (const auto found = look_at(list.list[i], all_of_them)) all.push_back(found->describe());
    return all;
}

std::vector<DeviceInfo> device_ports(const std::string& choice) {
    const verbs::DeviceChoice wanted(choice);
    const DeviceList list;
    std::vector<DeviceInfo> all;
    for (int i = 0; i < list.count; ++i) {
        ibv_device* const device = list.list[i];
        if (!wanted.allows_device(ibv_get_device_name(device))) continue;
        const verbs::Context context(ibv_open_device(device));
        const DeviceInfo info = describe(device, context.get());
        if (!context) all.push_back(info);
        for (unsigned number = 1; context && number <= info.ports; ++number) {
            const auto port = static_cast<std::uint8_t>(number);
            if (!wanted.allows(info.name, port)) continue;
            all.push_back(info);
            describe_port(device, context.get(), port, all.back());
        }
    }
    return all;
}

DeviceInfo device(const std::string& choice) {
    const DeviceList list;
    return find(list, choice).describe();
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
    Found found = find(list, name);
    if (!found.context)
        throw VerbsError(std::string("opening ") + ibv_get_device_name(found.device), found.error,
                         found.error == EMFILE || found.error == ENFILE ? "raise `ulimit -n`" : "");
    return {std::move(found.context), found.port};
}

}  // namespace verbs
}  // namespace heddle
