// SPDX-License-Identifier: BSD-2-Clause
// Writes the attributes of the device, its port, its character device and the subsystem (nldev.c:
// fill_dev_info, fill_port_info, nldev_get_chardev, nldev_sys_get_doit).
#pragma once

#include "softhca/device/segment.h"
#include "softhca/nldev/message.h"

namespace softhca::nldev {

inline constexpr std::uint32_t kDeviceIndex = 0;  // the kernel counts its devices from 0

void fill_handle(Datagram* out) noexcept;
void fill_device(const device::Segment& segment, Datagram* out) noexcept;
void fill_port(const device::Segment& segment, std::uint32_t port, Datagram* out) noexcept;
void fill_character_device(Datagram* out) noexcept;
void fill_manager_device(Datagram* out) noexcept;  // of rdma_cm
void fill_subsystem(Datagram* out) noexcept;
void fill_summary(const device::Segment& segment, Datagram* out);

}  // namespace softhca::nldev
