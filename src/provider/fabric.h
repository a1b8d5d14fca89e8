// SPDX-License-Identifier: BSD-2-Clause
// fid_fabric: the object from which a program opens domains and event queues.
#pragma once

#include <rdma/fabric.h>

#include <atomic>
#include <string>

#include "heddle/detail/assert.h"
#include "provider/object.h"

namespace heddle::provider {

struct Fabric : fid_fabric {
    using Fid = fid_fabric;
    std::string name;
    // The program's reference until fi_close, and one of each domain and event queue.
    std::atomic<int> refs{1};
};

// A reference to a fabric by one of its domains or event queues. A program may close a fabric that
// has domains: Open MPI does when two of its components share one. The last reference deletes it.
class FabricRef {
public:
    explicit FabricRef(Fabric& fabric) noexcept : fabric_(fabric) {
        const int before = fabric_.refs.fetch_add(1, std::memory_order_relaxed);
        HEDDLE_ASSERT(before > 0, "the fabric is already deleted");
    }
    FabricRef(const FabricRef&) = delete;
    FabricRef& operator=(const FabricRef&) = delete;
    ~FabricRef() { drop(fabric_); }

    static void drop(Fabric& fabric) noexcept {
        const int before = fabric.refs.fetch_sub(1, std::memory_order_acq_rel);
        HEDDLE_ASSERT(before > 0, "a fabric was closed twice");
        if (before == 1) delete &fabric;
    }

private:
    Fabric& fabric_;
};

int open_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) noexcept;

}  // namespace heddle::provider
