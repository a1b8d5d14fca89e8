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

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "verbs/gid.h"
#include "verbs/handles.h"
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

DeviceInfo describe(ibv_device* device) {
    HEDDLE_ASSERT(device != nullptr);
    DeviceInfo info;
    info.name = ibv_get_device_name(device);
    const std::string sysfs = sysfs_path(device);
    info.pci = sysfs.empty() ? std::string() : std::filesystem::path(sysfs).filename().string();
    info.board = first_line(std::string(device->ibdev_path) + "/board_id");
    const std::string node = sysfs.empty() ? std::string() : first_line(sysfs + "/numa_node");
    if (!node.empty()) info.numa_node = std::atoi(node.c_str());
    info.mlx5 = mlx5dv_is_supported(device);
    info.software = dlsym(RTLD_DEFAULT, "softhca_doorbell") != nullptr;
    const verbs::Context context(ibv_open_device(device));
    if (!context) return info;  // this process may not open it: report what sysfs has
    ibv_device_attr_ex attributes{};
    if (ibv_query_device_ex(context.get(), nullptr, &attributes) == 0) {
        const ibv_device_attr& a = attributes.orig_attr;
        info.firmware = a.fw_ver;
        info.max_qps = static_cast<std::uint32_t>(a.max_qp);
        info.max_qp_depth = static_cast<std::uint32_t>(a.max_qp_wr);
        info.max_cqs = static_cast<std::uint32_t>(a.max_cq);
        info.max_mrs = static_cast<std::uint32_t>(a.max_mr);
        info.max_pds = static_cast<std::uint32_t>(a.max_pd);
        info.max_srqs = static_cast<std::uint32_t>(a.max_srq);
        info.max_sge = static_cast<std::uint32_t>(a.max_sge);
        info.xrc = (a.device_cap_flags & IBV_DEVICE_XRC) != 0;
        info.atomics = a.atomic_cap != IBV_ATOMIC_NONE;
    }
    info.thread_domains = verbs::has_thread_domains(context.get());
    ibv_port_attr port{};
    if (ibv_query_port(context.get(), 1, &port) == 0) {
        info.port_active = port.state == IBV_PORT_ACTIVE;
        info.ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
        info.lid = port.lid;
    }
    try {
        info.gid = verbs::own_gid(context.get()).raw;
    } catch (const VerbsError&) {  // the GID stays unknown
    }
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

ibv_device* find(const DeviceList& devices, const std::string& name) {
    HEDDLE_ASSERT(devices.count == 0 || devices.list != nullptr);
    if (devices.count == 0)
        throw VerbsError("finding an RDMA device", ENODEV, verbs::missing_device("/sys", "/dev"));
    for (int i = 0; i < devices.count; ++i) {
        if (!name.empty() && name == ibv_get_device_name(devices.list[i])) return devices.list[i];
        if (name.empty() && describe(devices.list[i]).port_active) return devices.list[i];
    }
    throw VerbsError(name.empty() ? "finding a device with an active port"
                                  : "finding the device \"" + name + "\"",
                     ENODEV, "the devices are: " + names_of(devices));
}

}  // namespace

std::vector<DeviceInfo> devices() {
    const DeviceList list;
    std::vector<DeviceInfo> all;
    for (int i = 0; i < list.count; ++i)
        all.push_back(describe(list.list[i]));
    return all;
}

DeviceInfo device(const std::string& name) {
    const DeviceList list;
    return describe(find(list, name));
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

Context open_device(const std::string& name) {
    const DeviceList list;
    ibv_device* const device = find(list, name);
    Context context(ibv_open_device(device));
    if (!context)
        throw VerbsError(std::string("opening ") + ibv_get_device_name(device), errno,
                         errno == EMFILE || errno == ENFILE ? "raise `ulimit -n`" : "");
    return context;
}

}  // namespace verbs
}  // namespace heddle
