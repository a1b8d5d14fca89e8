// SPDX-License-Identifier: BSD-2-Clause
// Measuring what a set of verbs objects takes: the state of the process before they are made, and
// the difference afterwards.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <span>

#include "endpoint/uar_pages.h"
#include "heddle/usage.h"

namespace heddle::endpoint {

// The register that a QP rings; nullptr: it is not an mlx5 device's.
const void* uuar_of(ibv_qp* qp) noexcept;

class Measurement {
public:
    Measurement();  // now: the state before
    // Fills what the kernel and the driver know; the counts of objects are the caller's.
    void finish(std::span<ibv_qp* const> qps, std::span<ibv_cq* const> cqs, Usage& usage) const;

private:
    UarPages pages_;
    std::size_t heap_;
};

}  // namespace heddle::endpoint
