// SPDX-License-Identifier: BSD-2-Clause
// RDMA devices of this machine and what they can do.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "heddle/category.h"

namespace heddle {

struct DeviceInfo {
    std::string name;       // "mlx5_0"
    std::string firmware;   // "16.35.2000"
    std::string board;      // PSID, or empty
    std::string pci;        // "0000:07:00.0", or empty
    int numa_node = -1;     // -1: unknown
    bool mlx5 = false;      // libmlx5 drives it: UARs can be seen, the direct path is possible
    bool software = false;  // softhca
    bool ethernet = false;  // RoCE; else InfiniBand
    bool port_active = false;
    std::array<std::uint8_t, 16> gid{};  // of its port, the first; zero: unknown
    std::uint16_t lid = 0;               // of its port; zero with Ethernet
    std::uint32_t max_qps = 0, max_qp_depth = 0, max_cqs = 0, max_mrs = 0, max_pds = 0,
                  max_srqs = 0;
    std::uint32_t max_sge = 0;
    bool xrc = false, atomics = false;
    // A QP of one thread can do without the driver's lock. Tried, since drivers have no flag for
    // it.
    bool thread_domains = false;
};

// What a category becomes on a device: kStatic if it consists of thread domains and there are none.
Category made_on(const DeviceInfo& device, Category wanted) noexcept;

// All devices, in libibverbs' order. Thread-safe. Throws VerbsError when the list cannot be had.
std::vector<DeviceInfo> devices();
// One device; empty name: the first with an active port. Throws VerbsError (ENODEV) that names what
// there is.
DeviceInfo device(const std::string& name = {});

}  // namespace heddle
