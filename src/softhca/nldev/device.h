// SPDX-License-Identifier: BSD-2-Clause
// Writes the attributes of a device, its ports, its character device and the subsystem (nldev.c:
// fill_dev_info, fill_port_info, nldev_get_chardev, nldev_sys_get_doit).
#pragma once

#include "softhca/device/segment.h"
#include "softhca/nldev/message.h"

namespace softhca::nldev {

// `device` counts the fabric's devices from 0, as the kernel counts its own.
void fill_handle(std::uint32_t device, Datagram* out) noexcept;
void fill_device(const device::Segment& segment, std::uint32_t device, Datagram* out) noexcept;
void fill_port(const device::Segment& segment, std::uint32_t device, std::uint32_t port,
               Datagram* out) noexcept;
void fill_character_device(std::uint32_t device, Datagram* out) noexcept;
void fill_manager_device(Datagram* out) noexcept;  // of rdma_cm
void fill_subsystem(Datagram* out) noexcept;
void fill_summary(const device::Segment& segment, std::uint32_t device, Datagram* out);

}  // namespace softhca::nldev
