// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/port_choice.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <tuple>
#include <utility>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "heddle/locality.h"
#include "verbs/ip_network.h"

namespace heddle::verbs {
namespace {

constexpr const char* kInfiniband = "InfiniBand";
constexpr const char* kRoce = "RoCE";
constexpr const char* kRoceV1 = "RoCEv1";

// The process's number on its host: Hydra and Intel MPI, Slurm, Cray's PALS. 0 under the launchers
// of Open MPI and PMIx: Open MPI itself takes the port of that number among those that it is
// offered (opal_common_ofi_select_provider), so that two turns would bring all processes back to
// one port.
std::size_t number_on_host() noexcept {
    for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_RANK"})
        if (std::getenv(name) != nullptr) return 0;
    for (const char* name : {"MPI_LOCALRANKID", "SLURM_LOCALID", "PALS_LOCAL_RANKID"}) {
        const char* const text = std::getenv(name);
        std::size_t number = 0;
        if (text != nullptr &&
            std::from_chars(text, text + std::strlen(text), number).ec == std::errc{})
            return number;
    }
    return 0;
}

struct Fabric {
    std::string name;
    bool has_addresses;
    std::uint64_t speed;  // of its fastest port
};

// An Ethernet port whose interface has no address has only the GID that the kernel makes from its
// MAC address, and mostly no cable that leads to the peers, although its state is active.
bool has_address(const DeviceInfo& port) noexcept {
    return !port.ethernet || !is_link_local(port.gid);
}

// The best first.
std::vector<Fabric> fabrics_of(const std::vector<DeviceInfo>& ports) {
    std::vector<Fabric> all;
    for (const DeviceInfo& port : ports) {
        const std::string name = fabric_name(port);
        const auto known = std::ranges::find(all, name, &Fabric::name);
        if (known == all.end())
            all.push_back({name, has_address(port), port.speed});
        else
            known->speed = std::max(known->speed, port.speed);
    }
    std::ranges::stable_sort(
        all, {}, [](const Fabric& each) { return std::tuple(!each.has_addresses, ~each.speed); });
    return all;
}

std::vector<unsigned> distances_or_none(const std::vector<DeviceInfo>& ports) {
    try {
        return distances_to(ports);
    } catch (const VerbsError&) {  // hwloc knows nothing of this machine
        return std::vector<unsigned>(ports.size());
    }
}

}  // namespace

const char* why_unusable(const DeviceInfo& port) noexcept {
    if (port.transport != kInfiniband && port.transport != kRoce)
        return "its transport is neither InfiniBand nor RoCE";
    if (!port.port_active) return "its port is not active";
    if (port.max_srqs == 0) return "it has no shared receive queues";
    if (port.max_qps == 0) return "it has no queue pairs";
    return nullptr;
}

std::string fabric_name(const DeviceInfo& port) {
    if (port.ethernet) {
        const std::string kind = port.roce_v1 ? kRoceV1 : kRoce;
        return port.network.empty() ? kind : kind + "-" + port.network;
    }
    constexpr std::size_t kPrefix = 8;
    constexpr std::array<std::uint8_t, kPrefix> kDefault{0xfe, 0x80};
    if (std::equal(kDefault.begin(), kDefault.end(), port.gid.begin())) return kInfiniband;
    std::string name = std::string(kInfiniband) + "-";
    for (std::size_t k = 0; k < kPrefix; ++k) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", unsigned{port.gid[k]});
        name += digits;
    }
    return name;
}

bool is_fabric_name(const char* name) noexcept {
    HEDDLE_ASSERT(name != nullptr);
    const std::string_view text = name;
    return text.starts_with(kInfiniband) || text.starts_with(kRoce);
}

void put_best_first(std::vector<DeviceInfo>& ports) {
    if (ports.size() < 2) return;
    const std::vector<Fabric> fabrics = fabrics_of(ports);
    const std::vector<unsigned> distances = distances_or_none(ports);
    HEDDLE_ASSERT(distances.size() == ports.size());
    // A port's fabric, its distance, its speed (the faster ones have smaller numbers).
    using Merit = std::tuple<std::ptrdiff_t, unsigned, std::uint64_t>;
    std::vector<std::pair<Merit, DeviceInfo>> order;
    for (std::size_t k = 0; k < ports.size(); ++k) {
        const auto fabric = std::ranges::find(fabrics, fabric_name(ports[k]), &Fabric::name);
        order.emplace_back(Merit(fabric - fabrics.begin(), distances[k], ~ports[k].speed),
                           std::move(ports[k]));
    }
    std::ranges::stable_sort(order, {}, [](const auto& each) { return each.first; });
    const auto equals = std::ranges::find_if(
        order, [&](const auto& each) { return each.first != order.front().first; });
    const auto count = static_cast<std::size_t>(equals - order.begin());
    std::rotate(order.begin(),
                order.begin() + static_cast<std::ptrdiff_t>(number_on_host() % count), equals);
    std::ranges::transform(order, ports.begin(), [](auto& each) { return std::move(each.second); });
}

}  // namespace heddle::verbs
