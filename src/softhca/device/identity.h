// SPDX-License-Identifier: BSD-2-Clause
// The device's identity. The discovery tree (sysfs) and the query commands must agree, so both read
// these constants. The values are those of a ConnectX-6. The PCI ids follow the kernel's
// mlx5_core_pci_table and rdma-core's providers/mlx5 match table. A fabric has one device or
// several of them, each with one or two ports, and their names differ in the last digit.
#pragma once

#include <rdma/ib_user_verbs.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "softhca/base/options.h"

namespace softhca::device {

// Each name of a device has its number as one digit. libmlx5 has room for two ports
// (MLX5_MAX_PORTS_NUM).
inline constexpr unsigned kMaxDevices = kMostDevices, kMaxPorts = kMostPorts;
inline constexpr unsigned kMaxFabricPorts = kMaxDevices * kMaxPorts;

// A name that has the number of its device in it, NUL-terminated.
class DeviceText {
public:
    constexpr DeviceText(std::string_view before, unsigned number,
                         std::string_view behind = {}) noexcept {
        std::size_t at = 0;
        for (const char c : before)
            text_[at++] = c;
        if (number >= 100) text_[at++] = static_cast<char>('0' + number / 100);
        if (number >= 10) text_[at++] = static_cast<char>('0' + number / 10 % 10);
        text_[at++] = static_cast<char>('0' + number % 10);
        for (const char c : behind)
            text_[at++] = c;
    }
    constexpr explicit DeviceText(std::string_view whole) noexcept {
        std::size_t at = 0;
        for (const char c : whole)
            text_[at++] = c;
    }
    constexpr const char* c_str() const noexcept { return text_; }
    constexpr std::string_view view() const noexcept { return text_; }

private:
    char text_[24]{};
};

inline constexpr unsigned kCharMajor = 231;       // IB_UVERBS_MAJOR
inline constexpr unsigned kFirstCharMinor = 192;  // IB_UVERBS_BASE_MINOR
constexpr unsigned char_minor(unsigned device) noexcept { return kFirstCharMinor + device; }
constexpr DeviceText device_name(unsigned device) noexcept { return {"mlx5_", device}; }
constexpr DeviceText char_device(unsigned device) noexcept { return {"uverbs", device}; }
// MAJOR:MINOR, as in /dev/char.
constexpr DeviceText char_number(unsigned device) noexcept { return {"231:", char_minor(device)}; }
// The interface of a port (port.h) has a name of its own where the host's do not serve.
constexpr DeviceText interface_name(unsigned port_index) noexcept {
    return {"softhca", port_index};
}

// The device file of rdma_cm. The kernel takes the minor number that is free (MISC_DYNAMIC_MINOR).
inline constexpr const char* kManagerDevice = "rdma_cm";
inline constexpr unsigned kManagerMajor = 10;  // MISC_MAJOR
inline constexpr unsigned kManagerMinor = 122;
inline constexpr unsigned kManagerAbiVersion = 4;  // RDMA_USER_CM_ABI_VERSION

// A PCI domain that no real root complex uses, so that no path of the host is ever hidden.
inline constexpr const char* kPciDomainBus = "pci5afc:00";
constexpr DeviceText pci_address(unsigned device) noexcept { return {"5afc:00:0", device, ".0"}; }
inline constexpr std::uint32_t kVendorId = 0x15b3;   // PCI vendor of Mellanox/NVIDIA
inline constexpr std::uint32_t kVendorOui = 0x02c9;  // what ibv_query_device reports
inline constexpr std::uint32_t kPartId = 0x101b;     // 4123, MT28908 ConnectX-6
inline constexpr const char* kHcaType = "MT4123";
inline constexpr const char* kBoardId = "SFT0000000001";
inline constexpr std::uint16_t kFirmwareMajor = 20;
inline constexpr std::uint16_t kFirmwareMinor = 31;
inline constexpr std::uint16_t kFirmwareSub = 1014;
inline constexpr std::uint32_t kHardwareRevision = 0;
inline constexpr unsigned kDriverAbiVersion = 1;  // MLX5_IB_UVERBS_ABI_VERSION
// Not offered: raw IP checksums, managed flow steering. MEM_MGT_EXTENSIONS says, of user space,
// that work requests invalidate keys.
inline constexpr std::uint32_t kDeviceCapFlags =
    IB_UVERBS_DEVICE_XRC | IB_UVERBS_DEVICE_RC_RNR_NAK_GEN | IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT |
    IB_UVERBS_DEVICE_SYS_IMAGE_GUID | IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS |
    IB_UVERBS_DEVICE_MEM_WINDOW | IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B;

// GUIDs differ between fabrics: guid.h.
inline constexpr std::uint64_t kGidPrefix = 0xfe80'0000'0000'0000ULL;

// The ports are HDR 4x, either InfiniBand or Ethernet (port.h). The subnet manager is at the first.
inline constexpr std::uint16_t kFirstLid = 1;
inline constexpr std::uint16_t kSmLid = kFirstLid;
inline constexpr std::uint32_t kPortCapMask = 0x2651e848;
inline constexpr std::uint32_t kRocePortCapMask = 0x10000;  // IB_PORT_CM_SUP: rdma_cm works
inline constexpr unsigned kGidTableLength = 8;              // the entries in use: port.h
inline constexpr unsigned kPkeyTableLength = 128;
inline constexpr std::uint16_t kDefaultPkey = 0xffff;

}  // namespace softhca::device
