// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo(3): one offer for each usable device that matches the hints.
#include "provider/info.h"

#include <rdma/fi_errno.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "provider/guarded.h"
#include "provider/host.h"
#include "provider/offer.h"
#include "provider/parameters.h"
#include "verbs/device_name.h"
#include "verbs/port_choice.h"

namespace heddle::provider {
namespace {

// libfabric sets this flag for its layers (rxm, rxd), which would build RDM endpoints on ours.
constexpr std::uint64_t kForLayers = std::uint64_t{1} << 59;

// Whether the user or the program says which ports it means.
bool names_ports(const fi_info* hints) noexcept {
    if (!options().protocol.device.empty()) return true;
    return hints != nullptr && ((hints->fabric_attr != nullptr && hints->fabric_attr->name) ||
                                (hints->domain_attr != nullptr && hints->domain_attr->name) ||
                                hints->src_addr != nullptr);
}

// MPI libraries spread the processes of a host over all that they are offered (MPICH by names, Open
// MPI by fabrics), and ports of different networks cannot be relied on to reach each other.
int offers(std::uint32_t version, std::uint64_t flags, const fi_info* hints, fi_info** out) {
    std::vector<Info> found;
    std::string why;
    const bool all_fabrics = names_ports(hints);
    for (const DeviceInfo& device : usable_ports()) {
        Info offer = full_offer(device, version);
        if (hints != nullptr && !match_hints(*offer, *hints, flags, version, why)) {
            log(FI_LOG_INFO, "%s does not match the hints: %s", port_name(device).c_str(),
                why.c_str());
            continue;
        }
        const char* const fabric = offer->fabric_attr->name;
        if (!found.empty() && !all_fabrics &&
            std::string_view(fabric) != found.front()->fabric_attr->name) {
            log(FI_LOG_INFO,
                "%s is of another network, %s, than %s: FI_HEDDLE_DEVICE or hints may name it",
                port_name(device).c_str(), fabric, found.front()->domain_attr->name);
            continue;
        }
        HEDDLE_ASSERT(offer->next == nullptr);
        found.push_back(std::move(offer));
    }
    if (found.empty()) return -FI_ENODATA;
    for (std::size_t k = found.size() - 1; k != 0; --k)
        found[k - 1]->next = found[k].release();
    *out = found.front().release();
    return 0;
}

}  // namespace

std::vector<DeviceInfo> usable_ports() {
    std::vector<DeviceInfo> usable;
    const verbs::DeviceChoice chosen(options().protocol.device);
    std::string reasons;
    for (DeviceInfo& each : device_ports()) {
        const char* why = verbs::why_unusable(each);
        if (!chosen.allows(each.name, each.port)) why = "FI_HEDDLE_DEVICE does not name it";
        if (why == nullptr)
            usable.push_back(std::move(each));
        else
            reasons += (reasons.empty() ? "" : "; ") + port_name(each) + ": " + why;
    }
    verbs::put_best_first(usable);
    if (usable.empty())
        log(FI_LOG_WARN, "nothing is offered: %s",
            reasons.empty() ? "this machine has no RDMA device" : reasons.c_str());
    else if (!reasons.empty())
        log(FI_LOG_INFO, "not used: %s", reasons.c_str());
    return usable;
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
