// SPDX-License-Identifier: BSD-2-Clause
// One fi_info: everything a device can do, then narrowed to what a program asked for.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>

#include "heddle/device.h"

namespace heddle::provider {

struct FreeInfo {
    void operator()(fi_info* info) const noexcept;  // with all that follow it
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// Throws std::bad_alloc.
Info full_offer(const DeviceInfo& device, std::uint32_t version);

// Narrows the offer to the hints; `flags` are those of fi_getinfo. False: they ask for what there
// is not; `why` says for what.
bool match_hints(fi_info& offer, const fi_info& hints, std::uint64_t flags, std::uint32_t version,
                 std::string& why);

}  // namespace heddle::provider
