// SPDX-License-Identifier: BSD-2-Clause
// fid_fabric: what domains and event queues are opened from.
#pragma once

#include <rdma/fabric.h>

#include <string>

#include "provider/object.h"

namespace heddle::provider {

struct Fabric : fid_fabric {
    using Fid = fid_fabric;
    std::string name;
    Uses uses;
};

int open_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) noexcept;

}  // namespace heddle::provider
