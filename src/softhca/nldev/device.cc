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
constexpr std::uint8_t kLinkUp = 5;      // IB_PORT_PHYS_STATE_LINK_UP

// The kernel's huge_encode_dev(): minors of more than eight bits lie above the major.
constexpr std::uint64_t encoded(std::uint64_t major, std::uint64_t minor) noexcept {
    return (minor & 0xff) | major << 8 | (minor & ~0xffull) << 12;
}

}  // namespace

void fill_handle(Datagram* out) noexcept {
    out->u32(RDMA_NLDEV_ATTR_DEV_INDEX, kDeviceIndex);
    out->text(RDMA_NLDEV_ATTR_DEV_NAME, kDeviceName);
}

void fill_device(const device::Segment& segment, Datagram* out) noexcept {
    char firmware[32];
    std::snprintf(firmware, sizeof firmware, "%d.%d.%04d", kFirmwareMajor, kFirmwareMinor,
                  kFirmwareSub);
    fill_handle(out);
    out->u32(RDMA_NLDEV_ATTR_PORT_INDEX, kPorts);
    out->u64(RDMA_NLDEV_ATTR_CAP_FLAGS, kDeviceCapFlags);
    out->text(RDMA_NLDEV_ATTR_FW_VERSION, firmware);
    out->u64(RDMA_NLDEV_ATTR_NODE_GUID, segment.node_guid);
    out->u64(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, segment.node_guid);
    out->u8(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, kNodeTypeCa);
    out->u8(kDevDim, 0);  // no adaptive moderation of CQs
    out->text(RDMA_NLDEV_ATTR_DEV_PROTOCOL, device::port_of(segment).is_ethernet() ? "roce" : "ib");
}

void fill_port(const device::Segment& segment, std::uint32_t port, Datagram* out) noexcept {
    SOFTHCA_ASSERT(port >= 1 && port <= kPorts);
    fill_handle(out);
    out->u32(RDMA_NLDEV_ATTR_PORT_INDEX, port);
    const device::Port described = device::port_of(segment);
    out->u64(RDMA_NLDEV_ATTR_CAP_FLAGS, described.capabilities());
    if (!described.is_ethernet()) {
        out->u64(RDMA_NLDEV_ATTR_SUBNET_PREFIX, kGidPrefix);
        out->u32(RDMA_NLDEV_ATTR_LID, described.lid());
        out->u32(RDMA_NLDEV_ATTR_SM_LID, described.sm_lid());
        out->u8(RDMA_NLDEV_ATTR_LMC, 0);
    }
    out->u8(RDMA_NLDEV_ATTR_PORT_STATE, IBV_PORT_ACTIVE);
    out->u8(RDMA_NLDEV_ATTR_PORT_PHYS_STATE, kLinkUp);
}

void fill_character_device(Datagram* out) noexcept {
    out->u32(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, RDMA_DRIVER_MLX5);
    out->u64(RDMA_NLDEV_ATTR_CHARDEV, encoded(kCharMajor, kCharMinor));
    out->u64(RDMA_NLDEV_ATTR_CHARDEV_ABI, kDriverAbiVersion);
    out->text(RDMA_NLDEV_ATTR_CHARDEV_NAME, kCharDevice);
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

void fill_summary(const Segment& segment, Datagram* out) {
    fill_handle(out);
    const Datagram::Mark table = out->begin_nest(RDMA_NLDEV_ATTR_RES_SUMMARY);
    for (const Resource& resource : resources()) {
        std::uint64_t count = 0;
        for (std::uint32_t i = 0; i < resource.end(segment); ++i)
            count += resource.live(segment, i) ? 1 : 0;
        const Datagram::Mark entry = out->begin_nest(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);
        out->text(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, resource.name);
        out->u64(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, count);
        out->end_nest(entry);
    }
    out->end_nest(table);
}

}  // namespace softhca::nldev
