// SPDX-License-Identifier: BSD-2-Clause
// Owners of verbs objects: destroyed when they go out of scope, in reverse order of declaration, as
// verbs wants it. A failing destroy is a mistake in that order and ends the program in debug
// builds.
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
        HEDDLE_ASSERT(error == 0);
    }
};

// These two are functions of verbs.h itself, other in each file that includes it: they cannot be
// part of a type.
struct EndThreadDomain {
    void operator()(ibv_td* domain) const noexcept {
        [[maybe_unused]] const int error = ibv_dealloc_td(domain);
        HEDDLE_ASSERT(error == 0);
    }
};
struct CloseXrcDomain {
    void operator()(ibv_xrcd* domain) const noexcept {
        [[maybe_unused]] const int error = ibv_close_xrcd(domain);
        HEDDLE_ASSERT(error == 0);
    }
};

using Context = std::unique_ptr<ibv_context, Destroy<ibv_close_device>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, Destroy<ibv_dealloc_pd>>;
using ThreadDomain = std::unique_ptr<ibv_td, EndThreadDomain>;
using MemoryRegion = std::unique_ptr<ibv_mr, Destroy<ibv_dereg_mr>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Destroy<ibv_destroy_cq>>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Destroy<ibv_destroy_comp_channel>>;
using QueuePair = std::unique_ptr<ibv_qp, Destroy<ibv_destroy_qp>>;
using SharedReceiveQueue = std::unique_ptr<ibv_srq, Destroy<ibv_destroy_srq>>;
using XrcDomain = std::unique_ptr<ibv_xrcd, CloseXrcDomain>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Destroy<ibv_destroy_comp_channel>>;

}  // namespace heddle::verbs
