// SPDX-License-Identifier: BSD-2-Clause
// The device's identity. The discovery tree (sysfs) and the query commands must agree, so both read
// these constants. The values are those of a ConnectX-6. The PCI ids follow the kernel's
// mlx5_core_pci_table and rdma-core's providers/mlx5 match table.
#pragma once

#include <rdma/ib_user_verbs.h>

#include <cstdint>

namespace softhca::device {

inline constexpr const char* kDeviceName = "mlx5_0";
inline constexpr const char* kCharDevice = "uverbs0";
inline constexpr unsigned kCharMajor = 231;  // IB_UVERBS_MAJOR
inline constexpr unsigned kCharMinor = 192;  // IB_UVERBS_BASE_MINOR

// The device file of rdma_cm. The kernel takes the minor number that is free (MISC_DYNAMIC_MINOR).
inline constexpr const char* kManagerDevice = "rdma_cm";
inline constexpr unsigned kManagerMajor = 10;  // MISC_MAJOR
inline constexpr unsigned kManagerMinor = 122;
inline constexpr unsigned kManagerAbiVersion = 4;  // RDMA_USER_CM_ABI_VERSION

// A PCI domain that no real root complex uses, so that no path of the host is ever hidden.
inline constexpr const char* kPciDomainBus = "pci5afc:00";
inline constexpr const char* kPciAddress = "5afc:00:00.0";
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

// The device's GUID differs between fabrics: guid.h.
inline constexpr std::uint64_t kGidPrefix = 0xfe80'0000'0000'0000ULL;

// One port, HDR 4x, either InfiniBand or Ethernet (port.h).
inline constexpr unsigned kPorts = 1;
inline constexpr std::uint16_t kLid = 1;
inline constexpr std::uint16_t kSmLid = 1;
inline constexpr std::uint32_t kPortCapMask = 0x2651e848;
inline constexpr std::uint32_t kRocePortCapMask = 0x10000;  // IB_PORT_CM_SUP: rdma_cm works
inline constexpr unsigned kGidTableLength = 8;              // the entries in use: port.h
inline constexpr unsigned kPkeyTableLength = 128;
inline constexpr std::uint16_t kDefaultPkey = 0xffff;

}  // namespace softhca::device
