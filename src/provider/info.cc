// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo(3): one offer for each usable device that matches the hints.
#include "provider/info.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <vector>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "provider/guarded.h"
#include "provider/host.h"
#include "provider/nearest.h"
#include "provider/offer.h"
#include "provider/parameters.h"
#include "verbs/device_name.h"

namespace heddle::provider {
namespace {

constexpr const char* kInfiniband = "InfiniBand";
constexpr const char* kRoce = "RoCE";
constexpr const char* kRoceV1 = "RoCEv1";

// libfabric sets this flag for its layers (rxm, rxd), which would build RDM endpoints on ours.
constexpr std::uint64_t kForLayers = std::uint64_t{1} << 59;

// Returns why a device cannot be used; nullptr: it is usable.
const char* unusable(const DeviceInfo& device) noexcept {
    if (device.transport != kInfiniband && device.transport != kRoce)
        return "its transport is neither InfiniBand nor RoCE";
    if (!device.port_active) return "its port is not active";
    if (device.max_srqs == 0) return "it has no shared receive queues";
    if (device.max_qps == 0) return "it has no queue pairs";
    return nullptr;
}

int offers(std::uint32_t version, std::uint64_t flags, const fi_info* hints, fi_info** out) {
    Info first;
    fi_info** last = nullptr;
    std::string why;
    for (const DeviceInfo& device : usable_ports()) {
        Info offer = full_offer(device, version);
        if (hints != nullptr && !match_hints(*offer, *hints, flags, version, why)) {
            log(FI_LOG_INFO, "%s does not match the hints: %s", port_name(device).c_str(),
                why.c_str());
            continue;
        }
        if (last == nullptr) {
            HEDDLE_ASSERT(first == nullptr && offer->next == nullptr);
            first = std::move(offer);
            last = &first->next;
        } else {
            *last = offer.release();
            last = &(*last)->next;
        }
    }
    HEDDLE_ASSERT((first == nullptr) == (last == nullptr));
    if (first == nullptr) return -FI_ENODATA;
    *out = first.release();
    return 0;
}

}  // namespace

std::vector<DeviceInfo> usable_ports() {
    std::vector<DeviceInfo> usable;
    const verbs::DeviceChoice chosen(options().protocol.device);
    std::string reasons;
    for (DeviceInfo& each : device_ports()) {
        const char* why = unusable(each);
        if (!chosen.allows(each.name, each.port)) why = "FI_HEDDLE_DEVICE does not name it";
        if (why == nullptr)
            usable.push_back(std::move(each));
        else
            reasons += (reasons.empty() ? "" : "; ") + port_name(each) + ": " + why;
    }
    put_nearest_first(usable);
    if (usable.empty())
        log(FI_LOG_WARN, "nothing is offered: %s",
            reasons.empty() ? "this machine has no RDMA device" : reasons.c_str());
    else if (!reasons.empty())
        log(FI_LOG_INFO, "not used: %s", reasons.c_str());
    return usable;
}

std::string fabric_name(const DeviceInfo& device) {
    if (device.ethernet) return device.roce_v1 ? kRoceV1 : kRoce;
    constexpr std::size_t kPrefix = 8;
    constexpr std::array<std::uint8_t, kPrefix> kDefault{0xfe, 0x80};
    if (std::equal(kDefault.begin(), kDefault.end(), device.gid.begin())) return kInfiniband;
    std::string name = std::string(kInfiniband) + "-";
    for (std::size_t k = 0; k < kPrefix; ++k) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", unsigned{device.gid[k]});
        name += digits;
    }
    return name;
}

bool is_fabric_name(const char* name) noexcept {
    const std::string_view text = name;
    return text.starts_with(kInfiniband) || text == kRoce || text == kRoceV1;
}

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** out) noexcept {
    static_cast<void>(service);  // endpoints have no ports: the provider numbers them
    if ((flags & kForLayers) != 0) return -FI_ENODATA;
    // A host name cannot be resolved to an endpoint: programs exchange the result of fi_getname(3).
    if (node != nullptr && (flags & FI_SOURCE) == 0) {
        log(FI_LOG_INFO, "'%s' is not resolved: only fi_getname returns the address of an endpoint",
            node);
        return -FI_ENODATA;
    }
    return guarded("fi_getinfo", [&] {
        try {
            return offers(version, flags, hints, out);
        } catch (const VerbsError& error) {
            log(FI_LOG_WARN, "nothing is offered: %s", error.what());
            return -FI_ENODATA;
        }
    });
}

}  // namespace heddle::provider
