// SPDX-License-Identifier: BSD-2-Clause
// The RDMA devices of this machine and what they support.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "heddle/category.h"

namespace heddle {

/// What is known of a device and of one of its ports. A snapshot: it does not follow later changes.
///
///     for (const heddle::DeviceInfo& each : heddle::devices())
///         std::printf("%s: %u QPs, thread domains: %s\n", each.name.c_str(), each.max_qps,
///                     each.thread_domains ? "yes" : "no");
///
/// If this process may not open the device, everything that needs a context keeps its initial
/// value.
struct DeviceInfo {
    std::string name;       ///< libibverbs's name: "mlx5_0"
    std::string firmware;   ///< "16.35.2000"
    std::string board;      ///< PSID; empty: unknown
    std::string pci;        ///< "0000:07:00.0"; empty: unknown
    int numa_node = -1;     ///< -1: unknown
    bool mlx5 = false;      ///< libmlx5 drives it: UARs are visible, the direct path is possible
    bool software = false;  ///< softhca is loaded in this process
    /// "InfiniBand" or "RoCE", by the port's link layer; or what heddle cannot use: "iWARP",
    /// "usNIC", "other" (an EFA, for instance).
    std::string transport;
    std::uint8_t ports = 1;              ///< how many ports it has
    std::uint8_t port = 1;               ///< the port that the following describe
    bool ethernet = false;               ///< its link layer: RoCE if true, InfiniBand if false
    bool port_active = false;            ///< it is active
    std::array<std::uint8_t, 16> gid{};  ///< its GID that is used; zero: unknown
    bool roce_v1 = false;                ///< that GID is of RoCE v1
    /// The IP network of an Ethernet port's GID: "10.7.0.0/24", "fe80::/64". Empty: unknown, or one
    /// or two addresses, which lead elsewhere by routers.
    std::string network;
    std::uint16_t lid = 0;           ///< 0 on Ethernet
    std::uint32_t mtu = 0;           ///< bytes of a packet's payload; 0: unknown
    std::uint64_t speed = 0;         ///< bits per second; 0: unknown
    std::uint32_t max_qps = 0;       ///< queue pairs
    std::uint32_t max_qp_depth = 0;  ///< work requests in a queue
    std::uint32_t max_cqs = 0;       ///< completion queues
    std::uint32_t max_mrs = 0;       ///< memory regions
    std::uint32_t max_pds = 0;       ///< protection domains
    std::uint32_t max_srqs = 0;      ///< shared receive queues
    std::uint32_t max_sge = 0;       ///< scatter/gather entries of a work request
    bool xrc = false;                ///< it has extended reliable connections
    bool atomics = false;            ///< it has compare-and-swap and fetch-and-add
    /// It reads and writes memory that is not pinned (on-demand paging), with all operations of RC,
    /// and of XRC where it has XRC.
    bool on_demand_paging = false;
    /// It has thread domains: a QP that one thread uses needs no driver lock. devices() and
    /// device() allocate one to find out, since drivers have no flag for it.
    bool thread_domains = false;
};

/// Returns the category that EndpointSet creates on a device when a program requests another one.
///
/// @param device as device() or devices() returned it
/// @param wanted the requested category
/// @return Category::kStatic if `wanted` consists of thread domains and the device has none; else
///     `wanted`
/// Thread safety: any thread.
Category made_on(const DeviceInfo& device, Category wanted) noexcept;

/// Returns the name by which device() finds this port again: "mlx5_0", or "mlx5_0:2" for port 2.
std::string port_name(const DeviceInfo& device);

/// Describes all devices, in the order of libibverbs, each with its first active port.
///
/// @return empty if the machine has no device
/// @throw VerbsError libibverbs cannot list the devices (its errno)
/// Thread safety: any thread.
std::vector<DeviceInfo> devices();

/// Describes all ports of the devices that a choice allows.
///
/// @param choice as of device()
/// @throw VerbsError EINVAL: the choice is not possible. Any other errno: as of devices()
/// Thread safety: any thread.
std::vector<DeviceInfo> device_ports(const std::string& choice = {});

/// Describes one device.
///
///     const heddle::DeviceInfo info = heddle::device("mlx5_0:2");
///
/// @param choice names or patterns of fnmatch(3) with commas between them, each with a port
///     (`:2`) or without: the first such port that is active; or, if none is, the first of the
///     first device that is named. Empty: the first device with an active port
/// @throw VerbsError ENODEV: no such device; the hint names those that exist, or why there is none.
///     EINVAL: the choice is not possible. Any other errno: libibverbs cannot list the devices
/// Thread safety: any thread.
DeviceInfo device(const std::string& choice = {});

}  // namespace heddle
