// SPDX-License-Identifier: BSD-2-Clause
// Owners of verbs objects. An owner destroys its object when it goes out of scope, so objects are
// destroyed in reverse order of declaration, as verbs requires. If the destruction fails, the order
// is wrong: an assertion ends the program.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "heddle/detail/assert.h"

namespace heddle::verbs {

template <auto kDestroy>
struct Destroy {
    template <class T>
    void operator()(T* object) const noexcept {
        [[maybe_unused]] const int error = kDestroy(object);
        HEDDLE_ASSERT(error == 0, "a verbs object was destroyed before one that depends on it");
    }
};

// verbs.h defines these two functions as static inline, so they differ in each file that includes
// it and cannot be part of a type.
struct EndThreadDomain {
    void operator()(ibv_td* domain) const noexcept {
        [[maybe_unused]] const int error = ibv_dealloc_td(domain);
        HEDDLE_ASSERT(error == 0, "a verbs object was destroyed before one that depends on it");
    }
};
struct CloseXrcDomain {
    void operator()(ibv_xrcd* domain) const noexcept {
        [[maybe_unused]] const int error = ibv_close_xrcd(domain);
        HEDDLE_ASSERT(error == 0, "a verbs object was destroyed before one that depends on it");
    }
};

using Context = std::unique_ptr<ibv_context, Destroy<ibv_close_device>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, Destroy<ibv_dealloc_pd>>;
using ThreadDomain = std::unique_ptr<ibv_td, EndThreadDomain>;
using AddressHandle = std::unique_ptr<ibv_ah, Destroy<ibv_destroy_ah>>;
using MemoryRegion = std::unique_ptr<ibv_mr, Destroy<ibv_dereg_mr>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Destroy<ibv_destroy_cq>>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Destroy<ibv_destroy_comp_channel>>;
using QueuePair = std::unique_ptr<ibv_qp, Destroy<ibv_destroy_qp>>;
using SharedReceiveQueue = std::unique_ptr<ibv_srq, Destroy<ibv_destroy_srq>>;
using XrcDomain = std::unique_ptr<ibv_xrcd, CloseXrcDomain>;

}  // namespace heddle::verbs
