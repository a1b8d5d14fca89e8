// SPDX-License-Identifier: BSD-2-Clause
// fid_fabric: what domains and event queues are opened from.
#pragma once

#include <rdma/fabric.h>

#include <atomic>
#include <string>

#include "provider/object.h"

namespace heddle::provider {

struct Fabric : fid_fabric {
    using Fid = fid_fabric;
    std::string name;
    std::atomic<int> holders{1};  // the program, until fi_close, domains and event queues
};

// A program may close a fabric while there are domains of it (Open MPI does, where two of its parts
// share one): it goes with the last.
class FabricUse {
public:
    explicit FabricUse(Fabric& fabric) noexcept : fabric_(fabric) {
        fabric_.holders.fetch_add(1, std::memory_order_relaxed);
    }
    FabricUse(const FabricUse&) = delete;
    FabricUse& operator=(const FabricUse&) = delete;
    ~FabricUse() { drop(fabric_); }

    static void drop(Fabric& fabric) noexcept {
        if (fabric.holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete &fabric;
    }

private:
    Fabric& fabric_;
};

int open_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) noexcept;

}  // namespace heddle::provider
