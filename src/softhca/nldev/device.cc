// SPDX-License-Identifier: BSD-2-Clause
// Writes the device's attributes: see device.h. device/tree.cc writes the same values for sysfs.
#include "softhca/nldev/device.h"

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include <cstdio>

#include "softhca/base/assert.h"
#include "softhca/base/options.h"
#include "softhca/device/identity.h"
#include "softhca/device/port.h"
#include "softhca/nldev/abi.h"
#include "softhca/nldev/resources.h"

namespace softhca::nldev {

using namespace softhca::device;

namespace {

constexpr std::uint8_t kNodeTypeCa = 1;  // RDMA_NODE_IB_CA

// The kernel's huge_encode_dev(): minors of more than eight bits lie above the major.
constexpr std::uint64_t encoded(std::uint64_t major, std::uint64_t minor) noexcept {
    return (minor & 0xff) | major << 8 | (minor & ~0xffull) << 12;
}

}  // namespace

void fill_handle(std::uint32_t device, Datagram* out) noexcept {
    out->u32(RDMA_NLDEV_ATTR_DEV_INDEX, device);
    out->text(RDMA_NLDEV_ATTR_DEV_NAME, device_name(device).c_str());
}

void fill_device(const device::Segment& segment, std::uint32_t device, Datagram* out) noexcept {
    const Port first = port_of(segment, device, 1);
    char firmware[32];
    std::snprintf(firmware, sizeof firmware, "%d.%d.%04d", kFirmwareMajor, kFirmwareMinor,
                  kFirmwareSub);
    fill_handle(device, out);
    out->u32(RDMA_NLDEV_ATTR_PORT_INDEX, ports_of_device(segment));
    out->u64(RDMA_NLDEV_ATTR_CAP_FLAGS, kDeviceCapFlags);
    out->text(RDMA_NLDEV_ATTR_FW_VERSION, firmware);
    out->u64(RDMA_NLDEV_ATTR_NODE_GUID, first.node_guid());
    out->u64(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, first.node_guid());
    out->u8(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, kNodeTypeCa);
    out->u8(kDevDim, 0);  // no adaptive moderation of CQs
    out->text(RDMA_NLDEV_ATTR_DEV_PROTOCOL, first.is_ethernet() ? "roce" : "ib");
}

void fill_port(const device::Segment& segment, std::uint32_t device, std::uint32_t port,
               Datagram* out) noexcept {
    fill_handle(device, out);
    out->u32(RDMA_NLDEV_ATTR_PORT_INDEX, port);
    const Port described = port_of(segment, device, port);
    out->u64(RDMA_NLDEV_ATTR_CAP_FLAGS, described.capabilities());
    if (!described.is_ethernet()) {
        out->u64(RDMA_NLDEV_ATTR_SUBNET_PREFIX, kGidPrefix);
        out->u32(RDMA_NLDEV_ATTR_LID, described.lid());
        out->u32(RDMA_NLDEV_ATTR_SM_LID, described.sm_lid());
        out->u8(RDMA_NLDEV_ATTR_LMC, 0);
    }
    out->u8(RDMA_NLDEV_ATTR_PORT_STATE, described.state());
    out->u8(RDMA_NLDEV_ATTR_PORT_PHYS_STATE, described.physical_state());
}

void fill_character_device(std::uint32_t device, Datagram* out) noexcept {
    out->u32(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, RDMA_DRIVER_MLX5);
    out->u64(RDMA_NLDEV_ATTR_CHARDEV, encoded(kCharMajor, char_minor(device)));
    out->u64(RDMA_NLDEV_ATTR_CHARDEV_ABI, kDriverAbiVersion);
    out->text(RDMA_NLDEV_ATTR_CHARDEV_NAME, char_device(device).c_str());
}

void fill_manager_device(Datagram* out) noexcept {
    out->u64(RDMA_NLDEV_ATTR_CHARDEV, encoded(kManagerMajor, kManagerMinor));
    out->u64(RDMA_NLDEV_ATTR_CHARDEV_ABI, kManagerAbiVersion);
    out->text(RDMA_NLDEV_ATTR_CHARDEV_NAME, kManagerDevice);
}

void fill_subsystem(Datagram* out) noexcept {
    out->u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 1);  // shared among the network namespaces
    // A forked child has private copies of registered memory (device/memory/fork.h). A kernel
    // without this feature lacks the attribute.
    if (!options().device.has(DeviceTrait::kNoCopyOnFork)) out->u8(kSysCopyOnFork, 1);
}

void fill_summary(const Segment& segment, std::uint32_t device, Datagram* out) {
    fill_handle(device, out);
    const Datagram::Mark table = out->begin_nest(RDMA_NLDEV_ATTR_RES_SUMMARY);
    for (const Resource& resource : resources()) {
        std::uint64_t count = 0;
        for (std::uint32_t i = 0; i < resource.end(segment); ++i)
            count += is_on(resource, segment, device, i) ? 1 : 0;
        const Datagram::Mark entry = out->begin_nest(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);
        out->text(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, resource.name);
        out->u64(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, count);
        out->end_nest(entry);
    }
    out->end_nest(table);
}

}  // namespace softhca::nldev
