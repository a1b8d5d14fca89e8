// SPDX-License-Identifier: BSD-2-Clause
// One fi_info: first everything that a device supports, then what matches the hints of a program.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>

#include "heddle/device.h"

namespace heddle::provider {

struct FreeInfo {
    void operator()(fi_info* info) const noexcept;  // and the whole list behind it
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// Returns everything that a device supports, in the structures of API version `version`. Throws
// std::bad_alloc.
Info full_offer(const DeviceInfo& device, std::uint32_t version);

// Restricts a full offer to the hints of fi_getinfo(3) with these flags. Returns false if the
// device does not support a requested attribute; then `why` is the reason, and the offer is in no
// defined state.
bool match_hints(fi_info& offer, const fi_info& hints, std::uint64_t flags, std::uint32_t version,
                 std::string& why);

}  // namespace heddle::provider
