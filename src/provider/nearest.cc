// SPDX-License-Identifier: BSD-2-Clause
#include "provider/nearest.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <utility>

#include "heddle/error.h"
#include "heddle/locality.h"
#include "provider/host.h"
#include "provider/info.h"

namespace heddle::provider {
namespace {

// The process's number on its host: Hydra and Intel MPI, Open MPI, Slurm, Cray's PALS.
std::size_t number_on_host() noexcept {
    for (const char* name :
         {"MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "PALS_LOCAL_RANKID"}) {
        const char* const text = std::getenv(name);
        std::size_t number = 0;
        if (text != nullptr &&
            std::from_chars(text, text + std::strlen(text), number).ec == std::errc{})
            return number;
    }
    return 0;
}

// An Ethernet port whose interface has no address has only the GID that the kernel makes from its
// MAC address, and mostly no cable that leads to the peers, although its state is active.
bool has_address(const DeviceInfo& port) noexcept {
    constexpr unsigned kFirst = 0xfe, kSecond = 0x80;  // fe80::/10
    return !port.ethernet || port.gid[0] != kFirst || (port.gid[1] & 0xc0U) != kSecond;
}

}  // namespace

void put_nearest_first(std::vector<DeviceInfo>& ports) {
    if (ports.size() < 2) return;
    std::vector<std::pair<unsigned, DeviceInfo>> order;
    try {
        const std::vector<unsigned> distances = distances_to(ports);
        for (std::size_t k = 0; k < ports.size(); ++k)
            order.emplace_back(distances[k], std::move(ports[k]));
    } catch (const VerbsError& error) {
        log(FI_LOG_INFO, "the distance of devices is not known: %s", error.what());
        return;
    }
    std::ranges::stable_sort(order, {}, [](const auto& each) {
        // Those with an address, then the nearer, then the faster.
        return std::tuple(!has_address(each.second), each.first, ~each.second.speed);
    });
    const auto is_equal = [&](const auto& each) {
        return each.first == order.front().first &&
               has_address(each.second) == has_address(order.front().second) &&
               each.second.speed == order.front().second.speed &&
               fabric_name(each.second) == fabric_name(order.front().second);
    };
    const auto end = std::stable_partition(order.begin(), order.end(), is_equal);
    const auto equals = static_cast<std::size_t>(end - order.begin());
    std::rotate(order.begin(),
                order.begin() + static_cast<std::ptrdiff_t>(number_on_host() % equals), end);
    std::ranges::transform(order, ports.begin(), [](auto& each) { return std::move(each.second); });
}

std::vector<std::string> rails_beside(const DeviceInfo& own, const std::vector<DeviceInfo>& usable,
                                      std::size_t most) {
    std::vector<std::string> rails;
    for (const DeviceInfo& each : usable) {
        if (rails.size() == most) break;
        const std::string name = port_name(each);
        if (each.ethernet == own.ethernet && name != port_name(own)) rails.push_back(name);
    }
    return rails;
}

}  // namespace heddle::provider
